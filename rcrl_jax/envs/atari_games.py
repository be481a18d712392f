"""What the two Atari backends share: how games are shown, and the vector of one game's copies."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rcrl_jax.envs.protocol import (
    TimeStep,
    VectorEnvironment,
    after_reset,
    discrete_spec,
    validate_actions,
    validate_mask,
)

NEVER = 2**30
"""Steps or emulator frames that no game reaches; `agent_view` limits the length of a game."""


class Screen(NamedTuple):
    """How games are shown, and how they start."""

    frame_shape: tuple[int, ...] = (84, 84)  # grey, or with a third axis of 3 colours
    most_noops: int = 30  # n: a game starts after 0 to n - 1 (ale) or 1 to n (envpool) no-ops
    halved: bool = True  # in colour: whether a pixel is the mean of 2 x 2 of the drawn screen

    @property
    def is_grey(self) -> bool:
        """Whether frames have no axis of colours."""
        return len(self.frame_shape) == 2

    @property
    def drawn(self) -> tuple[int, int]:
        """Height and width to which a backend averages the console's screen."""
        height, width = self.frame_shape[:2]
        return (height, width) if self.is_grey or not self.halved else (2 * height, 2 * width)

    def read(self, screens: np.ndarray) -> np.ndarray:
        """The frames of screens drawn in colour, `[R, *drawn, 3] uint8`."""
        return halve(screens) if self.halved else screens

    def describe(self) -> dict[str, str]:
        """What a manifest says about colours and sizes."""
        size = f"{self.frame_shape[0]}x{self.frame_shape[1]}"
        if self.is_grey:
            return {"grayscale": "palette luminance", "resize": f"{size}, area averaging"}
        means = ", means of 2x2 pixels, truncated" if self.halved else ""
        return {"colours": "RGB", "resize": f"{size}{means}"}


WATCHED = (210, 160, 3)
"""The console's own screen, with the colours of its palette."""


def halve(screens: np.ndarray) -> np.ndarray:
    """Means of 2 x 2 pixels, truncated, as in SimPLe's code: `[R, 2H, 2W, 3] -> [R, H, W, 3]`."""
    rows = screens[:, ::2].astype(np.uint16) + screens[:, 1::2]
    return ((rows[:, :, ::2] + rows[:, :, 1::2]) // 4).astype(np.uint8)


class AtariGames(VectorEnvironment):
    """R copies of one game. See `rcrl_jax.envs.atari.make_atari`.

    A backend's `send` hands validated actions on; its `recv` returns observation, reward,
    terminated, truncated and information, as Gymnasium's vectors do.
    """

    def __init__(
        self,
        vector: Any,
        game: str,
        seeds: np.ndarray,
        screen: Screen,
        num_actions: int,
        **description: Any,
    ):
        """Describes the games.

        Args:
            vector: the backend's vector of environments.
            game: its name.
            seeds: `[R]`, of its copies.
            screen: how games are shown.
            num_actions: of the game's minimal action set.
            **description: what the backend adds to the manifest: backend, versions, no-ops.
        """
        self._vector, self._game, self._seeds, self._screen = vector, game, seeds, screen
        self.num_envs = len(seeds)
        self.spec = discrete_spec(screen.frame_shape, num_actions)
        self.num_valid_actions = np.full(self.num_envs, num_actions, np.int32)
        self.description = {
            "game": game,
            **description,
            "frame_skip": 4,
            "frame_pooling": "maximum of the last two emulator frames, then resize",
            **screen.describe(),
            "fire_at_reset": False,
            "sticky_action_probability": 0.0,
            "action_set": f"minimal ({num_actions} actions)",
        }
        self._last: TimeStep | None = None

    def reset(self, mask: np.ndarray | None = None) -> TimeStep:
        """See `VectorEnvironment.reset`."""
        mask = validate_mask(mask, self.num_envs, first=self._last is None)
        observation, lives = self._restart(mask)
        self._last = after_reset(self._last, mask, self._frames(observation), lives)
        return self._last

    def _restart(self, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Observations and lives of the games that restart, in their order."""
        raise NotImplementedError

    def _frames(self, observation: np.ndarray) -> np.ndarray:
        """`[n, *frame_shape]`, of the backend's observations."""
        raise NotImplementedError

    def send(self, actions: np.ndarray) -> None:
        """See `VectorEnvironment.send`."""
        validate_actions(actions, self.spec, self.num_valid_actions)
        self._vector.send(actions)

    def recv(self) -> TimeStep:
        """See `VectorEnvironment.recv`."""
        observation, reward, terminated, truncated, info = self._vector.recv()
        self._last = TimeStep(
            self._frames(observation), reward.astype(np.float32, copy=False), info["lives"],
            terminated, truncated,
        )  # fmt: skip
        return self._last

    def shows(self, row: int) -> Callable[[], VectorEnvironment]:
        """The console's screen in colour. See `VectorEnvironment.shows`."""
        screen = Screen(WATCHED, self._screen.most_noops, halved=False)
        return functools.partial(type(self), self._game, self._seeds[row : row + 1], screen)

    def close(self) -> None:
        """Ends the environments and their threads."""
        # The C++ side joins its threads when its last reference is dropped.
        self._vector = None
