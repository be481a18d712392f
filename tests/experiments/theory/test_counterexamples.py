"""The counterexamples of docs/theory.md, in integers and fractions.

The last test draws datasets; all others are exact.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from experiments.theory import abstractions, bounds, pairs, problems, return_distributions
from experiments.theory import mdp as mdps
from experiments.theory import z_learning as zl
from experiments.theory.studies import learning
from tests.experiments.theory import exact

HALF = Fraction(1, 2)


def code_bins(case, bins):
    """Z^pi over K bins as the package computes it."""
    return return_distributions.bin_returns(case.returns(), bins).probability


# Bins and abstractions.


def test_lowest_return_is_in_no_bin_of_the_paper_but_in_our_first():
    case = exact.one_step(np.eye(2), (0.0, 1.0))
    laws, edges = exact.laws(case), (0, HALF, 1)
    printed = [
        sum(p for r, p in laws[0].items() if a < r <= b) for a, b in itertools.pairwise(edges)
    ]
    assert printed == [0, 0]
    assert exact.binned(laws, 2)[0] == tuple(code_bins(case, 2)[0]) == (1, 0)


def test_half_the_bound_of_proposition_4_1_is_attained():
    first, second, _ = laws = exact.laws(exact.one_step(np.eye(3), (0.0, 0.5, 1.0)))
    assert exact.binned(laws, 2)[0] == exact.binned(laws, 2)[1]
    means = [sum(r * p for r, p in law.items()) for law in (first, second)]
    width = HALF
    assert means[1] - means[0] == width  # the error of Q(z) = the value of the other member
    best = (means[0] + means[1]) / 2  # no Q(z) is closer to both
    assert max(abs(best - mean) for mean in means) == width / 2


def test_more_bins_can_give_fewer_classes():
    # Returns 0.4 and 0.6 share one of three bins, but not one of two.
    mixed = [[0, 0.5, 0.5, 0], [0, 0.25, 0.75, 0]]
    case = exact.one_step([*np.eye(4), *mixed], (0.0, 0.4, 0.6, 1.0))
    laws = exact.laws(case)
    sizes = [len(set(exact.binned(laws, k))) for k in (2, 3, 6)]
    assert sizes == [4, 3, 6]  # 6 bins refine both 2 and 3 bins, so their classes are finer
    found = [abstractions.group_rows(code_bins(case, k)) for k in (2, 3, 6)]
    assert [abstractions.size(labels) for labels in found] == sizes


def test_a_1_with_equal_mean_rewards_merges_different_returns():
    case = exact.one_step([[0.5, 0.0, 0.5], [0.0, 1.0, 0.0]], (0.0, 0.5, 1.0))
    first, second = (exact.outcomes(case, s, 0) for s in (0, 1))
    assert sum(p * r for p, r, _ in first) == sum(p * r for p, r, _ in second) == HALF
    assert {end for _, _, end in first + second} == {None}
    assert exact.pair_law(case, 0, 0, 1) != exact.pair_law(case, 1, 0, 1)


# State 0 pays 0 or 1 by the action, state 1 pays 1/2: equal means under the uniform policy.
EQUAL_MEANS = exact.one_step(np.eye(3)[[[0, 2], [1, 1]]], (0.0, 0.5, 1.0))


def equal_marginals() -> problems.Problem:
    """In state 0, reward and next reward are equal, in state 1 they differ; both laws are fair."""
    mdp = exact.one_step(np.eye(2)[[[0, 1], [0, 1], [0, 0], [1, 1]]], (0.0, 1.0)).mdp
    low, high = 2, 3
    mdp.transition[0, [0, 1], [low, high]] = 1.0
    mdp.transition[1, [0, 1], [high, low]] = 1.0
    return problems.under_uniform_policy(mdp, 2)


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
    case = EQUAL_MEANS
    reward, following = zip(
        *(marginals(reward_and_next_state(case, s)) for s in (0, 1)), strict=True
    )
    means = [sum(r * p for r, p in law.items()) for law in reward]
    assert means == [HALF, HALF]
    assert following[0] == following[1] == {None: 1}
    assert exact.state_law(case, 0, 1) == {Fraction(0): HALF, Fraction(1): HALF}
    assert exact.state_law(case, 1, 1) == {HALF: Fraction(1)}


def test_a_2_merges_different_returns_for_rewards_of_equal_law():
    case = equal_marginals()
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
    ("case", "merging"),
    [(EQUAL_MEANS, ["expectation"]), (equal_marginals(), ["expectation", "marginal"])],
)
def test_only_the_joint_law_separates_both_cases(case, merging):
    for matching in ("expectation", "marginal", "joint"):
        labels = abstractions.pi_bisimulation(case.mdp, case.policy, matching)
        assert (labels[0] == labels[1]) == (matching in merging)


def test_size_bound_fails_for_a_policy_that_differs_within_classes():
    # Five states that never change, reward = action, discount 1/2, action 1 with probability p_s.
    stay, action = np.repeat(np.eye(5)[:, None], 2, axis=1), np.repeat(np.eye(2)[None], 5, axis=0)
    mdp = mdps.MDP(stay, action, np.array([0.0, 1.0]), np.full(5, 0.2), 0.5)
    favoured = [Fraction(s + 1, 6) for s in range(5)]
    policy = np.array([[1 - p, p] for p in favoured], float)
    q = [a + p for p in favoured for a in (0, 1)]
    for p, low, high in zip(favoured, q[::2], q[1::2], strict=True):
        value = (1 - p) * low + p * high
        assert (low, high) == (value / 2, 1 + value / 2)  # Q(s, a) = a + V(s) / 2
    assert len(set(q)) == 10
    assert abstractions.size(abstractions.bisimulation(mdp)) == 1
    by_backups = return_distributions.action_values(mdp, policy, 100)
    np.testing.assert_allclose(by_backups, np.array(q, float), atol=1e-12)


# Theorem 4.1.


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


def test_labels_of_coins_are_nearly_fair_and_returns_differ_at_the_probe():
    h = Fraction(1, 100)
    case = problems.rare_probe(float(h))
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
    rows = {row["samples"]: row for row in printed}
    row = rows[n]
    assert row["left_at_least"] ** 2 == pytest.approx(float(left_squared))
    assert float(right_squared) * 0.999 < row["bound"] ** 2 < float(right_squared)
    for samples in (1e17, 1e18, 1e20):
        assert rows[samples]["left_at_least"] > rows[samples]["bound"]
        assert 0.871 < rows[samples]["probability_at_least"] < 0.9
    assert rows[1e16]["left_at_least"] < rows[1e16]["bound"]


# Corollary 4.1.1.


def test_corollary_4_1_1_needs_comparisons_of_a_pair_with_itself():
    f_star = exact.bayes_predictor([Fraction(0), Fraction(1), HALF, HALF])
    wrong, right = (0, 0, 1, 2), (0, 1, 2, 2)
    assert f_star[0][0] != f_star[0][1]  # so `wrong` merges different return distributions
    distinct = [[Fraction(int(i != j), 12) for j in range(4)] for i in range(4)]
    complete = [[Fraction(1, 16)] * 4] * 4
    assert exact.excess_loss(distinct, f_star, wrong) == 0
    assert exact.excess_loss(distinct, f_star, right) == 0
    assert exact.excess_loss(complete, f_star, right) == 0 < Fraction(1, 50)
    assert exact.excess_loss(complete, f_star, wrong) > Fraction(1, 50)


# Drawn at random.


def test_theorem_4_1_fails_at_a_rare_pair_and_holds_on_average():
    n, datasets = 10**16, 40
    case = problems.rare_probe(0.4 * n**-0.25)
    law = pairs.independent_pairs(case.weights, case.probability)
    counts = pairs.draw_counts(np.random.default_rng(0), law, n, datasets)
    labels = zl.enumerate_encoders(counts, 3)
    sides = bounds.merged_discrepancy(labels, case.probability, case.weights)
    bound = bounds.theorem_bound(n, 3, 7, 0.05)
    assert np.mean(sides[:, 0] > bound) > 0.5  # the theorem allows 0.05
    assert np.all(sides @ case.weights <= bound)  # x' ~ d
