"""Finite MDPs as typed containers, and the families the theory is checked on.

A state-action pair x = (s, a) has the index `s * A + a`; `X = S * A` is the number of pairs.
"""

from typing import NamedTuple

import numpy as np


class MDP(NamedTuple):
    """The tuple (S, A, P, R, mu, gamma) of section 3 with finitely many reward values.

    The reward is drawn from R(r | s, a), independently of the next state given (s, a).
    """

    transition: np.ndarray  # [S, A, S]; a row may sum to less than 1, the rest ends the episode
    reward: np.ndarray  # [S, A, M], probability of each reward value
    reward_values: np.ndarray  # [M]
    initial: np.ndarray  # [S], mu
    discount: float  # gamma in (0, 1]


def validate(mdp: MDP) -> None:
    """Checks shapes and probabilities.

    Raises:
      ValueError: naming the first field that is not what `MDP` says.
    """
    states, actions = mdp.transition.shape[:2]
    if mdp.transition.shape != (states, actions, states):
        raise ValueError(f"transition must be [S, A, S], got {mdp.transition.shape}")
    if mdp.reward.shape != (states, actions, mdp.reward_values.size):
        raise ValueError(f"reward must be [S, A, M], got {mdp.reward.shape}")
    if mdp.initial.shape != (states,):
        raise ValueError(f"initial must be [S], got {mdp.initial.shape}")
    if not 0.0 < mdp.discount <= 1.0:
        raise ValueError(f"discount must lie in (0, 1], got {mdp.discount}")
    continuation = mdp.transition.sum(-1)
    if mdp.transition.min() < 0.0 or continuation.max() > 1.0 + 1e-9:
        raise ValueError("transition rows must be non-negative and sum to at most 1")
    for name, rows in (("reward", mdp.reward), ("initial", mdp.initial)):
        if rows.min() < 0.0 or not np.allclose(rows.sum(-1), 1.0):
            raise ValueError(f"{name} must be a probability distribution")


def uniform_policy(mdp: MDP) -> np.ndarray:
    """The policy `[S, A]` that takes every action equally often."""
    return np.full(mdp.reward.shape[:2], 1.0 / mdp.reward.shape[1])


def random_policy(rng: np.random.Generator, states: int, actions: int) -> np.ndarray:
    """A policy `[S, A]` whose rows are uniform on the simplex."""
    return rng.dirichlet(np.ones(actions), size=states)


def garnet(
    rng: np.random.Generator,
    states: int,
    actions: int,
    branching: int,
    reward_values: tuple[float, ...] = (0.0, 1.0),
    deterministic_rewards: bool = False,
    discount: float = 1.0,
) -> MDP:
    """A random MDP (Garnet): every pair leads to `branching` states with random probabilities.

    Args:
      rng: source of every draw.
      states: S.
      actions: A.
      branching: distinct successors of a pair, between 1 and S.
      reward_values: the values a reward can take.
      deterministic_rewards: one random value for a pair instead of a random distribution.
      discount: gamma.

    Raises:
      ValueError: if `branching` is not between 1 and `states`.
    """
    if not 1 <= branching <= states:
        raise ValueError(f"branching must lie in [1, {states}], got {branching}")
    shape = (states, actions)
    successors = np.argsort(rng.random((*shape, states)), axis=-1)[..., :branching]
    transition = np.zeros((*shape, states))
    weights = rng.dirichlet(np.ones(branching), size=shape)
    np.put_along_axis(transition, successors, weights, axis=-1)
    values = np.asarray(reward_values, np.float64)
    if deterministic_rewards:
        reward = np.eye(values.size)[rng.integers(values.size, size=shape)]
    else:
        reward = rng.dirichlet(np.ones(values.size), size=shape)
    return MDP(transition, reward, values, np.full(states, 1.0 / states), discount)


def chain(length: int, slip: float, discount: float = 1.0) -> MDP:
    """A corridor: action 1 steps right, 0 left; the step out of the right end pays 1 and ends.

    Args:
      length: number of states S; an episode starts in state 0, where a step left stays.
      slip: probability in [0, 1] that a step goes the other way.
      discount: gamma.
    """
    states = np.arange(length)
    left = np.eye(length)[np.maximum(states - 1, 0)]
    right = np.eye(length)[np.minimum(states + 1, length - 1)]
    transition = np.stack([(1 - slip) * left + slip * right, (1 - slip) * right + slip * left], 1)
    reward = np.zeros((length, 2, 2))
    reward[..., 0] = 1.0
    # Reward and next state are drawn independently, so the exit must be the sole outcome of the
    # rewarded pair: the last state pays and ends whatever the slip.
    transition[-1, 1], reward[-1, 1] = 0.0, (0.0, 1.0)
    return MDP(transition, reward, np.array([0.0, 1.0]), np.eye(length)[0], discount)


