"""Concrete cases in which a statement of the paper fails as printed; docs/theory.md discusses them.

Each function builds a case only. What fails in it is measured by `experiments/theory.py` and
pinned by `tests/theory/test_counterexamples.py`.
"""

from typing import NamedTuple

import numpy as np

from rcrl_jax.theory import mdp as mdps


class Case(NamedTuple):
    """An MDP, a policy `[S, A]` and a horizon within which every return is complete."""

    mdp: mdps.MDP
    policy: np.ndarray
    horizon: int


class BanditCase(NamedTuple):
    """Pairs whose return is 0 or 1, K = 2: enough for the statements about Z-learning."""

    probability: np.ndarray  # [X, 2], Z^pi
    weights: np.ndarray  # [X], d
    blocks: int  # N


def lowest_return() -> Case:
    """Section 3's bins R_{k-1} < R <= R_k hold no R_min: the pair that returns 0 has no bin."""
    return _one_step(np.eye(2), (0.0, 1.0))


def more_bins_fewer_classes() -> Case:
    """N_{pi,2} = 4 > N_{pi,3} = 3: a larger K need not give a finer abstraction.

    Three bins put 0.4 and 0.6 together, two bins keep them apart.
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


def tight_bin() -> Case:
    """Proposition 4.1 with equality: returns 0 and 1/2 share the closed first bin of two."""
    return _one_step(np.eye(3), (0.0, 0.5, 1.0))


def equal_expected_rewards() -> Case:
    """Proposition A.1 with R(s, a) read as a number: a coin and its mean are bisimilar."""
    return _one_step(np.array([[0.5, 0.0, 0.5], [0.0, 1.0, 0.0]]), (0.0, 0.5, 1.0))


def equal_expected_actions() -> Case:
    """Proposition A.2 as printed, every reward deterministic.

    State 0 pays 0 or 1 by the action, state 1 pays 1/2 for both: equal sum_a pi(a|s) R(s, a).
    """
    mdp = _ending(np.array([[0, 2], [1, 1]]), (0.0, 0.5, 1.0))
    return Case(mdp, mdps.uniform_policy(mdp), 1)


def equal_marginals() -> Case:
    """Proposition A.2 fails even if rewards agree in distribution; all dynamics deterministic.

    State 0: action 0 pays 0 and leads to the state that pays 0, action 1 pays 1 and leads to the
    state that pays 1. State 1 crosses them. Rewards and next classes have equal laws at every step,
    yet state 0 returns 0 or 2 and state 1 always 1: the proof tracks the marginals, the return
    needs the joint law.
    """
    low, high = 2, 3
    mdp = _ending(np.array([[0, 1], [0, 1], [0, 0], [1, 1]]), (0.0, 1.0))
    mdp.transition[0, [0, 1], [low, high]] = 1.0
    mdp.transition[1, [0, 1], [high, low]] = 1.0
    return Case(mdp, mdps.uniform_policy(mdp), 2)


def policy_outside_bisimulation(states: int) -> Case:
    """N_{pi,infinity} = 2S > |phi_B(S)| |A| = 2: section 4.1 says "for any pi", A.1 says less.

    All states are bisimilar (the action is the reward, the state stays for one more step), but the
    policy takes action 1 with a different probability in each.
    """
    mdp = mdps.MDP(
        transition=np.repeat(np.eye(states)[:, None], 2, axis=1),
        reward=np.repeat(np.eye(2)[None], states, axis=0),
        reward_values=np.array([0.0, 1.0]),
        initial=np.full(states, 1.0 / states),
        discount=1.0,
    )
    favoured = (np.arange(states) + 1) / (states + 1)
    return Case(mdp, np.stack([1 - favoured, favoured], 1), 2)


def rare_probe(gap: float, copies: int) -> BanditCase:
    """Theorem 4.1 "for any x'": x' is pair 0, so rare that no dataset holds it.

    `copies` pairs return 1 with probability 1/2 + gap and as many with 1/2 - gap. A dataset tells
    the two kinds apart only by f*, which differs by 4 gap^2; the probe returns always 0, and under
    it the kinds differ by 2 gap.
    """
    chance = np.concatenate([[0.0], np.full(copies, 0.5 + gap), np.full(copies, 0.5 - gap)])
    weights = np.full(2 * copies + 1, 1.0 / (2 * copies))
    weights[0] = 1e-25
    return BanditCase(np.stack([1 - chance, chance], 1), weights / weights.sum(), blocks=3)


def never_itself() -> BanditCase:
    """Corollary 4.1.1 without the pairs (x, x): a pair that returns 0 and one that returns 1.

    Against the two coins both look alike, and their comparison with each other fits one block.
    """
    chance = np.array([0.0, 1.0, 0.5, 0.5])
    return BanditCase(np.stack([1 - chance, chance], 1), np.full(4, 0.25), blocks=3)


def unrealisable() -> BanditCase:
    """Proposition B.1 (12 of its source) without f* in the class: two encoders that nearly tie.

    N = 2 for three kinds of return; merging the middle pair with either neighbour is as good, up to
    an imbalance of 1e-6 that makes the minimiser unique.
    """
    chance = np.array([0.0, 0.5 + 1e-6, 1.0])
    return BanditCase(np.stack([1 - chance, chance], 1), np.full(3, 1 / 3), blocks=2)


def _one_step(reward, values) -> Case:
    mdp = mdps.one_step(reward, values)
    return Case(mdp, np.ones((len(reward), 1)), 1)


def _ending(reward_index: np.ndarray, values: tuple[float, ...]) -> mdps.MDP:
    """States that pay `values[reward_index[s, a]]` and end."""
    states, actions = reward_index.shape
    return mdps.MDP(
        transition=np.zeros((states, actions, states)),
        reward=np.eye(len(values))[reward_index],
        reward_values=np.asarray(values),
        initial=np.full(states, 1.0 / states),
        discount=1.0,
    )
