"""Uniform numbers as a pure function of (seed, stream, counter).

Every run of a fleet draws from its own stream, and all draws of a fleet are made in one
vectorised call: stateful generators would need a Python loop over runs. A draw depends on its
own run's seed and counter alone, so a run's samples do not change with its company, and a
counter is all that a checkpoint keeps.
"""

import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio, odd


def mix(x: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64 (Steele, Lea and Flood, 2014): a bijection of 64-bit words."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def uniform(seeds: np.ndarray, stream: int, counters: np.ndarray, size: int) -> np.ndarray:
    """Uniform numbers in [0, 1), one independent row a run.

    Args:
      seeds: `[R]` integers, one a run.
      stream: separates the uses of one counter; at least 0.
      counters: `[R]` integers, how many calls each run has made on this stream.
      size: numbers a run.

    Returns:
      `[R, size] float64`.
    """
    with np.errstate(over="ignore"):  # the arithmetic is modulo 2^64 by design
        key = mix(np.asarray(seeds, np.uint64) + GOLDEN * np.uint64(stream + 1))
        key = mix(key + GOLDEN * (np.asarray(counters, np.uint64) + np.uint64(1)))
        words = mix(key[:, None] + GOLDEN * np.arange(1, size + 1, dtype=np.uint64))
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