def grid_world(size: int, slip: float, distractor_bits: int, discount: float = 1.0) -> MDP:
    """A square grid whose far corner pays 1 and ends; irrelevant bits multiply the states.

    Args:
      size: cells on a side; base state `row * size + column`, start in cell 0.
      slip: probability in [0, 1] that a move goes in a uniformly random direction.
      distractor_bits: coin flips drawn anew each step; S = size^2 * 2^distractor_bits.
      discount: gamma.
    """
    cells = size * size
    row, column = np.divmod(np.arange(cells), size)
    steps = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])
    rows = np.clip(row[:, None] + steps[:, 0], 0, size - 1)
    columns = np.clip(column[:, None] + steps[:, 1], 0, size - 1)
    move = np.eye(cells)[rows * size + columns]  # [cells, 4, cells]
    transition = (1 - slip) * move + slip * move.mean(1, keepdims=True)
    reward = np.zeros((cells, 4, 2))
    reward[..., 0] = 1.0
    transition[-1], reward[-1] = 0.0, (0.0, 1.0)
    base = MDP(transition, reward, np.array([0.0, 1.0]), np.eye(cells)[0], discount)
    return with_distractors(base, distractor_bits)


def one_step(reward: np.ndarray, reward_values: tuple[float, ...]) -> MDP:
    """An MDP of one decision: pair i pays by row i of `reward` `[X, M]` and the episode ends.

    It has one action, so pairs and states are the same, and Z^pi(x) is the row itself.
    """
    things = len(reward)
    return MDP(
        transition=np.zeros((things, 1, things)),
        reward=np.asarray(reward, np.float64)[:, None],
        reward_values=np.asarray(reward_values, np.float64),
        initial=np.full(things, 1.0 / things),
        discount=1.0,
    )


def with_distractors(mdp: MDP, bits: int) -> MDP:
    """Adds bits that are fair coin flips at every step and influence nothing.

    State `s` with bit pattern b becomes state `s * 2^bits + b`.
    """
    copies = 2**bits
    transition = np.repeat(np.repeat(mdp.transition, copies, 0), copies, 2) / copies
    return mdp._replace(
        transition=transition,
        reward=np.repeat(mdp.reward, copies, 0),
        initial=np.repeat(mdp.initial, copies) / copies,
    )


def sparse_episodes(rng: np.random.Generator, depth: int, width: int, actions: int) -> MDP:
    """The paper's Atari setting: undiscounted, most steps pay nothing, some pay 1.

    Episodes run through `depth` layers of `width` states, so they end by themselves and the return
    to go does not depend on when a pair is visited. A reward comes with probability 0.3.
    """
    return _layered(rng, depth, width, actions, (0.0, 1.0), (0.7, 0.3))


def dense_episodes(rng: np.random.Generator, depth: int, width: int, actions: int) -> MDP:
    """The paper's DMControl setting: every step pays something between 0.2 and 1."""
    values = (0.2, 0.4, 0.6, 0.8, 1.0)
    return _layered(rng, depth, width, actions, values, (0.2,) * 5)


def _layered(rng, depth, width, actions, values, probabilities) -> MDP:
    states = depth * width
    layer = np.arange(states) // width
    open_layers = np.flatnonzero(layer < depth - 1)
    transition = np.zeros((states, actions, states))
    # Two distinct successors in the next layer (one if the layer is that narrow).
    branching = min(2, width)
    for state in open_layers:
        for action in range(actions):
            successors = (layer[state] + 1) * width + rng.permutation(width)[:branching]
            transition[state, action, successors] = rng.dirichlet(np.ones(branching))
    # A deterministic reward for each pair, so segments end at fixed pairs as in a game.
    reward = np.eye(len(values))[rng.choice(len(values), size=(states, actions), p=probabilities)]
    initial = np.where(layer == 0, 1.0 / width, 0.0)
    return MDP(transition, reward, np.asarray(values), initial, 1.0)
