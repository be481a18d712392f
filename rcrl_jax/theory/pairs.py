"""Laws (distributions) of labelled pairs (x1, x2, y), and datasets drawn from them.

The contrastive loss of a tabular predictor depends on a dataset only through the number of times
that each (x1, x2) occurs and the number of times that its label is 1. So a dataset is stored as two
`[X, X]` arrays, and may have 10^15 samples.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class PairLaw(NamedTuple):
    """A distribution over (x1, x2, y)."""

    joint: np.ndarray  # [X, X], probability of (x1, x2)
    label: np.ndarray  # [X, X], E[y | x1, x2]: the Bayes predictor f*


class PairCounts(NamedTuple):
    """Datasets as counts, or laws as probabilities; leading axes hold several of them."""

    total: np.ndarray  # [..., X, X], count or probability of (x1, x2)
    signed: np.ndarray  # [..., X, X], sum of y - 1/2 over these samples


def independent_pairs(weights: np.ndarray, probability: np.ndarray) -> PairLaw:
    """The law of Algorithm 1: x1, x2 ~ d and returns R1, R2 independent, y = I[b(R1) != b(R2)].

    The Bayes predictor is f*(x1, x2) = 1 - Z^pi(x1)^T Z^pi(x2) (equation 6).

    Args:
      weights: d, `[X]`.
      probability: Z^pi, `[X, K]`.
    """
    return PairLaw(np.outer(weights, weights), 1.0 - probability @ probability.T)


def balanced_pairs(law: PairLaw) -> PairLaw:
    """The law reweighted so that both labels have probability 1/2.

    The new Bayes predictor is an increasing function of the old one, so both merge the same pairs.

    Raises:
      ValueError: if one of the labels has probability 0.
    """
    differing = float(np.sum(law.joint * law.label))
    if not 0.0 < differing < 1.0:
        raise ValueError("a law with one label only cannot be balanced")
    one = law.joint * law.label / (2 * differing)
    zero = law.joint * (1 - law.label) / (2 * (1 - differing))
    joint = one + zero
    return PairLaw(joint, np.divide(one, joint, out=np.zeros_like(one), where=joint > 0))


def reweighted_counts(counts: PairCounts) -> PairCounts:
    """Datasets `[D, X, X]` with samples reweighted so that both labels have equal total weight.

    A dataset in which only one label occurs is returned unchanged.
    """
    one = counts.total / 2 + counts.signed
    zero = counts.total / 2 - counts.signed
    ones, zeros = (label.sum((-1, -2), keepdims=True) for label in (one, zero))
    both = (ones > 0) & (zeros > 0)
    half = (ones + zeros) / 2
    one = one * np.where(both, half / np.maximum(ones, 1), 1.0)
    zero = zero * np.where(both, half / np.maximum(zeros, 1), 1.0)
    return PairCounts(one + zero, (one - zero) / 2)


def distinct_pairs(law: PairLaw) -> PairLaw:
    """The law conditioned on x1 != x2: no pair is compared with itself."""
    joint = law.joint * (1 - np.eye(len(law.joint)))
    return law._replace(joint=joint / joint.sum())


def population(law: PairLaw) -> PairCounts:
    """A dataset of infinite size: probabilities `[X, X]` instead of counts."""
    return PairCounts(law.joint, law.joint * (law.label - 0.5))


def stacked(counts: PairCounts) -> PairCounts:
    """One dataset with a leading axis of size 1: `[X, X]` to `[1, X, X]`."""
    return PairCounts(*(array[None] for array in counts))


def draw_counts(rng: np.random.Generator, law: PairLaw, samples: int, datasets: int) -> PairCounts:
    """The counts of datasets of i.i.d. samples, drawn directly instead of sample by sample.

    Args:
      rng: random generator.
      law: the distribution of a sample.
      samples: n, the size of a dataset, below 2^62.
      datasets: D, the number of independent datasets.

    Returns:
      Counts `[D, X, X]`.
    """
    shape = (datasets, *law.joint.shape)
    joint = law.joint.ravel() / law.joint.sum()
    total = rng.multinomial(samples, joint, size=datasets).reshape(shape)
    differing = rng.binomial(total, np.clip(law.label, 0.0, 1.0))
    return PairCounts(total.astype(np.float64), (2 * differing - total) / 2)


def sample_pairs(
    key: jax.Array, weights: jax.Array, probability: jax.Array, samples: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Samples pairs one by one, as lines 3 to 7 of Algorithm 1 do.

    Args:
      key: PRNG key.
      weights: d, `[X]`.
      probability: Z^pi, `[X, K]`.
      samples: n.

    Returns:
      x1, x2 and y, each `[n] int32`.
    """
    pair_key, return_key = jax.random.split(key)
    cumulative = jnp.cumsum(jnp.asarray(weights))
    uniform = jax.random.uniform(pair_key, (2, samples)) * cumulative[-1]
    x = jnp.searchsorted(cumulative, uniform, side="right").astype(jnp.int32)
    by_pair = jnp.cumsum(jnp.asarray(probability), axis=1)[x]  # [2, n, K]
    uniform = jax.random.uniform(return_key, (2, samples, 1)) * by_pair[..., -1:]
    bins = jnp.sum(by_pair <= uniform, axis=-1)
    return x[0], x[1], (bins[0] != bins[1]).astype(jnp.int32)


def count_pairs(x1: jax.Array, x2: jax.Array, y: jax.Array, pairs: int) -> PairCounts:
    """Counts `[X, X]` of a sampled dataset.

    Args:
      x1: first pairs, `[n]`.
      x2: second pairs, `[n]`.
      y: labels 0 or 1, `[n]`.
      pairs: X.
    """
    cell = np.asarray(x1) * pairs + np.asarray(x2)
    total = np.bincount(cell, minlength=pairs * pairs).reshape(pairs, pairs)
    differing = np.bincount(cell[np.asarray(y) == 1], minlength=pairs * pairs)
    signed = (2 * differing.reshape(pairs, pairs) - total) / 2
    return PairCounts(total.astype(np.float64), signed)
