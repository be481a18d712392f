"""Likelihood and divergence of Gaussians by hand-worked numbers."""

import math

import jax.numpy as jnp
import numpy as np

from rcrl_jax.networks.world_model import kl_divergence, log_normal


def test_log_normal_by_hand():
    x, mean = np.float32([1.0, 2.0]), np.float32([0.0, 2.0])
    log_root = 0.5 * math.log(2 * math.pi)
    np.testing.assert_allclose(log_normal(x, mean), [-0.5 - log_root, -log_root], rtol=1e-6)
    wide = log_normal(x, mean, jnp.float32(2.0))
    expected = [-0.125 - log_root - math.log(2), -log_root - math.log(2)]
    np.testing.assert_allclose(wide, expected, rtol=1e-6)


def test_divergence_by_hand():
    """Of N(1, 1) from N(0, 2): log 2 + (1 + 1) / 8 - 1/2; a second, equal pair adds nothing."""
    one, mean, std = np.ones(1, np.float32), np.float32([1.0, 3.0]), np.float32([1.0, 0.5])
    other = np.float32([0.0, 3.0]), np.float32([2.0, 0.5])
    found = kl_divergence(mean, std, *other)
    np.testing.assert_allclose(found, math.log(2) + 0.25 - 0.5, rtol=1e-6)
    assert kl_divergence(one, one, one, one) == 0
