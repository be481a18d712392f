"""The counterexamples of sections 2 to 5 of docs/theory.md, in integers and fractions.

The last test draws datasets; all others are exact.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from experiments.theory import (
    abstractions,
    bounds,
    counterexamples,
    pairs,
    problems,
    return_distributions,
)
from experiments.theory import z_learning as zl
from experiments.theory.studies import learning
from tests.experiments.theory import exact

HALF = Fraction(1, 2)


def code_sizes(case, bins):
    """N_{pi,K} as the package computes it, for each K of `bins`."""
    law = return_distributions.return_distribution(case.mdp, case.policy, case.horizon)
    binned = [return_distributions.bin_returns(law, k).probability for k in bins]
    return [abstractions.size(abstractions.group_rows(z)) for z in binned]


# Sections 2 and 3 of the page: bins and abstractions.


def test_lowest_return_is_in_no_bin_of_the_paper_but_in_our_first():
    law = exact.laws(counterexamples.lowest_return())[0]
    edges = (0, HALF, 1)
    printed = [sum(p for r, p in law.items() if a < r <= b) for a, b in itertools.pairwise(edges)]
    assert printed == [0, 0]
    assert exact.binned([law, {Fraction(1): Fraction(1)}], 2)[0] == (1, 0)
    case = counterexamples.lowest_return()
    stored = return_distributions.return_distribution(case.mdp, case.policy, case.horizon)
    assert return_distributions.bin_returns(stored, 2).probability[0].tolist() == [1.0, 0.0]


def test_proposition_4_1_holds_with_equality():
    first, second, _ = laws = exact.laws(counterexamples.tight_bin())
    assert exact.binned(laws, 2)[0] == exact.binned(laws, 2)[1]
    width = (max(max(law) for law in laws) - min(min(law) for law in laws)) / 2
    means = [sum(r * p for r, p in law.items()) for law in (first, second)]
    assert means[1] - means[0] == width == HALF


def test_more_bins_can_give_fewer_classes():
    case = counterexamples.more_bins_fewer_classes()
    laws = exact.laws(case)
    sizes = [len(set(exact.binned(laws, k))) for k in (2, 3, 6)]
    assert sizes == [4, 3, 6]  # 6 bins refine both 2 and 3 bins, so their classes are finer
    assert code_sizes(case, (2, 3, 6)) == sizes


@pytest.mark.parametrize("coarse", range(1, 9))
def test_classes_are_finer_for_certain_exactly_if_the_bins_refine(coarse):
    for fine in range(coarse, 13):
        edges = [Fraction(k, coarse) for k in range(1, coarse)]
        # Two fixed returns on both sides of an edge that the finer division lacks.
        step = Fraction(1, 2 * coarse * fine)
        found = []
        for edge in edges:
            ends = [{Fraction(0): Fraction(1)}, {Fraction(1): Fraction(1)}]
            laws = [{edge: Fraction(1)}, {edge + step: Fraction(1)}, *ends]
            apart, kept = (exact.binned(laws, k) for k in (coarse, fine))
            assert apart[0] != apart[1]
            found.append(kept[0] == kept[1])
        assert any(found) == (fine % coarse != 0)


def test_a_1_with_equal_mean_rewards_merges_different_returns():
    case = counterexamples.equal_expected_rewards()
    first, second = (exact.outcomes(case, s, 0) for s in (0, 1))
    assert sum(p * r for p, r, _ in first) == sum(p * r for p, r, _ in second) == HALF
    assert {end for _, _, end in first + second} == {None}
    assert exact.pair_law(case, 0, 0, 1) != exact.pair_law(case, 1, 0, 1)


def reward_and_next_state(case, state):
    """{(reward, next state): probability} under the policy."""
    joint = {}
    for a, p in enumerate(exact.rational(case.policy[state])):
        for chance, reward, successor in exact.outcomes(case, state, a):
            joint[reward, successor] = joint.get((reward, successor), 0) + p * chance
    return joint


def marginals(joint):
    """The laws of the reward and of the next state."""
    found = ({}, {})
    for outcome, p in joint.items():
        for law, value in zip(found, outcome, strict=True):
            law[value] = law.get(value, 0) + p
    return found


def test_a_2_as_printed_merges_different_returns():
    case = counterexamples.equal_expected_actions()
    reward, following = zip(
        *(marginals(reward_and_next_state(case, s)) for s in (0, 1)), strict=True
    )
    means = [sum(r * p for r, p in law.items()) for law in reward]
    assert means == [HALF, HALF]
    assert following[0] == following[1] == {None: 1}
    assert exact.state_law(case, 0, 1) == {Fraction(0): HALF, Fraction(1): HALF}
    assert exact.state_law(case, 1, 1) == {HALF: Fraction(1)}


def test_a_2_merges_different_returns_for_rewards_of_equal_law():
    case = counterexamples.equal_marginals()
    first, second = (reward_and_next_state(case, s) for s in (0, 1))
    # All other states are classes of their own, so next classes are next states.
    assert marginals(first) == marginals(second)
    assert first != second
    assert exact.state_law(case, 0, 2) == {Fraction(0): HALF, Fraction(2): HALF}
    assert exact.state_law(case, 1, 2) == {Fraction(1): Fraction(1)}
    # With one action and the coin in the dynamics, A.1 needs independence of reward and next state.
    for joint, returns in ((first, {0: HALF, 2: HALF}), (second, {1: 1})):
        total = {}
        for (reward, successor), p in joint.items():
            value = reward + max(exact.state_law(case, successor, 1))  # a fixed reward
            total[value] = total.get(value, 0) + p
        assert total == returns


@pytest.mark.parametrize(
    ("make", "merging"),
    [
        (counterexamples.equal_expected_actions, ["expectation"]),
        (counterexamples.equal_marginals, ["expectation", "marginal"]),
    ],
)
def test_only_the_joint_law_separates_both_cases(make, merging):
    case = make()
    for matching in ("expectation", "marginal", "joint"):
        labels = abstractions.pi_bisimulation(case.mdp, case.policy, matching)
        assert (labels[0] == labels[1]) == (matching in merging)


def test_size_bound_fails_for_a_policy_that_differs_within_classes():
    case = counterexamples.policy_outside_bisimulation(5)
    discount = exact.rational(case.mdp.discount).item()
    favoured = exact.rational(case.policy[:, 1])
    means = []
    for state, p in enumerate(favoured):
        value = 2 * p  # V solves V = p + V / 2
        outcomes = [exact.outcomes(case, state, a) for a in (0, 1)]
        assert outcomes == [[(1, a, state)] for a in (0, 1)]  # pays a and stays
        q = [a + discount * value for a in (0, 1)]
        assert (1 - p) * q[0] + p * q[1] == value
        assert q == [a + p for a in (0, 1)]
        means += q
    assert len(set(means)) == 10
    classes = abstractions.bisimulation(case.mdp, "distribution")
    assert abstractions.size(classes) == 1
    by_backups = return_distributions.action_values(case.mdp, case.policy, 100)
    np.testing.assert_allclose(by_backups, [float(q) for q in means], atol=1e-12)


# Section 4: Theorem 4.1.


def respected(labels, first_kind):
    """Whether an encoder of coins merges only coins of one kind."""
    kinds = {}
    for coin, label in enumerate(labels):
        kinds.setdefault(label, set()).add(coin in first_kind)
    return all(len(found) == 1 for found in kinds.values())


# The ten ways to split six coins into two kinds of three; coin 0 is of the first kind.
KINDS = [{0, *others} for others in itertools.combinations(range(1, 6), 2)]


@pytest.mark.parametrize("blocks", [2, 3])
def test_an_encoder_of_six_coins_respects_at_most_one_of_ten_splits(blocks):
    encoders = zl.partitions(6, blocks).tolist()
    assert len(encoders) == {2: 32, 3: 122}[blocks]
    assert max(sum(respected(e, kind) for kind in KINDS) for e in encoders) == 1


def test_share_of_encoders_that_respect_a_split_by_shape():
    found = {}
    for encoder in zl.partitions(6, 3).tolist():
        shape = tuple(sorted((encoder.count(b) for b in set(encoder)), reverse=True))
        hits, total = found.get(shape, (0, 0))
        found[shape] = hits + respected(encoder, KINDS[0]), total + 1
    assert found[4, 1, 1] == (0, 15)
    assert found[2, 2, 2] == (0, 15)
    assert found[3, 2, 1] == (6, 60)
    assert found[3, 3] == (1, 10)
    assert sum(hits for hits, _ in found.values()) == 7


def test_labels_of_coins_are_nearly_fair_and_returns_differ_at_the_probe():
    h = Fraction(1, 100)
    case = counterexamples.rare_probe(float(h), 3)
    chance = [Fraction(1), *[HALF + h] * 3, *[HALF - h] * 3]
    assert case.probability[:, 1].tolist() == [float(c) for c in chance]
    f_star = exact.bayes_predictor(chance)
    assert {f_star[i][j] for i in (1, 2, 3) for j in (1, 2, 3)} == {HALF - 2 * h**2}
    assert {f_star[i][j] for i in (1, 2, 3) for j in (4, 5, 6)} == {HALF + 2 * h**2}
    law = [(1 - c, c) for c in chance]
    difference = [
        abs(sum(z * (a - b) for z, a, b in zip(x, law[1], law[4], strict=True))) for x in law
    ]
    assert difference == [2 * h] + [4 * h**2] * 6


def test_theorem_4_1_is_contradicted_at_1e18_samples():
    n, delta, rare = 10**18, Fraction(1, 20), Fraction(1, 10**25)
    h_squared = Fraction(1, 100 * 10**9)  # h = 0.1 n^(-1/4)
    assert h_squared**2 * n == Fraction(1, 10_000)
    # Pinsker: (total variation)^2 <= n KL / 2, and KL <= (2 h^2)^2 / (1/4) for each label.
    variation_squared = n * (2 * h_squared) ** 2 * 4 / 2
    assert variation_squared == 8 * h_squared**2 * n < Fraction("0.0285") ** 2
    assert Fraction(9, 10) - Fraction("0.0285") - 2 * n * rare > Fraction("0.871") > delta
    # ln 10 < 2.3026, ln 3 < 1.0987 and ln 40 < 3.6889 bound the right side from above.
    for number, logarithm in ((10, "2.3026"), (3, "1.0987"), (40, "3.6889")):
        assert math.log(number) < float(logarithm)
    inner = (
        3 + 4 * 9 * 18 * Fraction("2.3026") + 4 * 7 * Fraction("1.0987") + 4 * Fraction("3.6889")
    )
    right_squared = Fraction(8 * 3, n) * inner
    assert right_squared < Fraction("1.93e-7") ** 2
    left_squared = 4 * h_squared / 18**2 * (1 - rare) ** 4
    assert left_squared > Fraction("3.5e-7") ** 2 > right_squared
    printed = learning.theorem_rare_probe(problems.Scale(seeds=1, mdps=1))["proof"]
    (row,) = (row for row in printed if row["samples"] == n)
    assert row["left_at_least"] ** 2 == pytest.approx(float(left_squared))
    assert float(right_squared) * 0.999 < row["bound"] ** 2 < float(right_squared)
    assert 0.871 < row["probability_at_least"] < 0.9


def test_triangle_inequality_of_the_printed_proof_has_a_wrong_index():
    f_star, f_hat = (
        {"x1": Fraction(1, 4), "x2": Fraction(3, 4)},
        Fraction(1, 4),
    )  # f_hat is equal at x1 and x2
    left = abs(f_star["x1"] - f_star["x2"])
    printed = abs(f_star["x1"] - f_hat) + abs(f_star["x1"] - f_hat)
    corrected = abs(f_star["x1"] - f_hat) + abs(f_star["x2"] - f_hat)
    assert printed < left <= corrected


# Section 5: Corollary 4.1.1.


def test_corollary_needs_both_comparisons_of_a_pair_with_itself():
    first, second = (HALF, HALF), (Fraction(1), Fraction(0))

    def product(x, y):
        return sum(a * b for a, b in zip(x, y, strict=True))

    assert product(first, first) == product(first, second)  # x = x1 alone shows nothing
    assert product(second, first) != product(second, second)


def test_corollary_4_1_1_needs_comparisons_of_a_pair_with_itself():
    case = counterexamples.never_itself()
    f_star = exact.bayes_predictor(exact.rational(case.probability[:, 1]))
    wrong, right = (0, 0, 1, 2), (0, 1, 2, 2)
    assert f_star[0][0] != f_star[0][1]  # so `wrong` merges different return distributions
    distinct = [[Fraction(int(i != j), 12) for j in range(4)] for i in range(4)]
    complete = [[Fraction(1, 16)] * 4] * 4
    assert exact.excess_loss(distinct, f_star, wrong) == 0
    assert exact.excess_loss(distinct, f_star, right) == 0
    assert exact.excess_loss(complete, f_star, right) == 0 < Fraction(1, 50)
    assert exact.excess_loss(complete, f_star, wrong) > Fraction(1, 50)


@pytest.mark.parametrize("chance", [[HALF, HALF], [Fraction(0), Fraction(0)]])
def test_identity_is_not_the_only_minimiser_for_equal_returns(chance):
    # |X| = N = 2. Random returns: infinitely many samples. Fixed returns: the labels of any sample.
    f_star, joint = exact.bayes_predictor(chance), [[Fraction(1, 4)] * 2] * 2
    assert exact.excess_loss(joint, f_star, (0, 1)) == exact.excess_loss(joint, f_star, (0, 0)) == 0


# Drawn at random.


def test_theorem_4_1_fails_at_a_rare_pair_and_holds_on_average():
    n, datasets = 10**16, 40
    case = counterexamples.rare_probe(0.4 * n**-0.25, 3)
    counts = pairs.draw_counts(np.random.default_rng(0), case.law, n, datasets)
    labels = zl.enumerate_encoders(counts, case.blocks).labels
    sides = bounds.merged_discrepancy(labels, case.probability, case.weights)
    bound = bounds.theorem_bound(n, case.blocks, 7, 0.05)
    assert np.mean(sides[:, 0] > bound) > 0.5  # the theorem allows 0.05
    assert np.all(sides @ case.weights <= bound)  # x' ~ d
