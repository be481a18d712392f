"""CURL's projection: a slow forward pass, initial values, accuracy of the gradient."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from rcrl_jax.networks.projection import Projection


def normalise(x):
    return (x - x.mean()) / np.sqrt(x.var() + 1e-5)


def test_equals_a_slow_forward_pass_with_positive_initial_weights():
    psi = np.random.default_rng(0).normal(size=(4, 7)).astype(np.float32)
    network = Projection(hidden=6, size=5)
    params = jax.jit(network.init)(jax.random.key(0), psi)
    layers = params["params"]
    assert set(layers) == {"Dense_0", "Dense_1"}  # the normalisations have no parameters
    for layer in layers.values():
        assert np.all((layer["kernel"] >= 0) & (layer["kernel"] < 1))
        assert not np.any(layer["bias"])
        assert stats.kstest(np.ravel(layer["kernel"]), "uniform").pvalue > 1e-3
    for i, row in enumerate(network.apply(params, psi)):
        hidden = np.maximum(normalise(psi[i] @ layers["Dense_0"]["kernel"]), 0)
        expected = normalise(hidden @ layers["Dense_1"]["kernel"])
        np.testing.assert_allclose(row, expected, rtol=1e-4, atol=1e-4)


def test_gradient_is_accurate_for_large_inputs_of_similar_size():
    """Inputs and initial weights are positive, so E[x^2] - E[x]^2 would lose digits."""
    rng = np.random.default_rng(1)
    psi = rng.uniform(0.5, 1.0, size=(8, 576)).astype(np.float32)
    direction = rng.normal(size=(8, 128))
    network = Projection(hidden=256, size=128)
    params = jax.jit(network.init)(jax.random.key(0), psi)

    def gradient(dtype):
        cast = jax.tree.map(lambda x: jnp.asarray(x, dtype), (params, psi, direction))
        found = jax.jit(jax.grad(lambda p, x, d: jnp.sum(network.apply(p, x) * d)))(*cast)
        return np.concatenate([np.ravel(x) for x in jax.tree.leaves(found)]).astype(np.float64)

    with jax.enable_x64(True):
        exact = gradient(np.float64)
    error = np.linalg.norm(gradient(np.float32) - exact) / np.linalg.norm(exact)
    assert error < 1e-5  # it is 2e-5 with the fast variance
