"""Partitions, coarsest abstractions, and the propositions of section 4.1 and appendix A."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.theory import abstractions, return_distributions
from experiments.theory import mdp as mdps
from experiments.theory import z_learning as zl

seeds = st.integers(0, 2**31 - 1)


def random_problem(seed):
    """A small deterministic Garnet with a distractor bit, and its return distribution.

    The policy is constant on bisimulation classes.
    """
    rng = np.random.default_rng(seed)
    mdp = mdps.with_distractors(mdps.garnet(rng, 4, 2, 1, (0.0, 0.5, 1.0), True), 1)
    policy = np.repeat(np.eye(2)[rng.integers(2, size=4)], 2, axis=0)
    classes = abstractions.bisimulation(mdp, "distribution")
    policy = policy[np.unique(classes, return_index=True)[1]][classes]
    return mdp, return_distributions.return_distribution(mdp, policy, 5)


def test_canonical_labels_follow_first_appearance():
    assert abstractions.canonical(np.array([7, 3, 7, 9])).tolist() == [0, 1, 0, 2]


def test_coarser_partition_merges_all_that_the_finer_merges():
    fine, coarse = np.array([0, 1, 2, 2]), np.array([5, 5, 1, 1])
    assert abstractions.is_coarser(coarse, fine)
    assert not abstractions.is_coarser(fine, coarse)
    assert abstractions.is_coarser(fine, fine)


def test_group_rows_merges_rows_that_differ_by_rounding():
    rows = np.array([[0.5, 0.5], [1.0, 0.0], [0.5, 0.5 + 1e-12]])
    assert abstractions.group_rows(rows).tolist() == [0, 1, 0]


def test_group_rows_raises_if_equality_is_not_transitive():
    near = 0.7 * abstractions.TOLERANCE
    with pytest.raises(ValueError, match="tolerance"):
        abstractions.group_rows(np.array([[0.0], [near], [2 * near]]))


def coarsest_by_brute_force(mdp, holds):
    """The partition with the fewest classes of states for which `holds` is true."""
    options = zl.partitions(mdp.transition.shape[0], mdp.transition.shape[0])
    return min((p for p in options if holds(p)), key=abstractions.size)


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


@settings(max_examples=8, deadline=None)
@given(seeds)
def test_refinement_finds_the_coarsest_bisimulation(seed):
    mdp = mdps.with_distractors(
        mdps.garnet(np.random.default_rng(seed), 3, 1, 1, (0.0, 1.0), True), 1
    )
    expected = coarsest_by_brute_force(mdp, lambda p: is_bisimulation(mdp, p))
    found = abstractions.bisimulation(mdp, "distribution")
    assert abstractions.canonical(found).tolist() == abstractions.canonical(expected).tolist()


def test_bisimulation_merges_states_that_differ_in_distractor_bits():
    mdp = mdps.grid_world(2, 0.1, 2)
    labels = abstractions.bisimulation(mdp, "distribution")
    assert abstractions.is_coarser(labels, np.repeat(np.arange(4), 4))


@settings(max_examples=20, deadline=None)
@given(seeds, st.integers(1, 12))
def test_proposition_4_1_bounds_the_error_by_the_bin_width(seed, bins):
    _, law = random_problem(seed)
    binned = return_distributions.bin_returns(law, bins)
    labels = abstractions.group_rows(binned.probability)
    for z in range(abstractions.size(labels)):
        values = law.mean[labels == z]
        # First Q(z) is any member of the class, then its middle, which halves the error.
        assert np.ptp(values) <= binned.width + 1e-9
        assert np.max(np.abs(values - (values.max() + values.min()) / 2)) <= binned.width / 2 + 1e-9


def test_proposition_4_1_needs_an_irrelevance():
    _, law = random_problem(1)
    binned = return_distributions.bin_returns(law, 8)
    everything_merged = np.zeros(len(law.pmf), int)
    assert not abstractions.is_irrelevance(everything_merged, binned.probability)
    assert np.ptp(law.mean) > binned.width


@settings(max_examples=20, deadline=None)
@given(seeds, st.integers(1, 12))
def test_sizes_are_ordered_if_the_policy_is_constant_on_classes(seed, bins):
    mdp, law = random_problem(seed)
    binned = return_distributions.bin_returns(law, bins).probability
    exact = abstractions.group_rows(law.pmf)
    assert abstractions.is_coarser(abstractions.group_rows(binned), exact)
    classes = abstractions.bisimulation(mdp, "distribution")
    assert abstractions.is_coarser(exact, abstractions.pair_labels(classes, 2))


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_pi_bisimulation_with_joint_matching_implies_equal_returns(seed):
    mdp = mdps.garnet(np.random.default_rng(seed), 5, 2, 1, (0.0, 1.0), True)
    policy = mdps.uniform_policy(mdp)
    law = return_distributions.return_distribution(mdp, policy, 5)
    labels = abstractions.pi_bisimulation(mdp, policy, "joint")
    assert abstractions.is_irrelevance(labels, return_distributions.state_returns(law.pmf, policy))
    for finer, coarser in (("joint", "marginal"), ("marginal", "expectation")):
        assert abstractions.is_coarser(
            abstractions.pi_bisimulation(mdp, policy, coarser),
            abstractions.pi_bisimulation(mdp, policy, finer),
        )


@settings(max_examples=10, deadline=None)
@given(seeds)
def test_merging_two_return_classes_is_no_irrelevance(seed):
    _, law = random_problem(seed)
    labels = abstractions.group_rows(law.pmf)
    assert abstractions.is_irrelevance(labels, law.pmf)
    if abstractions.size(labels) > 1:
        wrong = np.where(labels == 1, 0, labels)  # merges two classes of different returns
        assert not abstractions.is_irrelevance(wrong, law.pmf)
