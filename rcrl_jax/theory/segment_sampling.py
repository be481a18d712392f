"""RCRL's approximation of Z-learning: positives from the anchor's segment (section 4.3).

The law of its pairs is computed exactly from all trajectories of a small episodic MDP.
"""

from typing import NamedTuple

import numpy as np

from rcrl_jax.theory import mdp as mdps
from rcrl_jax.theory import pairs

_MAX_TRAJECTORIES = 2_000_000  # above it the arrays no longer fit a small machine


class Trajectories(NamedTuple):
    """Every trajectory of an MDP; steps after the end of an episode have pair -1."""

    pair: np.ndarray  # [J, H] int64
    reward: np.ndarray  # [J, H]
    probability: np.ndarray  # [J]
    pairs: int  # X


def enumerate_trajectories(mdp: mdps.MDP, policy: np.ndarray, horizon: int) -> Trajectories:
    """All trajectories of at most `horizon` steps, with their probabilities.

    Raises:
      ValueError: if an episode can outlast the horizon, whose segments would be cut short, or if
        there are more trajectories than fit in memory.
    """
    states, actions = mdp.reward.shape[:2]
    # Outcome of a pair: which reward, which next state (index S: the episode ends).
    ending = np.clip(1 - mdp.transition.sum(-1, keepdims=True), 0, None)
    following = np.concatenate([mdp.transition, np.where(ending > 1e-12, ending, 0)], -1)
    step = np.einsum("sa,sam,sat->samt", policy, mdp.reward, following)  # [S, A, M, S + 1]
    state = np.flatnonzero(mdp.initial)
    probability = mdp.initial[state]
    pair = np.zeros((state.size, 0), np.int64)
    reward = np.zeros((state.size, 0))
    for _ in range(horizon):
        over = state == states
        # A finished trajectory has one continuation: nothing, with probability 1.
        chances = np.concatenate([step, np.zeros((1, *step.shape[1:]))])[state]
        chances[over, 0, 0, states] = 1.0
        parent, action, value, successor = np.nonzero(chances)
        if parent.size > _MAX_TRAJECTORIES:
            raise ValueError(f"more than {_MAX_TRAJECTORIES} trajectories")
        probability = probability[parent] * chances[parent, action, value, successor]
        ended = over[parent]
        new_pair = np.where(ended, -1, state[parent] * actions + action)
        new_reward = np.where(ended, 0.0, mdp.reward_values[value])
        pair = np.concatenate([pair[parent], new_pair[:, None]], axis=1)
        reward = np.concatenate([reward[parent], new_reward[:, None]], axis=1)
        state = successor
    if np.any(state != states):
        raise ValueError(f"episodes outlast the horizon {horizon}")
    return Trajectories(pair, reward, probability, states * actions)


def segment_ids(reward: np.ndarray, threshold: float) -> np.ndarray:
    """Which segment each step belongs to: `[J, H] -> [J, H]`, counted from 0 in each row.

    A segment ends with the step at which the reward accumulated inside it exceeds the threshold;
    with threshold 0 and non-negative rewards that is the first non-zero one (Atari).
    """
    ids = np.zeros(reward.shape, np.int64)
    accumulated, current = np.zeros(len(reward)), np.zeros(len(reward), np.int64)
    for t in range(reward.shape[1]):
        ids[:, t] = current
        accumulated = accumulated + reward[:, t]
        closes = accumulated > threshold + 1e-9  # sums of 0.2 must not exceed 1 by rounding
        current = current + closes
        accumulated = np.where(closes, 0.0, accumulated)
    return ids


def returns_to_go(trajectories: Trajectories, discount: float) -> np.ndarray:
    """Realised return of each step, `[J, H]`."""
    weights = discount ** np.arange(trajectories.reward.shape[1])
    discounted = trajectories.reward * weights
    return np.cumsum(discounted[:, ::-1], axis=1)[:, ::-1] / weights


class SegmentLaw(NamedTuple):
    """What segment sampling draws from."""

    visits: np.ndarray  # [X], d: how often a uniformly drawn step is each pair
    anchor: np.ndarray  # [X], how often the anchor is; d, unless steps without a positive drop out
    positive: np.ndarray  # [X, X], probability of (anchor, positive)
    return_gap: float  # mean |difference of the two realised returns| of a positive
    positive_differs: float  # probability that they differ at all


def segment_law(
    trajectories: Trajectories, threshold: float, discount: float, other_step: bool = False
) -> SegmentLaw:
    """The law of (anchor, positive): anchor a uniform step, positive uniform in its segment.

    Args:
      trajectories: of complete episodes.
      threshold: of `segment_ids`.
      discount: gamma of the returns that are compared.
      other_step: the positive is another step than the anchor, and an anchor that is alone in its
        segment is not drawn. By default it may be the anchor, as in the agents' replay.
    """
    pair, probability = trajectories.pair, trajectories.probability
    live = pair >= 0
    ids = segment_ids(trajectories.reward, threshold)
    together = (ids[:, :, None] == ids[:, None]) & live[:, :, None] & live[:, None]  # [J, H, H]
    if other_step:
        together = together & ~np.eye(pair.shape[1], dtype=bool)
    mates = together.sum(-1)
    weight = together * (probability[:, None] / np.maximum(mates, 1))[..., None]
    weight = weight / weight.sum()
    things = trajectories.pairs
    visits = np.bincount(
        pair[live], np.broadcast_to(probability[:, None], live.shape)[live], things
    )
    cell = np.where(together, pair[:, :, None] * things + pair[:, None], 0)
    positive = np.bincount(cell.ravel(), weight.ravel(), things * things)
    realised = returns_to_go(trajectories, discount)
    gap = np.abs(realised[:, :, None] - realised[:, None])
    positive = positive.reshape(things, things)
    return SegmentLaw(
        visits=visits / visits.sum(),
        anchor=positive.sum(1),
        positive=positive,
        return_gap=float(np.sum(weight * gap)),
        positive_differs=float(np.sum(weight * (gap > 1e-9))),
    )


def segment_pairs(law: SegmentLaw) -> pairs.PairLaw:
    """The labelled law: (anchor, positive, 0) or (anchor, negative, 1), half of each.

    The negative is any step, so it may well have the anchor's return.
    """
    negative = np.outer(law.anchor, law.visits)
    joint = (law.positive + negative) / 2
    return pairs.PairLaw(
        joint, np.divide(negative / 2, joint, out=np.zeros_like(joint), where=joint > 0)
    )
