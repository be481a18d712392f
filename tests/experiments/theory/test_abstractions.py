"""Partitions, and the coarsest abstractions by brute force."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.theory import abstractions
from experiments.theory import mdp as mdps
from experiments.theory import z_learning as zl

seeds = st.integers(0, 2**31 - 1)


def test_canonical_labels_follow_first_appearance():
    assert abstractions.canonical(np.array([7, 3, 7, 9])).tolist() == [0, 1, 0, 2]


def test_coarser_partition_merges_all_that_the_finer_merges():
    fine, coarse = np.array([0, 1, 2, 2]), np.array([5, 5, 1, 1])
    assert abstractions.is_coarser(coarse, fine)
    assert not abstractions.is_coarser(fine, coarse)
    assert abstractions.is_coarser(fine, fine)


def test_irrelevance_merges_equal_rows_alone():
    rows = np.array([[0.5, 0.5], [1.0, 0.0], [0.5, 0.5 + 1e-12]])  # the last differs by rounding
    assert abstractions.group_rows(rows).tolist() == [0, 1, 0]
    assert abstractions.is_irrelevance(np.array([0, 1, 0]), rows)
    assert abstractions.is_irrelevance(np.array([0, 1, 2]), rows)
    assert not abstractions.is_irrelevance(np.array([0, 0, 1]), rows)


def test_group_rows_raises_if_equality_is_not_transitive():
    near = 0.7 * abstractions.TOLERANCE
    with pytest.raises(ValueError, match="tolerance"):
        abstractions.group_rows(np.array([[0.0], [near], [2 * near]]))


def is_bisimulation(mdp, labels):
    """The definition of appendix A.1, checked for every two states."""
    for s in range(len(labels)):
        for t in range(s):
            if labels[s] != labels[t]:
                continue
            for a in range(mdp.transition.shape[1]):
                if not np.allclose(mdp.reward[s, a], mdp.reward[t, a]):
                    return False
                for z in set(labels):
                    to_s = mdp.transition[s, a, labels == z].sum()
                    if abs(to_s - mdp.transition[t, a, labels == z].sum()) > 1e-9:
                        return False
    return True


@settings(max_examples=8)
@given(seeds)
def test_refinement_finds_the_coarsest_bisimulation(seed):
    base = mdps.garnet(np.random.default_rng(seed), 3, 1, 1, (0.0, 1.0), True)
    mdp = mdps.with_distractors(base, 1)
    every = [p for p in zl.partitions(6, 6) if is_bisimulation(mdp, p)]
    expected = min(every, key=abstractions.size)
    found = abstractions.bisimulation(mdp)
    assert abstractions.canonical(found).tolist() == abstractions.canonical(expected).tolist()


@settings(max_examples=20)
@given(seeds)
def test_stricter_readings_of_a_pi_bisimulation_are_finer(seed):
    mdp = mdps.garnet(np.random.default_rng(seed), 5, 2, 1, (0.0, 1.0), True)
    policy = mdps.uniform_policy(mdp)
    joint, marginal, expectation = (
        abstractions.pi_bisimulation(mdp, policy, reading)
        for reading in ("joint", "marginal", "expectation")
    )
    assert abstractions.is_coarser(marginal, joint)
    assert abstractions.is_coarser(expectation, marginal)
