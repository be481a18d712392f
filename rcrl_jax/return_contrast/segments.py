"""Segments: parts of one episode whose state-action pairs count as having the same return."""

import numpy as np


class SegmentTable:
    """First and last transition of every live segment, for R runs.

    A segment ends with the transition that takes its accumulated reward further than `tolerance`
    from zero, or with its episode. At tolerance 0, as on Atari, it ends with the first reward, and
    all its pairs have the same undiscounted return (RCRL, appendix C.1). At a higher tolerance, as
    on DMControl, the returns of its pairs differ by at most the tolerance, if no reward is negative
    (C.2). Rewards are those of agent steps, summed over the action repeat.

    Segments are numbered in the order in which they open. A run of C live transitions has at
    most C live segments, so the table is a ring of C entries.
    """

    def __init__(self, num_runs: int, capacity: int, tolerance: float) -> None:
        """Makes an empty table for `capacity` transitions a run."""
        self._capacity = capacity
        self._tolerance = tolerance
        # First and last transition of each entry lie together: both are read at once.
        self._bounds = np.zeros((num_runs * capacity, 2), np.int64)
        self._starts = np.arange(num_runs) * capacity
        self._number = np.zeros(num_runs, np.int64)  # of the open segment
        self._is_new = np.ones(num_runs, bool)  # the next transition opens a segment
        self._accumulated = np.zeros(num_runs, np.float64)

    def add(self, index: np.ndarray, reward: np.ndarray, ended: np.ndarray) -> np.ndarray:
        """Appends one transition a run.

        Args:
          index: `[R]`, the transitions' indices, growing with every call.
          reward: `[R]`, their rewards.
          ended: `[R] bool`, whether they are the last of their episodes.

        Returns:
          `[R] int64`, the numbers of the segments they belong to, counted from 0.
        """
        number = self._number
        at = self._starts + number % self._capacity
        new = np.flatnonzero(self._is_new)
        self._bounds[at[new], 0] = index[new]
        self._bounds[at, 1] = index
        self._accumulated += reward
        self._is_new = (np.abs(self._accumulated) > self._tolerance) | ended
        self._accumulated = np.where(self._is_new, 0.0, self._accumulated)
        self._number = number + self._is_new
        return number

    def bounds(self, entry: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """First and last transition of segments.

        Args:
          entry: `[R, N]`, the segments' numbers modulo the capacity.

        Returns:
          Two arrays `[R, N]`, both inclusive.
        """
        bounds = self._bounds.take(entry + self._starts[:, None], axis=0)
        return bounds[..., 0], bounds[..., 1]

    def lengths(self, run: int, oldest: int) -> np.ndarray:
        """Lengths of one run's segments from transition `oldest` on, `[n]` in their order."""
        end = self._number[run] + (not self._is_new[run])
        entry = np.arange(max(end - self._capacity, 0), end) % self._capacity
        first, last = self._bounds[self._starts[run] + entry].T
        lengths = last + 1 - np.maximum(first, oldest)
        return lengths[lengths > 0]
