"""Both sides of Theorem 4.1, the bound of Lemma B.2, and the share of wrong merges and splits."""

import numpy as np


def log_encoders(pairs: int, blocks: int) -> float:
    """ln |Phi_N| = X ln N: the log of the number of encoders from X = `pairs` to N = `blocks`."""
    return pairs * float(np.log(blocks))


def regression_bound(samples: float, blocks: int, log_encoders: float, delta: float) -> float:
    """Delta_reg of Lemma B.2: bounds E[(f-hat - f*)^2] with probability 1 - delta.

    Args:
      samples: n.
      blocks: N.
      log_encoders: ln |Phi_N|.
      delta: probability with which the bound may fail, in (0, 1).
    """
    logarithms = blocks**2 * np.log(samples) + log_encoders + np.log(2 / delta)
    return float((6 + 8 * logarithms) / samples)


def theorem_bound(samples: float, blocks: int, log_encoders: float, delta: float) -> float:
    """The right side of Theorem 4.1, 2 sqrt(N Delta_reg).

    The arguments are those of `regression_bound`.
    """
    logarithms = blocks**2 * np.log(samples) + log_encoders + np.log(2 / delta)
    return float(np.sqrt(8 * blocks / samples * (3 + 4 * logarithms)))


def merged_discrepancy(
    labels: np.ndarray, probability: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """The left side of Theorem 4.1 for every x'.

    Args:
      labels: phi, the label of each pair, `[X]`.
      probability: Z^pi, the return distribution of each pair over K bins, `[X, K]`.
      weights: d, the distribution of pairs, `[X]`.

    Returns:
      E_{x1, x2 ~ d}[ I[phi(x1) = phi(x2)] |Z(x')^T (Z(x1) - Z(x2))| ] as an array `[X]` over x'.
    """
    overlap = probability @ probability.T  # [X', X]
    gap = np.abs(overlap[:, :, None] - overlap[:, None, :])
    merged = (labels[:, None] == labels[None]) * np.outer(weights, weights)
    return np.sum(gap * merged, axis=(1, 2))


def wrongly_merged(labels: np.ndarray, classes: np.ndarray, weights: np.ndarray) -> float:
    """Probability under (x1, x2) ~ d x d that `labels` merges x1 and x2 but `classes` does not.

    Args:
      labels: label of each pair under the encoder, `[X]`.
      classes: correct class of each pair, `[X]`.
      weights: d, `[X]`.
    """
    merged = labels[:, None] == labels[None]
    apart = classes[:, None] != classes[None]
    return float(np.sum(np.outer(weights, weights) * (merged & apart)))


def wrongly_split(labels: np.ndarray, classes: np.ndarray, weights: np.ndarray) -> float:
    """Probability under (x1, x2) ~ d x d that `labels` separates x1 and x2 but `classes` does not.

    The arguments are those of `wrongly_merged`.
    """
    return wrongly_merged(classes, labels, weights)
