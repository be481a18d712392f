"""Finite MDPs as typed containers, and the families of MDPs that the studies use."""

import itertools
from typing import NamedTuple

import numpy as np


class MDP(NamedTuple):
    """The tuple (S, A, P, R, mu, gamma) of section 3 with finitely many reward values.

    Given (s, a), the reward and the next state are independent.
    """

    transition: np.ndarray  # [S, A, S]; if a row sums to less than 1, the rest ends the episode
    reward: np.ndarray  # [S, A, M], probability of each reward value
    reward_values: np.ndarray  # [M]
    initial: np.ndarray  # [S], mu
    discount: float  # gamma in (0, 1]


def uniform_policy(mdp: MDP) -> np.ndarray:
    """The policy `[S, A]` that takes every action with the same probability."""
    return np.full(mdp.reward.shape[:2], 1.0 / mdp.reward.shape[1])


def random_policy(rng: np.random.Generator, states: int, actions: int) -> np.ndarray:
    """A policy `[S, A]` whose rows are drawn uniformly from the simplex."""
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

    `deterministic_rewards` draws one of the reward values for each pair instead of a distribution.
    """
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


def grid_world(size: int, slip: float, distractor_bits: int) -> MDP:
    """A square grid with distractor bits. Any action in the last corner pays 1 and ends.

    The base state is `row * size + column`, and an episode starts in cell 0. With probability
    `slip` a move goes in a uniformly random direction. S = size^2 * 2^distractor_bits.
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
    base = MDP(transition, reward, np.array([0.0, 1.0]), np.eye(cells)[0], 1.0)
    return with_distractors(base, distractor_bits)


def with_distractors(mdp: MDP, bits: int) -> MDP:
    """Adds distractor bits: in every step each is drawn as a fair coin, and none has any effect.

    State s with bit pattern b has the index `s * 2^bits + b`.
    """
    copies = 2**bits
    transition = np.repeat(np.repeat(mdp.transition, copies, 0), copies, 2) / copies
    return mdp._replace(
        transition=transition,
        reward=np.repeat(mdp.reward, copies, 0),
        initial=np.repeat(mdp.initial, copies) / copies,
    )


def sparse_episodes(rng: np.random.Generator, depth: int, width: int, actions: int) -> MDP:
    """A model of the paper's Atari setting: no discount, and most rewards are 0.

    An episode visits one of `width` >= 2 states in each of `depth` layers, then ends. So the return
    to go does not depend on the time step. Each pair pays 1 with probability 0.3, drawn once.
    """
    return _layered(rng, depth, width, actions, (0.0, 1.0), (0.7, 0.3))


def dense_episodes(rng: np.random.Generator, depth: int, width: int, actions: int) -> MDP:
    """A model of the paper's DMControl setting: every step pays between 0.2 and 1."""
    values = (0.2, 0.4, 0.6, 0.8, 1.0)
    return _layered(rng, depth, width, actions, values, (0.2,) * 5)


def _layered(rng, depth, width, actions, values, probabilities) -> MDP:
    states = depth * width
    layer = np.arange(states) // width
    open_layers = np.flatnonzero(layer < depth - 1)
    transition = np.zeros((states, actions, states))
    for state, action in itertools.product(open_layers, range(actions)):
        successors = (layer[state] + 1) * width + rng.permutation(width)[:2]
        transition[state, action, successors] = rng.dirichlet(np.ones(2))
    # Each pair's reward is deterministic, so that segments end at fixed pairs, as in a game.
    reward = np.eye(len(values))[rng.choice(len(values), size=(states, actions), p=probabilities)]
    initial = np.where(layer == 0, 1.0 / width, 0.0)
    return MDP(transition, reward, np.asarray(values), initial, 1.0)
