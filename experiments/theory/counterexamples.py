"""Cases that show where a statement of the paper needs a condition; docs/theory.md discusses them.

Each function only builds a case. The studies measure it, and tests/experiments/theory checks it in
exact fractions.
"""

from typing import NamedTuple

import numpy as np

from experiments.theory import mdp as mdps
from experiments.theory import pairs, problems

RARE = 1e-25  # d of the probe in `rare_probe`


class BanditCase(NamedTuple):
    """State-action pairs whose return is 0 or 1, in K = 2 bins."""

    probability: np.ndarray  # [X, 2], Z^pi
    weights: np.ndarray  # [X], d
    blocks: int  # N

    @property
    def law(self) -> pairs.PairLaw:
        """The law of the pairs of Algorithm 1."""
        return pairs.independent_pairs(self.weights, self.probability)


def lowest_return() -> problems.Problem:
    """No bin R_{k-1} < R <= R_k of section 3 holds R_min, here the return 0 of pair 0."""
    return _one_step(np.eye(2), (0.0, 1.0))


def more_bins_fewer_classes() -> problems.Problem:
    """N_{pi,2} = 4 > N_{pi,3} = 3: a larger K can give a coarser abstraction.

    Returns 0.4 and 0.6 share one of three bins, but not one of two.
    """
    reward = [
        [1, 0, 0, 0],
        [0, 0, 0, 1],
        [0, 1, 0, 0],
        [0, 0, 1, 0],
        [0, 0.5, 0.5, 0],
        [0, 0.25, 0.75, 0],
    ]
    return _one_step(np.array(reward), (0.0, 0.4, 0.6, 1.0))


def tight_bin() -> problems.Problem:
    """Proposition 4.1 with equality: of two bins, the first holds returns 0 and 1/2."""
    return _one_step(np.eye(3), (0.0, 0.5, 1.0))


def equal_expected_rewards() -> problems.Problem:
    """Proposition A.1 with R(s, a) read as a number.

    State 0 pays 0 or 1 with probability 1/2 each, state 1 always pays 1/2: the means are equal.
    """
    return _one_step(np.array([[0.5, 0.0, 0.5], [0.0, 1.0, 0.0]]), (0.0, 0.5, 1.0))


def equal_expected_actions() -> problems.Problem:
    """Proposition A.2 as printed, with deterministic rewards.

    State 0 pays 0 for one action and 1 for the other, state 1 pays 1/2 for both. Under the uniform
    policy sum_a pi(a|s) R(s, a) is equal.
    """
    return _one_step(np.eye(3)[[[0, 2], [1, 1]]], (0.0, 0.5, 1.0))


def equal_marginals() -> problems.Problem:
    """Proposition A.2 fails even if rewards are equal in distribution, with deterministic dynamics.

    In state 0, action 0 pays 0 and leads to the state that pays 0; action 1 pays 1 and leads to the
    state that pays 1. In state 1 the two successors are exchanged. The distributions of the reward
    and of the next class are equal in every step. But state 0 returns 0 or 2, and state 1 always
    returns 1. The proof uses the two marginal distributions; the return depends on the joint one.
    """
    low, high = 2, 3
    mdp = mdps.one_step(np.eye(2)[[[0, 1], [0, 1], [0, 0], [1, 1]]], (0.0, 1.0))
    mdp.transition[0, [0, 1], [low, high]] = 1.0
    mdp.transition[1, [0, 1], [high, low]] = 1.0
    return problems.under_uniform_policy(mdp, 2)


def policy_outside_bisimulation(states: int) -> problems.Problem:
    """N_{pi,infinity} = 2S > |phi_B(S)| |A| = 2, although section 4.1 says "for any pi".

    All states are bisimilar: the reward is the action, and the state never changes. But the policy
    takes action 1 with a different probability p_s in each state. With discount 1/2 the mean return
    of (s, a) is a + p_s: 2S different return distributions. Appendix A.1 excludes such policies.
    """
    mdp = mdps.MDP(
        transition=np.repeat(np.eye(states)[:, None], 2, axis=1),
        reward=np.repeat(np.eye(2)[None], states, axis=0),
        reward_values=np.array([0.0, 1.0]),
        initial=np.full(states, 1.0 / states),
        discount=0.5,
    )
    favoured = (np.arange(states) + 1) / (states + 1)
    return problems.Problem(mdp, np.stack([1 - favoured, favoured], 1), 100)


def coins(gap: float, copies: int) -> BanditCase:
    """Two kinds of coins that a dataset of n samples cannot tell apart if gap is below n^(-1/4).

    Half of the pairs return 1 with probability 1/2 + gap, the other half with probability
    1/2 - gap. A label of two coins of one kind is 1 with probability 1/2 - 2 gap^2, of two kinds
    with probability 1/2 + 2 gap^2.

    Args:
      gap: h, between 0 and 1/2.
      copies: number of pairs of each kind.
    """
    chance = np.repeat([0.5 + gap, 0.5 - gap], copies)
    weights = np.full(2 * copies, 1 / (2 * copies))
    return BanditCase(np.stack([1 - chance, chance], 1), weights, blocks=2)


def rare_probe(gap: float, copies: int) -> BanditCase:
    """Theorem 4.1 "for any x'": x' is pair 0, the probe, which is too rare to be in a dataset.

    The other pairs are `coins`. The probe always returns 1, so at x' the two kinds of coins differ
    by 2 gap, but their labels only by 4 gap^2.

    Args:
      gap: h, between 0 and 1/2.
      copies: number of coins of each kind.
    """
    case = coins(gap, copies)
    weights = np.concatenate([[RARE], case.weights])
    probability = np.concatenate([[[0.0, 1.0]], case.probability])
    return BanditCase(probability, weights / weights.sum(), blocks=3)


def never_itself() -> BanditCase:
    """Corollary 4.1.1 fails if no pair x is compared with itself.

    Pair 0 returns 0, pair 1 returns 1, and pairs 2 and 3 return 0 or 1 with probability 1/2 each.
    Compared with pairs 2 and 3, pairs 0 and 1 have equal mean labels. If they share a block, the
    only comparison inside that block is between the two, so merging them costs no loss.
    """
    chance = np.array([0.0, 1.0, 0.5, 0.5])
    return BanditCase(np.stack([1 - chance, chance], 1), np.full(4, 0.25), blocks=3)


def unrealisable(imbalance: float) -> BanditCase:
    """Proposition B.1 (proposition 12 of its source) needs f* in the class.

    Three pairs with different return distributions, but N = 2 blocks. Merging the middle pair with
    either of the others gives nearly the same loss.

    Args:
      imbalance: the middle pair returns 1 with probability 1/2 + imbalance; above 0 the best
        encoder merges it with pair 2, below 0 with pair 0.
    """
    chance = np.array([0.0, 0.5 + imbalance, 1.0])
    return BanditCase(np.stack([1 - chance, chance], 1), np.full(3, 1 / 3), blocks=2)


def _one_step(reward: np.ndarray, values: tuple[float, ...]) -> problems.Problem:
    return problems.under_uniform_policy(mdps.one_step(reward, values), 1)
