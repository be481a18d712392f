"""The linear probe on targets whose answer is known."""

import numpy as np
import pytest

from experiments.representation.probe import explained_variance

RNG = np.random.default_rng(0)


def halves(x):
    return x[: len(x) // 2], x[len(x) // 2 :]


def explained(features, target) -> float:
    (x, x_test), (y, y_test) = halves(features), halves(target)
    return explained_variance(x, y, x_test, y_test)


def test_a_linear_target_is_explained_at_any_scale_of_the_features():
    x = RNG.normal(size=(800, 10)) * np.logspace(-3, 3, 10) + 5.0
    y = x @ np.logspace(3, -3, 10) + 2.0
    assert explained(x, y) == pytest.approx(1.0, abs=1e-5)


def test_half_noise_is_half_explained():
    x = RNG.normal(size=(8000, 5))
    signal = x @ np.ones(5)
    y = signal + RNG.normal(size=8000) * signal.std()
    assert explained(x, y) == pytest.approx(0.5, abs=0.05)


def test_pure_noise_is_not_explained_even_with_many_features():
    """Least squares alone would fit the noise and do far worse than the mean."""
    assert -0.1 < explained(RNG.normal(size=(600, 280)), RNG.normal(size=600)) < 0.1


def test_a_linear_target_is_explained_despite_constant_and_repeated_features():
    x = RNG.normal(size=(400, 3))
    y = x.sum(axis=1)
    wide = np.concatenate([x, x, np.zeros((400, 2)), np.full((400, 1), 7.0)], axis=1)
    assert explained(wide, y) == pytest.approx(1.0, abs=1e-3)
