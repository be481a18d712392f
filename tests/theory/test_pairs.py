"""Laws of labelled pairs and their datasets."""

import jax
import numpy as np
import pytest

from rcrl_jax.theory import pairs

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


def test_reweighted_counts_by_hand():
    counts = pairs.PairCounts(
        np.array([[[3.0, 1.0], [0.0, 0.0]]]), np.array([[[1.5, -0.5], [0, 0]]])
    )
    # Three samples of label 1 and one of label 0 get weights that sum to 2 for each label.
    reweighted = pairs.reweighted_counts(counts)
    np.testing.assert_allclose(reweighted.total, [[[2.0, 2.0], [0.0, 0.0]]])
    np.testing.assert_allclose(reweighted.signed, [[[1.0, -1.0], [0.0, 0.0]]])
    only_ones = pairs.PairCounts(counts.total, counts.total / 2)
    np.testing.assert_allclose(pairs.reweighted_counts(only_ones).total, counts.total)


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


def test_sampled_pairs_follow_the_law():
    n = 200_000
    x1, x2, y = pairs.sample_pairs(jax.random.key(0), WEIGHTS, PROBABILITY, n)
    counts = pairs.count_pairs(x1, x2, y, 3)
    assert counts.total.sum() == n
    np.testing.assert_allclose(counts.total / n, LAW.joint, atol=0.005)
    np.testing.assert_allclose(counts.signed / counts.total + 0.5, LAW.label, atol=0.02)


def test_count_pairs_by_hand():
    counts = pairs.count_pairs([0, 0, 1], [1, 1, 1], np.array([1, 0, 1]), 2)
    assert counts.total.tolist() == [[0, 2], [0, 1]]
    assert counts.signed.tolist() == [[0, 0], [0, 0.5]]
