"""Both sides of Theorem 4.1."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.theory import bounds, pairs
from experiments.theory import z_learning as zl

PROBABILITY = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
WEIGHTS = np.array([0.5, 0.25, 0.25])


def test_left_side_of_theorem_4_1_by_hand():
    merged = bounds.merged_discrepancy(np.array([[0, 0, 1], [0, 1, 2]]), PROBABILITY, WEIGHTS)
    # Only pairs 0 and 1 are merged: weight 2 * 0.5 * 0.25, differences |Z(x')^T (1/2, -1/2)|.
    np.testing.assert_allclose(merged, [[0.25 * 0.5, 0.0, 0.25 * 0.5], [0.0, 0.0, 0.0]])


def test_right_sides_by_hand():
    inputs = (1000.0, 3, 5, 0.1)
    logarithms = 9 * np.log(1000) + 5 * np.log(3) + np.log(20)
    assert bounds.regression_bound(*inputs) == pytest.approx((6 + 8 * logarithms) / 1000)
    theorem = np.sqrt(8 * 3 / 1000 * (3 + 4 * logarithms))
    assert bounds.theorem_bound(*inputs) == pytest.approx(theorem)


def test_wrong_merges_and_splits_by_hand():
    classes = np.array([0, 0, 1])
    assert bounds.wrongly_merged(np.array([0, 1, 1]), classes, WEIGHTS) == 2 * 0.25 * 0.25
    assert bounds.wrongly_merged(classes, np.array([0, 1, 1]), WEIGHTS) == 2 * 0.5 * 0.25
    assert bounds.wrongly_merged(classes, classes, WEIGHTS) == 0.0


@settings(max_examples=6)
@given(st.integers(0, 2**31 - 1))
def test_theorem_4_1_and_its_proof_step_hold_on_random_problems(seed):
    rng = np.random.default_rng(seed)
    n, blocks, size = 50_000, 2, 6
    kinds = np.repeat(rng.dirichlet(np.ones(3), size=2), 3, axis=0)
    weights = rng.dirichlet(np.ones(size))  # some pairs are rare
    law = pairs.independent_pairs(weights, kinds)
    counts = pairs.draw_counts(rng, law, n, 5)
    labels = zl.coordinate_descent(jax.random.key(seed), counts, blocks, 10)
    error = bounds.squared_distance(zl.predictor(counts, labels), law.label, law.joint)
    sides = bounds.merged_discrepancy(labels, kinds, weights)
    # For any encoder the mean over x' is below 2 sqrt(E[(f-hat - f*)^2]), as the proof shows.
    assert np.all(sides @ weights <= 2 * np.sqrt(error) + 1e-12)
    assert np.all(sides <= 2 * np.sqrt(error[:, None] / weights) + 1e-12)
    assert np.all(error <= bounds.regression_bound(n, blocks, size, 1e-6))
    assert np.all(sides <= bounds.theorem_bound(n, blocks, size, 1e-6))
