"""Returns and losses of small cases in fractions, by their definitions."""

import itertools
from fractions import Fraction

import numpy as np

from experiments.theory import mdp as mdps
from experiments.theory import problems

Law = dict[Fraction, Fraction]  # return -> probability


def one_step(reward, values: tuple[float, ...]) -> problems.Problem:
    """Episodes of one step under the uniform policy.

    Args:
      reward: probability of each reward value, `[S, A, M]`, or `[S, M]` for A = 1.
      values: the reward values, `[M]`.
    """
    reward = np.asarray(reward)
    reward = reward[:, None] if reward.ndim == 2 else reward
    states, actions, _ = reward.shape
    ends = np.zeros((states, actions, states))
    mdp = mdps.MDP(ends, reward, np.asarray(values), np.full(states, 1 / states), 1.0)
    return problems.under_uniform_policy(mdp, 1)


def rational(values) -> np.ndarray:
    """The fractions that an array of floats stands for; 1/3 and 0.1 are found exactly."""

    def fraction(value: float) -> Fraction:
        exact = Fraction(value)
        near = exact.limit_denominator(10**9)
        return near if abs(near - exact) < 1e-15 else exact

    return np.vectorize(lambda v: fraction(float(v)), otypes=[object])(np.asarray(values))


def mixture(parts: list[tuple[Fraction, Law]]) -> Law:
    """The law that is `law` with probability p, for each (p, law)."""
    mixed = {}
    for chance, law in parts:
        for value, p in law.items():
            mixed[value] = mixed.get(value, 0) + chance * p
    return {value: p for value, p in sorted(mixed.items()) if p}


def outcomes(case: problems.Problem, state: int, action: int) -> list[tuple]:
    """(probability, reward, next state), independent given (s, a); next state None is the end."""
    mdp = case.mdp
    following = dict(enumerate(rational(mdp.transition[state, action])))
    following[None] = 1 - sum(following.values())
    rewards = zip(rational(mdp.reward_values), rational(mdp.reward[state, action]), strict=True)
    return [
        (p * q, reward, successor)
        for (reward, p), (successor, q) in itertools.product(rewards, following.items())
        if p * q > Fraction(1, 10**15)  # rows of random floats do not sum to exactly 1
    ]


def pair_law(case: problems.Problem, state: int, action: int, steps: int) -> Law:
    """The law of the discounted sum of the first `steps` rewards from (s, a)."""
    discount = rational(case.mdp.discount).item()
    parts = []
    for chance, reward, successor in outcomes(case, state, action):
        ends = successor is None or steps == 1
        later = {Fraction(0): Fraction(1)} if ends else state_law(case, successor, steps - 1)
        parts.append((chance, {reward + discount * value: p for value, p in later.items()}))
    return mixture(parts)


def state_law(case: problems.Problem, state: int, steps: int) -> Law:
    """The law of the return of a state under the policy."""
    policy = rational(case.policy[state])
    return mixture([(p, pair_law(case, state, a, steps)) for a, p in enumerate(policy) if p])


def laws(case: problems.Problem) -> list[Law]:
    """The return law of every pair."""
    states, actions = case.policy.shape
    return [
        pair_law(case, s, a, case.horizon)
        for s, a in itertools.product(range(states), range(actions))
    ]


def binned(all_laws: list[Law], bins: int) -> list[tuple[Fraction, ...]]:
    """Z^pi over K bins R_{k-1} < R <= R_k, of which the first includes R_min."""
    possible = [value for law in all_laws for value in law]
    low, high = min(possible), max(possible)
    edges = [low + (high - low) * k / bins for k in range(bins + 1)]
    return [
        tuple(
            sum(p for value, p in law.items() if below < value <= edge or k == 0 and value == low)
            for k, (below, edge) in enumerate(itertools.pairwise(edges))
        )
        for law in all_laws
    ]


def bayes_predictor(chance: list[Fraction]) -> list[list[Fraction]]:
    """f*(x1, x2) = Pr[R1 != R2] of independent returns that are 1 with probability `chance[x]`."""
    return [[a * (1 - b) + b * (1 - a) for b in chance] for a in chance]


def best_predictor(joint, f_star, labels) -> list[list[Fraction]]:
    """The predictor of an encoder with the best w: means of f* over blocks, weighted by `joint`."""
    size = range(len(labels))
    total, weighted = {}, {}
    for i, j in itertools.product(size, size):
        block = labels[i], labels[j]
        total[block] = total.get(block, 0) + joint[i][j]
        weighted[block] = weighted.get(block, 0) + joint[i][j] * f_star[i][j]
    means = {block: weighted[block] / mass for block, mass in total.items() if mass}
    # A block without mass costs nothing; its value does not matter.
    return [[means.get((labels[i], labels[j]), Fraction(0)) for j in size] for i in size]


def squared_distance(joint, first, second) -> Fraction:
    """E[(f - g)^2] under `joint`; for g = f* it is the loss minus the smallest loss of any f."""
    size = range(len(joint))
    return sum(joint[i][j] * (first[i][j] - second[i][j]) ** 2 for i in size for j in size)


def excess_loss(joint, f_star, labels) -> Fraction:
    """Population loss of an encoder above that of the Bayes predictor."""
    return squared_distance(joint, best_predictor(joint, f_star, labels), f_star)
