"""Atari through the vector environment of ale_py, the second backend."""

import re

import ale_py
import numpy as np
from gymnasium.vector import AutoresetMode

from rcrl_jax.envs.atari import Screen, halve
from rcrl_jax.envs.protocol import (
    TimeStep,
    VectorEnvironment,
    after_reset,
    discrete_spec,
    validate_actions,
    validate_mask,
)

# Emulator frames; never reached. `agent_view` limits the length of a game.
_NEVER = 2**30


class AleAtari(VectorEnvironment):
    """R copies of one game. See `rcrl_jax.envs.atari.make_atari`.

    ale_py allocates a new buffer for each result, so frames are not copied here.
    """

    def __init__(self, game: str, seeds: np.ndarray, screen: Screen):
        """Takes the arguments of `make_atari`, validated."""
        self._is_grey = screen.is_grey
        self._vector = ale_py.AtariVectorEnv(
            # ROM names are in snake_case: 'UpNDown' is 'up_n_down'.
            re.sub(r"(?<!^)(?=[A-Z])", "_", game).lower(),
            len(seeds),
            # The C++ side has no mode without automatic resets. This one resets in the first step
            # after the end of a game, unless the game was restarted before, as it always is here.
            autoreset_mode=AutoresetMode.NEXT_STEP,
            max_num_frames_per_episode=_NEVER,
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
        self._seeds = seeds
        self.num_envs = len(seeds)
        num_actions = int(self._vector.single_action_space.n)
        self.spec = discrete_spec(screen.frame_shape, num_actions)
        self.num_valid_actions = np.full(self.num_envs, num_actions, np.int32)
        self.description = {
            "game": game,
            "backend": "ale",
            "backend_version": ale_py.__version__,
            "emulator": f"ALE {ale_py.__version__}",
            "frame_skip": 4,
            "frame_pooling": "maximum of the last two emulator frames, then resize",
            **screen.describe(),
            "noops_at_reset": [0, screen.most_noops - 1],
            "fire_at_reset": False,
            "sticky_action_probability": 0.0,
            "action_set": f"minimal ({num_actions} actions)",
        }
        self._last: TimeStep | None = None

    def reset(self, mask: np.ndarray | None = None) -> TimeStep:
        """See `VectorEnvironment.reset`."""
        mask = validate_mask(mask, self.num_envs, first=self._last is None)
        # Seeds start the generators once; later games draw further numbers from them.
        seeds = self._seeds if self._last is None else None
        observation, info = self._vector.reset(seed=seeds, options={"reset_mask": mask})
        frames = self._frames(observation[mask])
        self._last = after_reset(self._last, mask, frames, info["lives"][mask])
        return self._last

    def send(self, actions: np.ndarray) -> None:
        """See `VectorEnvironment.send`."""
        validate_actions(actions, self.spec, self.num_valid_actions)
        self._vector.send(actions)

    def recv(self) -> TimeStep:
        """See `VectorEnvironment.recv`."""
        observation, reward, terminated, truncated, info = self._vector.recv()
        self._last = TimeStep(
            self._frames(observation), reward.astype(np.float32), info["lives"], terminated,
            truncated,
        )  # fmt: skip
        return self._last

    def _frames(self, observation: np.ndarray) -> np.ndarray:
        """`[R, *frame_shape]`."""
        return observation[:, 0] if self._is_grey else halve(observation[:, 0])

    def close(self) -> None:
        """Ends the environments and their threads."""
        # The C++ side joins its threads when its last reference is dropped.
        self._vector = None
