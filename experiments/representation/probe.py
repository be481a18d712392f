"""A linear probe: how much of a target a linear function of the representation explains."""

import numpy as np

_PENALTIES = np.logspace(-4, 4, 17)  # of the ridge regression, in units of the sample's size


def explained_variance(
    features: np.ndarray,
    target: np.ndarray,
    test_features: np.ndarray,
    test_target: np.ndarray,
) -> float:
    """R^2 of a ridge regression on data it has not seen.

    Features are centred and scaled to unit variance, so that the scale of a representation does
    not matter; the penalty is the one with the smallest generalised cross-validation error on the
    data that is fitted (Golub, Heath and Wahba, 1979).

    Args:
      features: `[N, d]`, fitted.
      target: `[N]`.
      test_features: `[M, d]`, not seen.
      test_target: `[M]`.

    Returns:
      1 - (squared error / variance of the unseen target about its mean); at most 1, and below 0
      where the mean of the unseen target would do better. NaN where that target does not vary, as
      in episodes without a reward.
    """
    if np.ptp(test_target) == 0:
        return float("nan")
    mean, scale = features.mean(axis=0), features.std(axis=0)
    scale[scale < 1e-8] = np.inf  # a constant feature explains nothing
    x, x_test = (features - mean) / scale, (test_features - mean) / scale
    y = target - target.mean()

    u, singular, vt = np.linalg.svd(x, full_matrices=False)
    projected = u.T @ y  # [k]
    rest = np.sum((y - u @ projected) ** 2)  # squared error that no weights can remove
    shrink = singular**2 / (singular**2 + len(y) * _PENALTIES[:, None])  # [penalties, k]
    errors = rest + np.sum(((1 - shrink) * projected) ** 2, axis=1)
    freedom = len(y) - 1 - shrink.sum(axis=1)  # the mean takes one degree
    best = np.argmin(errors / np.maximum(freedom, 1e-9) ** 2)

    inverse = np.divide(shrink[best], singular, out=np.zeros_like(singular), where=singular > 0)
    predicted = target.mean() + x_test @ (vt.T @ (inverse * projected))
    error = np.sum((test_target - predicted) ** 2)
    return float(1 - error / np.sum((test_target - test_target.mean()) ** 2))
