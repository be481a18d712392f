"""Atari through envpool, the default backend."""

import envpool
import numpy as np

from rcrl_jax.envs.atari import Screen, halve
from rcrl_jax.envs.protocol import (
    TimeStep,
    VectorEnvironment,
    after_reset,
    discrete_spec,
    validate_actions,
    validate_mask,
)

# Agent steps; never reached. `agent_view` limits the length of a game.
_NEVER = 2**30


class EnvpoolAtari(VectorEnvironment):
    """R copies of one game. See `rcrl_jax.envs.atari.make_atari`.

    envpool returns each result in a buffer of its own: `recv` gives the buffer to NumPy, and the
    workers write the next results to another one. So frames are not copied here.
    """

    def __init__(self, game: str, seeds: np.ndarray, screen: Screen):
        """Takes the arguments of `make_atari`, validated."""
        self._is_grey = screen.is_grey
        self._pool = envpool.make(
            f"{game}-v5",
            env_type="gymnasium",
            num_envs=len(seeds),
            # A list gives each environment its own generator, whatever its place in the pool.
            seed=seeds.tolist(),
            max_episode_steps=_NEVER,
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
            # Either of these two would act in the game between the agent's steps.
            episodic_life=False,
            use_fire_reset=False,
        )
        self.num_envs = len(seeds)
        num_actions = int(self._pool.action_space.n)
        self.spec = discrete_spec(screen.frame_shape, num_actions)
        self.num_valid_actions = np.full(self.num_envs, num_actions, np.int32)
        self.description = {
            "game": game,
            "backend": "envpool",
            "backend_version": envpool.__version__,
            "emulator": f"ALE as built into envpool {envpool.__version__}",
            "frame_skip": 4,
            "frame_pooling": "maximum of the last two emulator frames, then resize",
            **screen.describe(),
            "noops_at_reset": [1, screen.most_noops],
            "fire_at_reset": False,
            "sticky_action_probability": 0.0,
            "action_set": f"minimal ({num_actions} actions)",
        }
        self._last: TimeStep | None = None

    def reset(self, mask: np.ndarray | None = None) -> TimeStep:
        """See `VectorEnvironment.reset`."""
        mask = validate_mask(mask, self.num_envs, first=self._last is None)
        # Results of a partial reset come in the order of the ids. A reset also clears the pool's
        # flag of an ended game, so the next step does not restart the game once more.
        observation, info = self._pool.reset(np.flatnonzero(mask).astype(np.int32))
        self._last = after_reset(self._last, mask, self._frames(observation), info["lives"])
        return self._last

    def send(self, actions: np.ndarray) -> None:
        """See `VectorEnvironment.send`."""
        validate_actions(actions, self.spec, self.num_valid_actions)
        self._pool.send(actions)

    def recv(self) -> TimeStep:
        """See `VectorEnvironment.recv`."""
        observation, reward, terminated, truncated, info = self._pool.recv()
        self._last = TimeStep(
            self._frames(observation), reward, info["lives"], terminated, truncated
        )
        return self._last

    def _frames(self, observation: np.ndarray) -> np.ndarray:
        """`[R, *frame_shape]`; the pool has colours before rows."""
        if self._is_grey:
            return observation[:, 0]
        return np.ascontiguousarray(halve(np.moveaxis(observation, 1, -1)))

    def close(self) -> None:
        """Ends the environments and their threads."""
        # The pool joins its threads when its last reference is dropped.
        self._pool = None
