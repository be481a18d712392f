"""The random problems of the studies, and the size of a study."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from experiments.theory import abstractions, pairs, return_distributions, segment_sampling
from experiments.theory import mdp as mdps

DELTA = 0.05  # delta of Theorem 4.1: the bound may fail with this probability


@dataclasses.dataclass(frozen=True)
class Scale:
    """The size of a study."""

    seeds: int  # number of independent datasets for each MDP and each n
    mdps: int  # number of random MDPs of each family
    restarts: int = 20  # random starts of coordinate descent


QUICK = Scale(seeds=10, mdps=5)
FULL = Scale(seeds=50, mdps=30)


class Problem(NamedTuple):
    """An MDP with a policy, and how its returns are computed."""

    mdp: mdps.MDP
    policy: np.ndarray  # [S, A]
    horizon: int  # number of rewards that count
    resolution: float | None = None  # of the returns; None: derived from the reward values

    def returns(self) -> return_distributions.ReturnDistribution:
        """The return distribution of every pair."""
        return return_distributions.return_distribution(
            self.mdp, self.policy, self.horizon, self.resolution
        )

    def state_returns(self) -> np.ndarray:
        """The return distribution of every state, `[S, G]`."""
        return return_distributions.state_returns(self.returns().pmf, self.policy)


def under_uniform_policy(mdp: mdps.MDP, horizon: int) -> Problem:
    """A problem whose policy takes every action with the same probability."""
    return Problem(mdp, mdps.uniform_policy(mdp), horizon)


def deterministic(rng: np.random.Generator, discount: float = 1.0) -> Problem:
    """A Garnet with deterministic dynamics, rewards and policy: each pair has one return."""
    mdp = mdps.garnet(rng, 16, 2, 1, (0.0, 3.0, 7.0, 10.0), True, discount)
    policy = np.eye(2)[rng.integers(2, size=16)]
    return Problem(mdp, policy, 6) if discount == 1.0 else Problem(mdp, policy, 80, 0.02)


def grid(rng: np.random.Generator, bits: int = 1) -> Problem:
    """A grid world with random slip and distractor bits."""
    return under_uniform_policy(mdps.grid_world(3, rng.uniform(0.0, 0.3), bits), 16)


FAMILIES: dict[str, Callable[[np.random.Generator], Problem]] = {
    "deterministic": deterministic,
    "deterministic, discounted": lambda rng: deterministic(rng, 0.8),
    "stochastic Garnet": lambda rng: Problem(
        mdps.garnet(rng, 8, 2, 3), mdps.random_policy(rng, 8, 2), 8
    ),
    "chain": lambda rng: under_uniform_policy(mdps.chain(8, rng.uniform(0.0, 0.3)), 16),
    "grid, 1 distractor bit": grid,
    "sparse episodes": lambda rng: under_uniform_policy(mdps.sparse_episodes(rng, 5, 3, 2), 5),
    "dense episodes": lambda rng: under_uniform_policy(mdps.dense_episodes(rng, 5, 3, 2), 5),
}


def distracted(rng: np.random.Generator, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """A two-state Garnet with distractor bits, and K = 3.

    X = 4 * 2^bits, and N_{pi,K} = 4 almost surely, so each class has 2^bits pairs.

    Returns:
      Z^pi `[X, K]` and the labels `[X]` of its coarsest irrelevance.
    """
    mdp = mdps.with_distractors(mdps.garnet(rng, 2, 2, 2), bits)
    policy = np.repeat(mdps.random_policy(rng, 2, 2), 2**bits, axis=0)
    probability = return_distributions.bin_returns(Problem(mdp, policy, 4).returns(), 3).probability
    return probability, abstractions.group_rows(probability)


def four_kinds(rng: np.random.Generator) -> return_distributions.ReturnDistribution:
    """Four distributions over returns 0 to 63, of four pairs each.

    They have a normal shape with standard deviation 5. Their centres are 12, 26, 38 and 52, each
    shifted by a random number between -2 and 2.
    """
    centres = np.array([12.0, 26.0, 38.0, 52.0]) + rng.uniform(-2, 2, 4)
    bells = np.exp(-((np.arange(64) - centres[:, None]) ** 2) / 50)
    bells /= bells.sum(1, keepdims=True)
    mdp = mdps.one_step(np.repeat(bells, 4, axis=0), tuple(range(64)))
    return under_uniform_policy(mdp, 1).returns()


class Episodic(NamedTuple):
    """A problem for segment sampling; V is the number of pairs that the policy visits."""

    probability: np.ndarray  # [V, G], return distributions of the visited pairs
    classes: np.ndarray  # [V], labels of their coarsest irrelevance
    law: segment_sampling.SegmentLaw  # over all X pairs; the positive may be the anchor
    other_law: segment_sampling.SegmentLaw  # over all X pairs; the positive is another step
    visited: np.ndarray  # [V], indices of the visited pairs in X

    @property
    def weights(self) -> np.ndarray:
        """d, the distribution of pairs, over the visited pairs, `[V]`."""
        return self.law.visits[self.visited]

    def segment_pairs(self, law: segment_sampling.SegmentLaw) -> pairs.PairLaw:
        """The law of labelled pairs of segment sampling, over the visited pairs `[V, V]`."""
        law = segment_sampling.segment_pairs(law)
        rows = np.ix_(self.visited, self.visited)
        return pairs.PairLaw(law.joint[rows], law.label[rows])


def episodic(
    rng: np.random.Generator,
    bits: int,
    make: Callable[[np.random.Generator, int, int, int], mdps.MDP],
    threshold: float,
    discount: float = 1.0,
) -> Episodic:
    """Episodes of four layers of two states and two actions, under the uniform policy.

    Args:
      rng: random generator.
      bits: number of distractor bits.
      make: makes the MDP from (rng, depth, width, actions).
      threshold: reward threshold of a segment.
      discount: gamma, for the returns of anchor and positive.
    """
    problem = under_uniform_policy(mdps.with_distractors(make(rng, 4, 2, 2), bits), 4)
    trajectories = segment_sampling.enumerate_trajectories(problem.mdp, problem.policy, 4)
    law, other_law = (
        segment_sampling.segment_law(trajectories, threshold, discount, other)
        for other in (False, True)
    )
    visited = np.flatnonzero(law.visits > 0)
    probability = problem.returns().pmf[visited]
    classes = abstractions.group_rows(probability)
    return Episodic(probability, classes, law, other_law, visited)
