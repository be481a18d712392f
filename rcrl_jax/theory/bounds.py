"""Both sides of Theorem 4.1, and the steps of its proof that a number can check."""

import numpy as np


def log_encoders(pairs: int, blocks: int) -> float:
    """ln |Phi_N| of the full class of encoders X -> [N]."""
    return pairs * float(np.log(blocks))


def regression_bound(samples: float, blocks: int, log_encoders: float, delta: float) -> float:
    """Delta_reg of Lemma B.2: the bound on E[(f-hat - f*)^2] with probability 1 - delta."""
    logarithms = blocks**2 * np.log(samples) + log_encoders + np.log(2 / delta)
    return float((6 + 8 * logarithms) / samples)


def theorem_bound(samples: float, blocks: int, log_encoders: float, delta: float) -> float:
    """The right side of Theorem 4.1, which is 2 sqrt(N Delta_reg)."""
    logarithms = blocks**2 * np.log(samples) + log_encoders + np.log(2 / delta)
    return float(np.sqrt(8 * blocks / samples * (3 + 4 * logarithms)))


def merged_discrepancy(
    labels: np.ndarray, probability: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """The left side of Theorem 4.1 for every x' at once.

    Args:
      labels: the encoder, `[X]`.
      probability: Z^pi, `[X, K]`.
      weights: d, `[X]`.

    Returns:
      E_{x1, x2 ~ d}[ I[phi(x1) = phi(x2)] |Z(x')^T (Z(x1) - Z(x2))| ], `[X]` over x'.
    """
    overlap = probability @ probability.T  # [X', X]
    gap = np.abs(overlap[:, :, None] - overlap[:, None, :])
    merged = (labels[:, None] == labels[None]) * np.outer(weights, weights)
    return np.sum(gap * merged, axis=(1, 2))


def wrongly_merged(labels: np.ndarray, classes: np.ndarray, weights: np.ndarray) -> float:
    """Share of d x d on two pairs that the encoder merges and `classes` separates."""
    merged = labels[:, None] == labels[None]
    apart = classes[:, None] != classes[None]
    return float(np.sum(np.outer(weights, weights) * (merged & apart)))


def wrongly_split(labels: np.ndarray, classes: np.ndarray, weights: np.ndarray) -> float:
    """Share of d x d on two pairs that the encoder separates and `classes` merges."""
    return wrongly_merged(classes, labels, weights)
