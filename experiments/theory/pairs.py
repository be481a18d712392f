"""Laws (distributions) of labelled pairs (x1, x2, y), and datasets drawn from them.

The contrastive loss of a tabular predictor depends on a dataset only through the number of times
that each (x1, x2) occurs and the number of times that its label is 1. So a dataset is stored as two
`[X, X]` arrays, and may have 10^15 samples.
"""

from typing import NamedTuple

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


def population(law: PairLaw) -> PairCounts:
    """A dataset of infinite size: probabilities `[1, X, X]` instead of counts."""
    return PairCounts(law.joint[None], (law.joint * (law.label - 0.5))[None])


def draw_counts(rng: np.random.Generator, law: PairLaw, samples: int, datasets: int) -> PairCounts:
    """The counts of datasets of i.i.d. samples, drawn directly instead of sample by sample.

    Args:
      rng: random generator.
      law: the distribution of a sample.
      samples: n, below 2^62.
      datasets: D.

    Returns:
      Counts `[D, X, X]`.
    """
    shape = (datasets, *law.joint.shape)
    joint = law.joint.ravel() / law.joint.sum()
    total = rng.multinomial(samples, joint, size=datasets).reshape(shape)
    differing = rng.binomial(total, np.clip(law.label, 0.0, 1.0))
    return PairCounts(total.astype(np.float64), (2 * differing - total) / 2)
