"""The random problems of the studies, and the size of a study."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rcrl_jax.theory import abstractions, deep, pairs, return_distributions, segment_sampling
from rcrl_jax.theory import mdp as mdps

DELTA = 0.05  # delta of Theorem 4.1: the bound may fail with this probability


@dataclasses.dataclass(frozen=True)
class Scale:
    """The size of a study."""

    seeds: int  # number of independent datasets for each MDP and each n
    mdps: int  # number of random MDPs of each family
    restarts: int = 20  # random starts of coordinate descent
    deep_seeds: int = 5  # number of networks for each setting
    deep_steps: int = 3000  # updates of each network


QUICK = Scale(seeds=10, mdps=5, deep_seeds=1, deep_steps=300)

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


def deterministic(rng: np.random.Generator, discount: float = 1.0) -> Problem:
    """A Garnet with deterministic dynamics, rewards and policy: each pair has one return."""
    mdp = mdps.garnet(rng, 16, 2, 1, (0.0, 3.0, 7.0, 10.0), True, discount)
    policy = np.eye(2)[rng.integers(2, size=16)]
    return Problem(mdp, policy, 6) if discount == 1.0 else Problem(mdp, policy, 80, 0.02)


def stochastic(rng: np.random.Generator) -> Problem:
    """A Garnet with random transitions, rewards and policy."""
    return Problem(mdps.garnet(rng, 8, 2, 3), mdps.random_policy(rng, 8, 2), 8)


def corridor(rng: np.random.Generator) -> Problem:
    """A chain with random slip under the uniform policy."""
    mdp = mdps.chain(8, rng.uniform(0.0, 0.3))
    return Problem(mdp, mdps.uniform_policy(mdp), 16)


def grid(rng: np.random.Generator, bits: int = 1) -> Problem:
    """A grid world with random slip and distractor bits, under the uniform policy."""
    mdp = mdps.grid_world(3, rng.uniform(0.0, 0.3), bits)
    return Problem(mdp, mdps.uniform_policy(mdp), 16)


def sparse(rng: np.random.Generator) -> Problem:
    """Sparse rewards in episodes of five steps, under the uniform policy (Atari)."""
    mdp = mdps.sparse_episodes(rng, 5, 3, 2)
    return Problem(mdp, mdps.uniform_policy(mdp), 5)


def dense(rng: np.random.Generator) -> Problem:
    """A reward at every step in episodes of five steps, under the uniform policy (DMControl)."""
    mdp = mdps.dense_episodes(rng, 5, 3, 2)
    return Problem(mdp, mdps.uniform_policy(mdp), 5)


FAMILIES = {
    "deterministic": deterministic,
    "deterministic, discounted": lambda rng: deterministic(rng, 0.8),
    "stochastic Garnet": stochastic,
    "chain": corridor,
    "grid, 1 distractor bit": grid,
    "sparse episodes": sparse,
    "dense episodes": dense,
}


def distracted(rng: np.random.Generator, bits: int, bins: int) -> tuple[np.ndarray, np.ndarray]:
    """A two-state Garnet with distractor bits.

    X = 4 * 2^bits, and N_{pi,K} = 4 almost surely, so each class has 2^bits pairs.

    Args:
      rng: random generator.
      bits: number of distractor bits.
      bins: K.

    Returns:
      Z^pi `[X, K]` and the labels `[X]` of its coarsest irrelevance.
    """
    mdp = mdps.with_distractors(mdps.garnet(rng, 2, 2, 2), bits)
    policy = np.repeat(mdps.random_policy(rng, 2, 2), 2**bits, axis=0)
    binned = return_distributions.bin_returns(
        return_distributions.return_distribution(mdp, policy, 4), bins
    )
    return binned.probability, abstractions.coarsest_irrelevance(binned.probability)


def four_kinds(rng: np.random.Generator) -> return_distributions.ReturnDistribution:
    """Four distributions over returns 0 to 63, of four pairs each.

    They have a normal shape with standard deviation 5. Their centres are 12, 26, 38 and 52, each
    shifted by a random number between -2 and 2.
    """
    centres = np.array([12.0, 26.0, 38.0, 52.0]) + rng.uniform(-2, 2, 4)
    bells = np.exp(-((np.arange(64) - centres[:, None]) ** 2) / 50)
    bells /= bells.sum(1, keepdims=True)
    mdp = mdps.one_step(np.repeat(bells, 4, axis=0), tuple(range(64)))
    return return_distributions.return_distribution(mdp, np.ones((16, 1)), 1)


class Episodic(NamedTuple):
    """A problem for segment sampling; V is the number of pairs that the policy visits."""

    probability: np.ndarray  # [V, G], return distributions of the visited pairs
    classes: np.ndarray  # [V], labels of their coarsest irrelevance
    law: segment_sampling.SegmentLaw  # over all X pairs; the positive may be the anchor
    other_law: segment_sampling.SegmentLaw  # over all X pairs; the positive is another step
    visited: np.ndarray  # [V], indices of the visited pairs in X
    features: np.ndarray  # [S, F], inputs of a network

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
    mdp = mdps.with_distractors(make(rng, 4, 2, 2), bits)
    policy = mdps.uniform_policy(mdp)
    trajectories = segment_sampling.enumerate_trajectories(mdp, policy, 4)
    law, other_law = (
        segment_sampling.segment_law(trajectories, threshold, discount, other)
        for other in (False, True)
    )
    visited = np.flatnonzero(law.visits > 0)
    probability = return_distributions.return_distribution(mdp, policy, 4).pmf[visited]
    features = deep.factored_features(len(policy), bits)
    classes = abstractions.coarsest_irrelevance(probability)
    return Episodic(probability, classes, law, other_law, visited, features)
