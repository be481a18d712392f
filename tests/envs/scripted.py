"""A vector of games whose rewards, lives and ends are written out."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rcrl_jax.envs.protocol import (
    TimeStep,
    VectorEnvironment,
    after_reset,
    discrete_spec,
    validate_mask,
)


class Event(NamedTuple):
    """Result of one scripted step."""

    reward: float
    lives: int
    truncated: bool = False


class Game(NamedTuple):
    """A scripted game: it is over with its last event, unless that event is a truncation."""

    lives: int
    events: list[Event]


class ScriptedEnvironment(VectorEnvironment):
    """Plays a list of games, over and over, in each environment."""

    def __init__(
        self, scripts: list[list[Game]], frame_of: Callable[[int, int, int, int], np.ndarray]
    ):
        """`frame_of(row, game, t, shown)` is the frame that a row shows as its `shown`-th."""
        self.scripts, self.frame_of = scripts, frame_of
        self.num_envs = len(scripts)
        self.spec = discrete_spec(frame_of(0, 0, 0, 0).shape, 3)
        self.num_valid_actions = np.full(self.num_envs, 3, np.int32)
        self.description = {"backend": "scripted"}
        self.game = np.full(self.num_envs, -1)
        self.t, self.shown = np.zeros((2, self.num_envs), int)
        self.needs_reset = np.ones(self.num_envs, bool)
        self.last, self.retired, self.is_closed = None, None, False

    def reset(self, mask=None):
        mask = validate_mask(mask, self.num_envs, first=self.last is None)
        self.game[mask] += 1
        self.t[mask] = 0
        self.needs_reset[mask] = False
        rows = np.flatnonzero(mask)
        lives = np.array([self.current(r).lives for r in rows], np.int32)
        self.last = after_reset(self.last, mask, self.next_frames(rows), lives)
        return self.last

    def send(self, actions):
        assert not self.needs_reset.any(), "stepped an environment whose game had ended"
        self.t += 1

    def recv(self):
        rows = range(self.num_envs)
        events = [self.current(r).events[self.t[r] - 1] for r in rows]
        over = np.array([self.t[r] == len(self.current(r).events) for r in rows])
        truncated = np.array([event.truncated for event in events])
        self.needs_reset = over | truncated
        self.last = TimeStep(
            frame=self.next_frames(rows),
            reward=np.array([event.reward for event in events], np.float32),
            lives=np.array([event.lives for event in events], np.int32),
            terminated=over & ~truncated,
            truncated=truncated,
        )
        return self.last

    def retire(self, mask):
        self.retired = mask.tolist()

    def close(self):
        self.is_closed = True

    def current(self, r: int) -> Game:
        return self.scripts[r][self.game[r] % len(self.scripts[r])]

    def next_frames(self, rows) -> np.ndarray:
        self.shown[rows] += 1
        return np.stack([self.frame_of(r, self.game[r], self.t[r], self.shown[r]) for r in rows])
