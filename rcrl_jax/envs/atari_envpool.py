"""Atari through envpool, the default backend."""

import envpool
import numpy as np

from rcrl_jax.envs.atari_games import NEVER, AtariGames, Screen


class EnvpoolAtari(AtariGames):
    """R copies of one game.

    envpool returns each result in a new buffer: `recv` gives the buffer to NumPy, and the workers
    write the next result to another buffer. So frames are not copied here.
    """

    def __init__(self, game: str, seeds: np.ndarray, screen: Screen):
        """Takes the arguments of `make_atari`, validated."""
        pool = envpool.make(
            f"{game}-v5",
            env_type="gymnasium",
            num_envs=len(seeds),
            # A list gives each environment a generator that is independent of the pool.
            seed=seeds.tolist(),
            max_episode_steps=NEVER,
            stack_num=1,
            frame_skip=4,
            noop_max=screen.most_noops,
            img_height=screen.drawn[0],
            img_width=screen.drawn[1],
            gray_scale=screen.is_grey,
            use_inter_area_resize=True,
            full_action_space=False,
            repeat_action_probability=0.0,
            reward_clip=False,
            # Each of these two would act in the game between the agent's steps.
            episodic_life=False,
            use_fire_reset=False,
        )
        super().__init__(
            pool,
            game,
            seeds,
            screen,
            int(pool.action_space.n),
            backend="envpool",
            backend_version=envpool.__version__,
            emulator=f"ALE as built into envpool {envpool.__version__}",
            noops_at_reset=[1, screen.most_noops],
        )

    def _restart(self, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        # Results of a partial reset come in the order of the ids. A reset also clears the pool's
        # flag of an ended game, so the next step does not restart the game once more.
        observation, info = self._vector.reset(np.flatnonzero(mask).astype(np.int32))
        return observation, info["lives"]

    def _frames(self, observation: np.ndarray) -> np.ndarray:
        if self._screen.is_grey:
            return observation[:, 0]
        # The pool has colours before rows.
        return np.ascontiguousarray(self._screen.read(np.moveaxis(observation, 1, -1)))
