"""Uniform numbers as a pure function of (seed, stream, counter).

Every run draws from its own seed, and one vectorised call makes the draws of all runs. Stateful
generators would need a Python loop over runs. A draw depends on its run's seed and counter alone:
samples are independent of fleet composition, and a checkpoint keeps nothing but the counter.
"""

import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio, odd


def mix(x: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64 (Steele, Lea and Flood, 2014): a bijection of 64-bit words."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def uniform(seeds: np.ndarray, stream: int, counters: np.ndarray, size: int) -> np.ndarray:
    """Uniform numbers in [0, 1), one independent row per run.

    Args:
      seeds: `[R]` integers, one per run.
      stream: separates draws of one counter that serve different purposes; at least 0.
      counters: `[R]` integers, the number of the draw; equal counters give equal numbers.
      size: numbers per run.

    Returns:
      `[R, size] float64`.
    """
    with np.errstate(over="ignore"):  # the arithmetic is modulo 2^64 by design
        key = mix(np.asarray(seeds, np.uint64) + GOLDEN * np.uint64(stream + 1))
        key = mix(key + GOLDEN * (np.asarray(counters, np.uint64) + np.uint64(1)))
        words = mix(key[:, None] + GOLDEN * np.arange(1, size + 1, dtype=np.uint64))
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


class Streams:
    """The uniform numbers of R runs, with a counter for each.

    Attributes:
      counters: `[R] int64`, batches drawn so far; `SegmentReplay.sample` adds one.
    """

    def __init__(self, seeds: np.ndarray) -> None:
        """Starts all counters at zero; `seeds [R]` are the runs'."""
        self._seeds = np.asarray(seeds)
        self.counters = np.zeros(len(self._seeds), np.int64)

    def uniform(self, stream: int, size: int) -> np.ndarray:
        """Numbers `[R, size]` at the current counters; see `uniform`."""
        return uniform(self._seeds, stream, self.counters, size)
