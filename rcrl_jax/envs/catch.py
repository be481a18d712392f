"""Catch, a small pixel game in which agents learn within minutes.

A ball falls one row a step in a 7x7 grid; the paddle in the bottom row moves left, stays or moves
right. The game is over when the ball reaches the bottom: reward +1 if the paddle is there, else -1.
Every game takes 6 steps, and every column can be reached in time.

Continuing Catch never ends, like the learned games of SimPLe. One step after a catch or a miss, a
new ball is in the top row. Its column is a function of the old ball's column, because a model that
predicts the most likely pixels cannot predict a random column. Frames are in colour.
"""

from collections.abc import Sequence

import numpy as np

from rcrl_jax import counter_random
from rcrl_jax.envs.protocol import (
    SteppedInSend,
    TimeStep,
    VectorEnvironment,
    after_reset,
    discrete_spec,
    validate_actions,
    validate_mask,
    validate_seeds,
)

GRID = 7
# Cells of 10x10 pixels: 70 of the 84 pixels, since the data-efficient encoder (5x5 stride 5 twice,
# no padding) sees only the top-left 75x75.
_CELL = 10
# Continuing Catch: columns between one ball and the next; coprime with 7, so all columns occur.
_COLUMNS_ON = 3
_BALL, _PADDLE, _BACKGROUND = range(3)  # red, green and blue


class _Catch(SteppedInSend):
    """R games of Catch; see `make_catch`."""

    _ends = True  # whether the game ends when the ball is down

    def __init__(self, seeds: np.ndarray):
        self.num_envs = len(seeds)
        self.spec = discrete_spec((84, 84), 3)
        self.num_valid_actions = np.full(self.num_envs, 3, np.int32)
        self.description = {
            "game": "Catch",
            "backend": "catch",
            "grid": [GRID, GRID],
            "action_set": "left, stay, right",
        }
        self._seeds = seeds.astype(np.uint64)
        self._games = np.zeros(self.num_envs, np.uint64)  # games started so far
        self._ball_row = np.zeros(self.num_envs, np.int64)
        self._ball_column = np.zeros(self.num_envs, np.int64)
        self._paddle = np.zeros(self.num_envs, np.int64)

    def reset(self, mask: np.ndarray | None = None) -> TimeStep:
        """See `VectorEnvironment.reset`."""
        mask = validate_mask(mask, self.num_envs, first=self._last is None)
        # A function of (seed, game) without a state, so one call draws for all environments.
        words = (self._seeds << np.uint64(32)) + self._games + counter_random.GOLDEN
        column = counter_random.mix(words) % np.uint64(GRID)
        self._ball_column[mask] = column[mask].astype(np.int64)
        self._ball_row[mask] = 0
        self._paddle[mask] = GRID // 2
        self._games[mask] += np.uint64(1)
        lives = np.zeros(self.num_envs, np.int32)
        self._last = after_reset(self._last, mask, self._render()[mask], lives[mask])
        return self._last

    def send(self, actions: np.ndarray) -> None:
        """See `VectorEnvironment.send`."""
        validate_actions(actions, self.spec, self.num_valid_actions)
        self._paddle = np.clip(self._paddle + actions - 1, 0, GRID - 1)
        self._move_balls()
        is_down = self._ball_row == GRID - 1
        caught = self._ball_column == self._paddle
        self._last = TimeStep(
            frame=self._render(),
            reward=np.where(is_down, np.where(caught, 1, -1), 0).astype(np.float32),
            lives=np.zeros(self.num_envs, np.int32),
            terminated=is_down & self._ends,
            truncated=np.zeros(self.num_envs, bool),
        )

    def _move_balls(self) -> None:
        self._ball_row = self._ball_row + 1

    def _render(self) -> np.ndarray:
        """[R, 84, 84] uint8: ball and paddle white on black."""
        rows = np.arange(self.num_envs)
        grid = np.zeros((self.num_envs, GRID, GRID), np.uint8)
        grid[rows, self._ball_row, self._ball_column] = 255
        grid[rows, GRID - 1, self._paddle] = 255
        frame = np.zeros((self.num_envs, 84, 84), np.uint8)
        frame[:, : GRID * _CELL, : GRID * _CELL] = grid.repeat(_CELL, axis=1).repeat(_CELL, axis=2)
        return frame


class _ContinuingCatch(_Catch):
    """R games of continuing Catch; see `make_continuing_catch`.

    A ball is in the top row at times 0, 7, 14, ... and in the bottom row, with its reward, at times
    6, 13, 20, ...: every ball can be reached in time.
    """

    _ends = False

    def __init__(self, seeds: np.ndarray, cell: int):
        super().__init__(seeds)
        self.spec = discrete_spec((GRID * cell, GRID * cell, 3), 3)
        self.description |= {"game": "ContinuingCatch", "cell": cell, "columns_on": _COLUMNS_ON}
        self._cell = cell

    def _move_balls(self) -> None:
        was_down = self._ball_row == GRID - 1
        self._ball_column = (self._ball_column + _COLUMNS_ON * was_down) % GRID
        self._ball_row = np.where(was_down, 0, self._ball_row + 1)

    def _render(self) -> np.ndarray:
        """[R, 7 cell, 7 cell, 3] uint8: ball red, paddle green, everything dark blue."""
        rows = np.arange(self.num_envs)
        grid = np.zeros((self.num_envs, GRID, GRID, 3), np.uint8)
        grid[..., _BACKGROUND] = 64
        grid[rows, self._ball_row, self._ball_column, _BALL] = 255
        grid[rows, GRID - 1, self._paddle, _PADDLE] = 255
        return grid.repeat(self._cell, axis=1).repeat(self._cell, axis=2)


def make_catch(seeds: Sequence[int]) -> VectorEnvironment:
    """Makes R = len(seeds) games of Catch; a seed, in [0, 2**31), fixes the columns of the balls.

    Actions: 0 left, 1 stay, 2 right.

    Raises:
        ValueError: a bad seed.
    """
    return _Catch(validate_seeds(seeds))


def make_continuing_catch(seeds: Sequence[int], cell: int) -> VectorEnvironment:
    """Makes R = len(seeds) games of continuing Catch; a seed fixes the column of the first ball.

    Args:
        seeds: [R], in [0, 2**31).
        cell: side of a cell of the 7x7 grid [pixels].

    Raises:
        ValueError: a bad seed.
    """
    return _ContinuingCatch(validate_seeds(seeds), cell)
