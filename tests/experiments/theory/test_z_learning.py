"""Z-learning: the loss by its definition, and descent against enumeration."""

import itertools

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.theory import abstractions, pairs, problems
from experiments.theory import z_learning as zl
from tests.experiments.theory.test_pairs import counted

seeds = st.integers(0, 2**31 - 1)


def test_partitions_are_complete_and_distinct():
    for things, blocks in ((4, 2), (5, 5), (5, 3)):
        expected = {
            tuple(abstractions.canonical(np.array(labels)))
            for labels in itertools.product(range(blocks), repeat=things)
        }
        found = [tuple(row) for row in zl.partitions(things, blocks)]
        assert set(found) == expected
        assert len(found) == len(expected)


def loss(counts: pairs.PairCounts, labels) -> np.ndarray:
    """The mean squared error of encoders' best predictors, on datasets `[..., X, X]`."""
    f = zl.predictor(counts, labels)
    ones = counts.signed + counts.total / 2
    errors = ones * (1 - f) ** 2 + (counts.total - ones) * f**2
    return np.sum(errors, axis=(-1, -2)) / np.sum(counts.total, axis=(-1, -2))


def test_loss_is_the_mean_squared_error_of_block_means():
    rng = np.random.default_rng(0)
    x1, x2 = rng.integers(4, size=(2, 200))
    y, labels = rng.integers(2, size=200), np.array([0, 1, 0, 2])
    means = np.zeros((3, 3))
    for i, j in itertools.product(range(3), repeat=2):
        chosen = (labels[x1] == i) & (labels[x2] == j)
        means[i, j] = y[chosen].mean()
    expected = np.mean((means[labels[x1], labels[x2]] - y) ** 2)
    counts = counted(x1, x2, y, 4)
    assert loss(counts, labels) == pytest.approx(expected)
    predicted = zl.predictor(counts, labels)
    np.testing.assert_allclose(predicted[0, 3], means[0, 2])


@settings(max_examples=8)
@given(seeds)
def test_the_loss_of_descent_is_not_below_the_global_minimum(seed):
    rng = np.random.default_rng(seed)
    probability = rng.dirichlet(np.ones(3), size=6)
    law = pairs.independent_pairs(rng.dirichlet(np.ones(6)), probability)
    counts = pairs.draw_counts(rng, law, 500, 2)
    every = [np.stack([partition] * 2) for partition in zl.partitions(6, 3)]
    minimum = loss(counts, zl.enumerate_encoders(counts, 3))
    assert minimum == pytest.approx(np.min([loss(counts, labels) for labels in every], axis=0))
    descent = zl.coordinate_descent(jax.random.key(seed), counts, 3, 2)
    assert descent.min() >= 0 and descent.max() < 3
    assert np.all(loss(counts, descent) >= minimum - 1e-12)


def test_descent_ends_in_a_local_minimum():
    rng = np.random.default_rng(5)
    law = pairs.independent_pairs(np.full(6, 1 / 6), rng.dirichlet(np.ones(3), size=6))
    # Shapes and restarts are those of the test above, to share its compiled function.
    counts = pairs.draw_counts(rng, law, 300, 2)
    fit = zl.coordinate_descent(jax.random.key(0), counts, 3, 2)
    for d, x, label in itertools.product(range(2), range(6), range(3)):
        one = pairs.PairCounts(counts.total[d], counts.signed[d])
        moved = fit[d].copy()
        moved[x] = label
        assert loss(one, moved) >= loss(one, fit[d]) - 1e-12


def test_descent_finds_the_global_minimum_in_95_percent_of_datasets():
    rng = np.random.default_rng(6)
    hits = []
    for _ in range(5):
        probability, _ = problems.distracted(rng, 1)
        law = pairs.independent_pairs(np.full(8, 1 / 8), probability)
        counts = pairs.draw_counts(rng, law, 3000, 20)
        best = loss(counts, zl.enumerate_encoders(counts, 3))
        fit = zl.coordinate_descent(jax.random.key(0), counts, 3, 20)
        hits += list(loss(counts, fit) <= best + 1e-12)
    assert np.mean(hits) >= 0.95
