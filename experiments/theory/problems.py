"""The random problems of the studies, and the size of a study."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from experiments.theory import abstractions, pairs, return_distributions, segment_sampling
from experiments.theory import mdp as mdps

DELTA = 0.05  # delta of Theorem 4.1: the bound may fail with this probability
RARE = 1e-25  # d of the probe in `rare_probe`


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
        """Z^pi(s) = sum_a pi(a|s) Z^pi(s, a): `[S, G]` (appendix A.2)."""
        pmf = self.returns().pmf.reshape(*self.policy.shape, -1)
        return np.einsum("sa,sag->sg", self.policy, pmf)


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


class RareProbe(NamedTuple):
    """Seven state-action pairs whose return is 0 or 1: the probe, and six coins."""

    probability: np.ndarray  # [7, 2], Z^pi for K = 2
    weights: np.ndarray  # [7], d


def rare_probe(gap: float) -> RareProbe:
    """Theorem 4.1 "for any x'": x' is pair 0, the probe, which is too rare to be in a dataset.

    The probe always returns 1. Three coins return 1 with probability 1/2 + gap, three with
    probability 1/2 - gap. At x' the two kinds differ by 2 gap. A label of two coins of one kind is
    1 with probability 1/2 - 2 gap^2, of two kinds with probability 1/2 + 2 gap^2, so a dataset of n
    samples cannot tell them apart if gap is below n^(-1/4).

    Args:
      gap: h, between 0 and 1/2.
    """
    chance = np.array([1.0, *[0.5 + gap] * 3, *[0.5 - gap] * 3])
    weights = np.array([RARE, *[(1 - RARE) / 6] * 6])
    return RareProbe(np.stack([1 - chance, chance], 1), weights)


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
