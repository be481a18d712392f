"""The counterexamples of docs/theory.md, and that the corrected statements hold."""

import numpy as np
import pytest

from rcrl_jax.theory import abstractions, bounds, counterexamples, pairs, return_distributions
from rcrl_jax.theory import z_learning as zl


def law_of(case):
    return return_distributions.return_distribution(case.mdp, case.policy, case.horizon)


def test_lowest_return_is_in_no_bin_of_the_paper_but_in_our_first():
    law = law_of(counterexamples.lowest_return())
    printed = law.pmf[0, law.support > 0.0].sum()  # Pr[R_0 < Z <= R_K] with R_0 = 0
    assert printed == 0.0
    assert return_distributions.bin_returns(law, 2).probability[0].tolist() == [1.0, 0.0]


def test_more_bins_can_give_fewer_classes():
    law = law_of(counterexamples.more_bins_fewer_classes())
    binned = [return_distributions.bin_returns(law, k).probability for k in (2, 3, 6)]
    sizes = [abstractions.size(abstractions.coarsest_irrelevance(z)) for z in binned]
    assert sizes == [4, 3, 6]  # 6 bins refine both 2 and 3 bins, so their classes are finer


def test_proposition_4_1_holds_with_equality():
    law = law_of(counterexamples.tight_bin())
    binned = return_distributions.bin_returns(law, 2)
    labels = abstractions.coarsest_irrelevance(binned.probability)
    assert labels[0] == labels[1]
    assert law.mean[1] - law.mean[0] == binned.width == 0.5


def test_bisimulation_in_expectation_merges_different_returns():
    case = counterexamples.equal_expected_rewards()
    law = law_of(case)
    assert not abstractions.is_irrelevance(
        abstractions.bisimulation(case.mdp, "expectation"), law.pmf
    )
    assert abstractions.is_irrelevance(abstractions.bisimulation(case.mdp, "distribution"), law.pmf)


@pytest.mark.parametrize(
    ("make", "merging"),
    [
        (counterexamples.equal_expected_actions, ["expectation"]),
        (counterexamples.equal_marginals, ["expectation", "marginal"]),
    ],
)
def test_pi_bisimulation_without_joint_matching_merges_different_returns(make, merging):
    case = make()
    by_state = return_distributions.state_returns(law_of(case).pmf, case.policy)
    assert np.abs(by_state[0] - by_state[1]).max() >= 0.5
    for matching in ("expectation", "marginal", "joint"):
        labels = abstractions.pi_bisimulation(case.mdp, case.policy, matching)
        assert (labels[0] == labels[1]) == (matching in merging)


def test_size_bound_fails_for_a_policy_that_differs_within_classes():
    case = counterexamples.policy_outside_bisimulation(5)
    assert abstractions.size(abstractions.bisimulation(case.mdp, "distribution")) == 1
    assert abstractions.size(abstractions.coarsest_irrelevance(law_of(case).pmf)) == 10 > 1 * 2


def test_theorem_4_1_fails_at_a_rare_pair_and_holds_with_its_weight():
    n, datasets = 10**16, 40
    case = counterexamples.rare_probe(0.4 * n**-0.25, 3)
    law = pairs.independent_pairs(case.weights, case.probability)
    counts = pairs.draw_counts(np.random.default_rng(0), law, n, datasets)
    labels = zl.enumerate_encoders(counts, case.blocks).labels
    sides = np.array([bounds.merged_discrepancy(e, case.probability, case.weights) for e in labels])
    bound = bounds.theorem_bound(n, case.blocks, bounds.log_encoders(7, case.blocks), 0.05)
    assert np.mean(sides[:, 0] > bound) > 0.5  # the theorem allows 0.05
    assert np.all(sides @ case.weights <= bound)  # x' ~ d
    assert np.all(sides <= bound / np.sqrt(case.weights))  # every x', corrected by its weight


def test_corollary_4_1_1_needs_comparisons_of_a_pair_with_itself():
    case = counterexamples.never_itself()
    independent = pairs.independent_pairs(case.weights, case.probability)
    wrong, right = np.array([0, 0, 1, 2]), np.array([0, 1, 2, 2])
    assert not abstractions.is_irrelevance(wrong, case.probability)
    distinct = pairs.population(pairs.distinct_pairs(independent))
    right_loss = zl.encoder_loss(distinct, right)
    assert zl.encoder_loss(distinct, wrong) == pytest.approx(right_loss, abs=1e-12)
    complete = pairs.population(independent)
    assert zl.encoder_loss(complete, wrong) > zl.encoder_loss(complete, right) + 1e-3


def test_regression_bound_needs_realisability():
    case, n = counterexamples.unrealisable(), 10**6
    law = pairs.independent_pairs(case.weights, case.probability)
    counts = pairs.draw_counts(np.random.default_rng(0), law, n, 60)
    population = pairs.stacked(pairs.population(law))
    best = zl.predictor(population, zl.enumerate_encoders(population, 2).labels)[0]
    fitted = zl.predictor(counts, zl.enumerate_encoders(counts, 2).labels)
    error = np.sum((fitted - best) ** 2 * law.joint, axis=(1, 2))
    bound = bounds.regression_bound(n, 2, bounds.log_encoders(3, 2), 0.05)
    assert np.mean(error > bound) > 0.25


@pytest.mark.parametrize("epsilon", [0.07, 0.25, 0.4, 0.6, 1.0])
def test_lemma_b_1_fails_on_its_grid_and_holds_on_cell_centres(epsilon):
    values = np.linspace(0.0, 1.0, 2001)
    printed = epsilon * np.arange(1, np.ceil(1 / epsilon) + 1)
    assert np.abs(values[:, None] - printed).min(1).max() >= epsilon  # a cover needs < epsilon
    cells = int(1 / (2 * epsilon)) + 1
    centres = (np.arange(cells) + 0.5) / cells
    assert np.abs(values[:, None] - centres).min(1).max() < epsilon
    assert cells <= 1 / epsilon
