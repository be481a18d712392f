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


def test_balanced_labels_are_equally_frequent_and_keep_their_order():
    balanced = pairs.balanced_pairs(LAW)
    assert np.sum(balanced.joint) == pytest.approx(1.0)
    assert np.sum(balanced.joint * balanced.label) == pytest.approx(0.5)
    order = np.argsort(LAW.label, axis=None)
    assert np.all(np.diff(balanced.label.ravel()[order]) >= -1e-12)


def test_law_with_one_label_cannot_be_balanced():
    with pytest.raises(ValueError, match="one label"):
        pairs.balanced_pairs(LAW._replace(label=np.zeros((3, 3))))


def test_distinct_pairs_exclude_the_diagonal():
    distinct = pairs.distinct_pairs(LAW)
    assert np.trace(distinct.joint) == 0.0
    assert distinct.joint.sum() == pytest.approx(1.0)


def test_drawn_counts_follow_the_law():
    n = 200_000
    counts = pairs.draw_counts(np.random.default_rng(0), LAW, n, 3)
    assert np.all(counts.total.sum((1, 2)) == n)
    np.testing.assert_allclose(counts.total / n, np.tile(LAW.joint, (3, 1, 1)), atol=0.005)
    label = counts.signed / counts.total + 0.5
    np.testing.assert_allclose(label, np.tile(LAW.label, (3, 1, 1)), atol=0.02)


def test_counts_of_1e17_samples_are_exact():
    n = 10**17
    counts = pairs.draw_counts(np.random.default_rng(0), LAW, n, 1)
    assert counts.total.sum() == n
    assert abs(counts.signed[0, 1, 1]) < 20 * np.sqrt(n)  # f* = 1/2, so the mean is 0


def counted(x1, x2, y, size: int) -> pairs.PairCounts:
    """The counts `[X, X]` of samples, one by one."""
    total, signed = np.zeros((2, size, size))
    for first, second, label in zip(x1, x2, y, strict=True):
        total[first, second] += 1
        signed[first, second] += label - 0.5
    return pairs.PairCounts(total, signed)


def test_pairs_sampled_as_in_algorithm_1_follow_the_law():
    n, rng = 100_000, np.random.default_rng(0)
    x1, x2 = rng.choice(3, size=(2, n), p=WEIGHTS)
    bins = rng.random((2, n)) >= PROBABILITY[[x1, x2], 0]  # lines 3 to 7 of Algorithm 1
    counts = counted(x1, x2, bins[0] != bins[1], 3)
    np.testing.assert_allclose(counts.total / n, LAW.joint, atol=0.005)
    np.testing.assert_allclose(counts.signed / counts.total + 0.5, LAW.label, atol=0.02)
