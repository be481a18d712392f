"""Undiscounted returns of stored transitions, to the end of the episode or to the present."""

import numpy as np


class ReturnTable:
    """Undiscounted returns of the live transitions of R runs.

    The table keeps the reward that an episode gained before each transition. A return is the
    total of the episode minus this reward, so one new reward changes the returns of all earlier
    transitions of the episode. Episodes are numbered in order. C live slots belong to at most C
    episodes, and one more may have begun, so the totals are a ring of C + 1 entries.
    """

    def __init__(self, num_runs: int, capacity: int) -> None:
        """Makes an empty table for `capacity` slots a run."""
        self._entries = capacity + 1
        self._rows = np.arange(num_runs)
        self._gained = np.zeros((num_runs, capacity), np.float64)  # before the slot's transition
        self._episode = np.zeros((num_runs, capacity), np.int64)  # number of the slot's episode
        self._totals = np.zeros((num_runs, self._entries), np.float64)
        self._number = np.zeros(num_runs, np.int64)  # of the open episode

    def add(self, slot: np.ndarray, reward: np.ndarray, ended: np.ndarray) -> None:
        """Appends one transition a run.

        Args:
          slot: `[R]`, slots of the transitions in the ring.
          reward: `[R]`, their rewards.
          ended: `[R] bool`, whether they are the last of their episodes.
        """
        rows, entry = self._rows, self._number % self._entries
        self._gained[rows, slot] = self._totals[rows, entry]
        self._episode[rows, slot] = self._number
        self._totals[rows, entry] += reward
        self._number = self._number + ended
        self._totals[rows[ended], self._number[ended] % self._entries] = 0.0

    def returns(self, slots: np.ndarray) -> np.ndarray:
        """Returns `[R, N]` of the transitions at `slots [R, N]`."""
        rows = self._rows[:, None]
        totals = self._totals[rows, self._episode[rows, slots] % self._entries]
        return totals - self._gained[rows, slots]
