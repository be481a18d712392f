"""Counter-based uniform numbers: shape of the distribution, independence, reproducibility."""

import numpy as np
import pytest
from scipy import stats

from rcrl_jax.counter_random import uniform

SEEDS = np.arange(40)
SIZE = 2000


def table(**changes) -> np.ndarray:
    """`[40, 2000]` numbers of 40 runs."""
    arguments = {"seeds": SEEDS, "stream": 0, "counters": np.zeros(40, int), "size": SIZE}
    return uniform(**(arguments | changes))


def along(axis: str) -> np.ndarray:
    """`[40, 2000]`: rows that differ in seed, in counter or in stream alone, from small values."""
    if axis == "seed":
        return table()
    if axis == "counter":
        return table(seeds=np.full(40, 7), counters=np.arange(40))
    one = np.ones(1, int)
    return np.concatenate([uniform(7 * one, stream, 3 * one, SIZE) for stream in range(40)])


def kolmogorov_smirnov(rows: np.ndarray) -> np.ndarray:
    """The p-value of `stats.kstest(row, "uniform")` for each row, faster."""
    ordered, size = np.sort(rows, axis=1), rows.shape[1]
    steps = np.arange(size + 1) / size
    farthest = np.maximum(steps[1:] - ordered, ordered - steps[:-1]).max(axis=1)
    p = stats.kstwo.sf(farthest, size)
    assert p[0] == pytest.approx(stats.kstest(rows[0], "uniform").pvalue, rel=1e-9)
    return p


@pytest.mark.parametrize("axis", ["seed", "counter", "stream"])
def test_uniform_and_independent_along(axis):
    u = along(axis)
    assert u.dtype == np.float64
    assert u.min() >= 0.0
    assert u.max() < 1.0
    cells = np.histogram(u, bins=100, range=(0, 1))[0]
    assert stats.chisquare(cells).pvalue > 1e-3
    for rows in (u, u.T):  # the first numbers of 40 streams are as uniform as one stream's
        assert stats.kstest(kolmogorov_smirnov(rows), "uniform").pvalue > 1e-3
    # Pairs of neighbours, in either direction, fill the square evenly.
    for first, second in ((u[:-1], u[1:]), (u[:, :-1], u[:, 1:])):
        square = np.histogram2d(first.ravel(), second.ravel(), bins=10, range=[(0, 1)] * 2)[0]
        assert stats.chisquare(square.ravel()).pvalue > 1e-3
    correlation = np.corrcoef(u)[np.triu_indices(40, 1)] * np.sqrt(SIZE)
    assert np.abs(correlation).max() < 5.0
    assert np.std(correlation) == pytest.approx(1.0, abs=0.1)


def test_seed_stream_and_counter_are_not_exchangeable():
    def one(seed, stream, counter):
        return uniform(np.array([seed]), stream, np.array([counter]), 1)[0, 0]

    grid = {one(s, t, c) for s in range(12) for t in range(6) for c in range(12)}
    assert len(grid) == 12 * 6 * 12


def test_a_row_is_independent_of_fleet_composition():
    counters = np.arange(40) * 3
    everyone = uniform(SEEDS, 2, counters, 9)
    for r in (0, 17, 39):
        np.testing.assert_array_equal(uniform(SEEDS[[r]], 2, counters[[r]], 9)[0], everyone[r])
    np.testing.assert_array_equal(uniform(SEEDS, 2, counters, 4), everyone[:, :4])


def test_values_equal_those_of_python_integers():
    """These numbers must never change: a resumed run continues the draws of the first one."""
    u = uniform(np.array([0, 123, 2**31]), 1, np.array([0, 1, 100_000]), 2)
    expected = [
        [one_number(seed, 1, counter, i) for i in (1, 2)]
        for seed, counter in ((0, 0), (123, 1), (2**31, 100_000))
    ]
    np.testing.assert_array_equal(u, expected)


def one_number(seed: int, stream: int, counter: int, i: int) -> float:
    """The same number with Python's own integers."""
    mask, golden = 2**64 - 1, 0x9E3779B97F4A7C15

    def mix(x):
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & mask
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB & mask
        return x ^ (x >> 31)

    key = mix(seed + golden * (stream + 1) & mask)
    key = mix(key + golden * (counter + 1) & mask)
    return (mix(key + golden * i & mask) >> 11) / 2**53
