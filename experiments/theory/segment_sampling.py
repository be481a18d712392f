"""Segment sampling: RCRL draws a positive from the anchor's segment (section 4.3).

The distribution of its pairs is computed from all trajectories of a small episodic MDP.
"""

from typing import NamedTuple

import numpy as np

from experiments.theory import mdp as mdps
from experiments.theory import pairs


class Trajectories(NamedTuple):
    """All trajectories of an MDP."""

    pair: np.ndarray  # [J, H] int64, -1 after the end of the episode
    reward: np.ndarray  # [J, H], 0 after the end of the episode
    probability: np.ndarray  # [J]
    pairs: int  # X


def enumerate_trajectories(mdp: mdps.MDP, policy: np.ndarray, horizon: int) -> Trajectories:
    """All trajectories of an MDP, under a policy `[S, A]`, whose episodes have at most H steps.

    Raises:
      ValueError: if an episode can be longer than the horizon, which would cut its segments.
    """
    states, actions = mdp.reward.shape[:2]
    # The outcome of a pair is a reward and a next state; next state S is the end of the episode.
    ending = np.clip(1 - mdp.transition.sum(-1, keepdims=True), 0, None)
    following = np.concatenate([mdp.transition, np.where(ending > 1e-12, ending, 0)], -1)
    step = np.einsum("sa,sam,sat->samt", policy, mdp.reward, following)  # [S, A, M, S + 1]
    state = np.flatnonzero(mdp.initial)
    probability = mdp.initial[state]
    pair = np.zeros((state.size, 0), np.int64)
    reward = np.zeros((state.size, 0))
    for _ in range(horizon):
        over = state == states
        # A finished trajectory stays finished with probability 1.
        chances = np.concatenate([step, np.zeros((1, *step.shape[1:]))])[state]
        chances[over, 0, 0, states] = 1.0
        parent, action, value, successor = np.nonzero(chances)
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
    """The segment of each step, numbered from 0 in each trajectory.

    A segment ends with the step at which the sum of its rewards exceeds the threshold. With
    threshold 0 and non-negative rewards that is the first non-zero reward (Atari).

    Takes rewards `[J, H]` and the threshold in units of reward; returns `[J, H] int64`.
    """
    ids = np.zeros(reward.shape, np.int64)
    accumulated, current = np.zeros(len(reward)), np.zeros(len(reward), np.int64)
    for t in range(reward.shape[1]):
        ids[:, t] = current
        accumulated = accumulated + reward[:, t]
        closes = accumulated > threshold + 1e-9  # a rounded sum of five 0.2 must not exceed 1
        current = current + closes
        accumulated = np.where(closes, 0.0, accumulated)
    return ids


def returns_to_go(trajectories: Trajectories, discount: float) -> np.ndarray:
    """The discounted return from each step to the end of its trajectory, `[J, H]`."""
    weights = discount ** np.arange(trajectories.reward.shape[1])
    discounted = trajectories.reward * weights
    return np.cumsum(discounted[:, ::-1], axis=1)[:, ::-1] / weights


class SegmentLaw(NamedTuple):
    """The distribution of anchors and positives, and how much their returns differ."""

    visits: np.ndarray  # [X], d, the distribution of the pair of a uniformly drawn step
    anchor: np.ndarray  # [X], distribution of the anchor; not d if steps without positive drop out
    positive: np.ndarray  # [X, X], probability of (anchor, positive)
    return_gap: float  # mean absolute difference between the returns of anchor and positive
    positive_differs: float  # probability that the two returns differ


def segment_law(
    trajectories: Trajectories, threshold: float, discount: float, other_step: bool = False
) -> SegmentLaw:
    """The distribution of (anchor, positive).

    The anchor is a uniformly drawn step, the positive a uniformly drawn step of its segment.

    Args:
      trajectories: of complete episodes.
      threshold: reward threshold of `segment_ids`.
      discount: gamma, for the returns of anchor and positive.
      other_step: whether the positive must be another step than the anchor; then a step that is
        alone in its segment is never an anchor. By default the positive may be the anchor, as in
        the agents' replay.
    """
    pair, probability = trajectories.pair, trajectories.probability
    live = pair >= 0
    ids = segment_ids(trajectories.reward, threshold)
    together = (ids[:, :, None] == ids[:, None]) & live[:, :, None] & live[:, None]  # [J, H, H]
    if other_step:
        together = together & ~np.eye(pair.shape[1], dtype=bool)
    positives = together.sum(-1)
    weight = together * (probability[:, None] / np.maximum(positives, 1))[..., None]
    weight = weight / weight.sum()
    num_pairs = trajectories.pairs
    visits = np.bincount(
        pair[live], np.broadcast_to(probability[:, None], live.shape)[live], num_pairs
    )
    cell = np.where(together, pair[:, :, None] * num_pairs + pair[:, None], 0)
    positive = np.bincount(cell.ravel(), weight.ravel(), num_pairs * num_pairs)
    realised = returns_to_go(trajectories, discount)
    gap = np.abs(realised[:, :, None] - realised[:, None])
    positive = positive.reshape(num_pairs, num_pairs)
    return SegmentLaw(
        visits=visits / visits.sum(),
        anchor=positive.sum(1),
        positive=positive,
        return_gap=float(np.sum(weight * gap)),
        positive_differs=float(np.sum(weight * (gap > 1e-9))),
    )


def segment_pairs(law: SegmentLaw) -> pairs.PairLaw:
    """The law of labelled pairs: (anchor, positive, 0) or (anchor, negative, 1), half of each.

    The negative is a uniformly drawn step, so it can have the same return as the anchor.
    """
    negative = np.outer(law.anchor, law.visits)
    joint = (law.positive + negative) / 2
    return pairs.PairLaw(
        joint, np.divide(negative / 2, joint, out=np.zeros_like(joint), where=joint > 0)
    )
