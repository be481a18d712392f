"""Laws of labelled pairs and their datasets."""

import numpy as np
import pytest

from experiments.theory import pairs

WEIGHTS = np.array([0.5, 0.3, 0.2])
PROBABILITY = np.array([[1.0, 0.0], [0.5, 0.5], [0.1, 0.9]])
LAW = pairs.independent_pairs(WEIGHTS, PROBABILITY)


def test_independent_pairs_by_hand():
    np.testing.assert_allclose(LAW.label[0], [0.0, 0.5, 0.9])
    np.testing.assert_allclose(LAW.label[2, 2], 1 - 0.01 - 0.81)
    np.testing.assert_allclose(LAW.joint[0], [0.25, 0.15, 0.1])


def counted(x1, x2, y, size: int) -> pairs.PairCounts:
    """The counts `[X, X]` of samples, one by one."""
    total, signed = np.zeros((2, size, size))
    for first, second, label in zip(x1, x2, y, strict=True):
        total[first, second] += 1
        signed[first, second] += label - 0.5
    return pairs.PairCounts(total, signed)


def sampled(n: int) -> pairs.PairCounts:
    """A dataset drawn sample by sample, as in lines 3 to 7 of Algorithm 1."""
    rng = np.random.default_rng(0)
    x1, x2 = rng.choice(3, size=(2, n), p=WEIGHTS)
    bins = rng.random((2, n)) >= PROBABILITY[[x1, x2], 0]
    return counted(x1, x2, bins[0] != bins[1], 3)


def drawn(n: int) -> pairs.PairCounts:
    return pairs.PairCounts(
        *(array[0] for array in pairs.draw_counts(np.random.default_rng(0), LAW, n, 1))
    )


@pytest.mark.parametrize("make", [sampled, drawn])
def test_counts_follow_the_law_of_algorithm_1(make):
    n = 100_000
    counts = make(n)
    assert counts.total.sum() == n
    np.testing.assert_allclose(counts.total / n, LAW.joint, atol=0.005)
    np.testing.assert_allclose(counts.signed / counts.total + 0.5, LAW.label, atol=0.02)


def test_counts_of_1e17_samples_are_exact():
    n = 10**17
    counts = drawn(n)
    assert counts.total.sum() == n
    assert abs(counts.signed[1, 1]) < 20 * np.sqrt(n)  # f* = 1/2, so the mean is 0
