"""Atari through the vector environment of ale_py, the second backend."""

import re

import ale_py
import numpy as np
from gymnasium.vector import AutoresetMode

from rcrl_jax.envs.atari_games import NEVER, AtariGames, Screen


class AleAtari(AtariGames):
    """R copies of one game.

    ale_py allocates a new buffer for each result, so frames are not copied here.
    """

    def __init__(self, game: str, seeds: np.ndarray, screen: Screen):
        """Takes the arguments of `make_atari`, validated."""
        vector = ale_py.AtariVectorEnv(
            # ROM names are in snake_case: 'UpNDown' is 'up_n_down'.
            re.sub(r"(?<!^)(?=[A-Z])", "_", game).lower(),
            len(seeds),
            # The C++ side has no mode without automatic resets. This mode restarts an ended game in
            # the next step, unless `reset` has restarted it. We always call `reset`.
            autoreset_mode=AutoresetMode.NEXT_STEP,
            max_num_frames_per_episode=NEVER,
            stack_num=1,
            frameskip=4,
            maxpool=True,
            noop_max=screen.most_noops,
            img_height=screen.drawn[0],
            img_width=screen.drawn[1],
            grayscale=screen.is_grey,
            full_action_space=False,
            repeat_action_probability=0.0,
            reward_clipping=False,
            # Each of these would change or end the game between the agent's steps.
            episodic_life=False,
            life_loss_info=False,
            use_fire_reset=False,
        )
        super().__init__(
            vector,
            game,
            seeds,
            screen,
            int(vector.single_action_space.n),
            backend="ale",
            backend_version=ale_py.__version__,
            emulator=f"ALE {ale_py.__version__}",
            noops_at_reset=[0, screen.most_noops - 1],
        )

    def _restart(self, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        # The seeds are set once. Later games draw further numbers from the same generators.
        seeds = self._seeds if self._last is None else None
        observation, info = self._vector.reset(seed=seeds, options={"reset_mask": mask})
        return observation[mask], info["lives"][mask]

    def _frames(self, observation: np.ndarray) -> np.ndarray:
        shown = observation[:, 0]
        return shown if self._screen.is_grey else self._screen.read(shown)
