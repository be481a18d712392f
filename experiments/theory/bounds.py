"""Both sides of Theorem 4.1, the bound of Lemma B.2, and the share of wrong merges and splits."""

import numpy as np


def regression_bound(samples: float, blocks: int, pairs: int, delta: float) -> float:
    """Delta_reg of Lemma B.2: bounds E[(f-hat - f*)^2] with probability 1 - delta.

    Args:
      samples: n.
      blocks: N.
      pairs: X.
      delta: probability with which the bound may fail, in (0, 1).
    """
    encoders = pairs * np.log(blocks)  # ln |Phi_N|
    logarithms = blocks**2 * np.log(samples) + encoders + np.log(2 / delta)
    return float((6 + 8 * logarithms) / samples)


def theorem_bound(samples: float, blocks: int, pairs: int, delta: float) -> float:
    """The right side of Theorem 4.1, 2 sqrt(N Delta_reg).

    The arguments are those of `regression_bound`.
    """
    return float(2 * np.sqrt(blocks * regression_bound(samples, blocks, pairs, delta)))


def squared_distance(first: np.ndarray, second: np.ndarray, joint: np.ndarray) -> np.ndarray:
    """E[(f - g)^2] `[D]` of predictors `[D, X, X]` and one `[X, X]`; the pairs have law `joint`."""
    return np.sum((first - second) ** 2 * joint, axis=(1, 2))


def merged_discrepancy(
    labels: np.ndarray, probability: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """The left side of Theorem 4.1 for every x'.

    Args:
      labels: phi, the labels of each encoder, `[D, X]`.
      probability: Z^pi, the return distribution of each pair over K bins, `[X, K]`.
      weights: d, the distribution of pairs, `[X]`.

    Returns:
      E_{x1, x2 ~ d}[ I[phi(x1) = phi(x2)] |Z(x')^T (Z(x1) - Z(x2))| ] as an array `[D, X]` over x'.
    """
    overlap = probability @ probability.T  # [X', X]
    gap = np.abs(overlap[:, :, None] - overlap[:, None, :])
    both = np.outer(weights, weights)
    return np.array(
        [np.sum(gap * ((own[:, None] == own[None]) * both), axis=(1, 2)) for own in labels]
    )


def wrongly_merged(labels: np.ndarray, classes: np.ndarray, weights: np.ndarray) -> float:
    """Probability under (x1, x2) ~ d x d that `labels` merges x1 and x2 but `classes` does not.

    With the first two arguments exchanged, the probability that it wrongly separates them.

    Args:
      labels: label of each pair under the encoder, `[X]`.
      classes: correct class of each pair, `[X]`.
      weights: d, `[X]`.
    """
    merged = labels[:, None] == labels[None]
    apart = classes[:, None] != classes[None]
    return float(np.sum(np.outer(weights, weights) * (merged & apart)))
