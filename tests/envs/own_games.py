"""Small games with gymnasium's interface, for tests of games of one's own."""

import os

import gymnasium
import numpy as np
from gymnasium import spaces


class Corridor(gymnasium.Env):
    """A point in the top row of a 10x10 grid moves left or right; the right end is worth 1.

    Two channels of zeros and ones: the point, and the end. The start is drawn.
    """

    action_space = spaces.Discrete(2, start=3)  # 3 left, 4 right
    observation_space = spaces.Box(0, 1, (10, 10, 2), np.uint8)

    def __init__(self):
        """Makes the array of all observations, which each step changes."""
        self.grid = np.zeros((10, 10, 2), np.uint8)
        self.grid[0, 9, 1] = 1

    def _show(self):
        self.grid[..., 0] = 0
        self.grid[0, self.at, 0] = 1
        return self.grid

    def reset(self, seed=None, options=None):
        """Begins at one of the columns 0 to 4."""
        super().reset(seed=seed)
        self.at = int(self.np_random.integers(5))
        return self._show(), {}

    def step(self, action):
        """Moves by one column."""
        assert action in (3, 4), action
        self.at = max(self.at + (1 if action == 4 else -1), 0)
        done = self.at == 9
        return self._show(), float(done), done, False, {}


def make():
    """A corridor that is cut after 30 steps."""
    return gymnasium.wrappers.TimeLimit(Corridor(), 30)


class Drifting(Corridor):
    """A corridor whose start follows no seed."""

    started = 0

    def reset(self, seed=None, options=None):
        """Begins at the next column."""
        Drifting.started += 1
        self.at = Drifting.started % 9
        return self._show(), {}


class Shared(Corridor):
    """A corridor with slips that all copies draw from one generator, which each reset seeds."""

    def reset(self, seed=None, options=None):
        """Begins at one of the columns 0 to 4."""
        if seed is not None:
            Shared.random = np.random.default_rng(seed)
        self.at = int(Shared.random.integers(5))
        return self._show(), {}

    def step(self, action):
        """Moves by one column, or back."""
        return super().step(3 if Shared.random.random() < 0.2 else action)


class Reseeded(Corridor):
    """Random grids without an end; each reset makes a generator, so later games follow no seed."""

    def _show(self):
        return self.random.integers(2, size=(10, 10, 2), dtype=np.uint8)

    def reset(self, seed=None, options=None):
        """Makes a generator."""
        self.random = np.random.default_rng(seed)
        return self._show(), {}

    def step(self, action):
        """Draws the next grid."""
        return self._show(), 0.0, False, False, {}


ONE = Corridor()


def same():
    """One corridor for all callers."""
    return gymnasium.wrappers.TimeLimit(ONE, 30)


class NoInfo(Corridor):
    """A corridor whose reset returns the observation alone."""

    def reset(self, seed=None, options=None):
        """Begins at one of the columns 0 to 4."""
        return super().reset(seed=seed)[0]


class FourValues(Corridor):
    """A corridor whose step returns what gym's environments did."""

    def step(self, action):
        """Moves by one column."""
        observation, reward, done, _, about = super().step(action)
        return observation, reward, done, about


class Flat(Corridor):
    """A corridor that shows another shape than its observation space says."""

    def _show(self):
        return super()._show().reshape(-1)


def draw_byte():
    """A number from the operating system, which follows no seed."""
    return os.urandom(1)[0]


class Entropic(Corridor):
    """A corridor whose starts and slips follow no seed; cut at some of its steps."""

    cut_at = ()

    def __init__(self):
        """Has made no step."""
        super().__init__()
        self.steps = 0

    def reset(self, seed=None, options=None):
        """Begins at one of the columns 0 to 4."""
        self.at = draw_byte() % 5
        return self._show(), {}

    def step(self, action):
        """Moves by one column, or slips back by two."""
        self.steps += 1
        shown, reward, done, _, about = super().step(3 if draw_byte() < 20 else action)
        return shown, reward, done, self.steps in self.cut_at, about


class Picture(Corridor):
    """A corridor in colour, 10 pixels a cell."""

    observation_space = spaces.Box(0, 255, (100, 100, 3), np.uint8)

    def _show(self):
        super()._show()
        cells = np.stack([255 * self.grid[..., 0], 255 * self.grid[..., 1], 0 * self.grid[..., 0]])
        return cells.transpose(1, 2, 0).repeat(10, axis=0).repeat(10, axis=1)


class Symbols(Corridor):
    """A corridor whose 7x7x3 numbers stand for objects."""

    observation_space = spaces.Box(0, 255, (7, 7, 3), np.uint8)

    def _show(self):
        return np.full((7, 7, 3), self.at, np.uint8)


class Board(Corridor):
    """A grid of zeros and ones that is too large for bits, and no image."""

    observation_space = spaces.Box(0, 1, (20, 20), np.uint8)


class Failing(Corridor):
    """A corridor that ends with an error after 20 games."""

    def __init__(self):
        """Counts games."""
        super().__init__()
        self.games = 0

    def reset(self, seed=None, options=None):
        """Counts games."""
        self.games += 1
        return super().reset(seed=seed)

    def step(self, action):
        """Fails after 20 games."""
        if self.games > 20:  # more than a trial plays
            raise KeyError("no such door")
        return super().step(action)


class Words(Corridor):
    """Observations that no agent reads."""

    observation_space = spaces.Dict({"image": Corridor.observation_space})


def nothing():
    """No environment."""
    return 3


def broken():
    """Cannot be made."""
    raise OSError("no display")


def draw(render_mode=None):
    """A corridor that draws the point as one bright column."""

    class Drawn(Corridor):
        def render(self):
            picture = np.zeros((20, 30, 3), np.uint8)
            picture[:, 3 * self.at : 3 * self.at + 3] = 255
            return picture if render_mode == "rgb_array" else None

    return gymnasium.wrappers.TimeLimit(Drawn(), 30)


def draw_small(render_mode=None):
    """A corridor that draws an RGB picture of 8x8 pixels."""

    class Drawn(Corridor):
        def render(self):
            return np.full((8, 8, 3), (30, 60, 90), np.uint8)

    return Drawn()
