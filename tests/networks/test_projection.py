"""CURL's projection against a slow forward pass, and its uncommon initial values."""

import jax
import numpy as np

from rcrl_jax.networks.projection import Projection


def normalise(x):
    return (x - x.mean()) / np.sqrt(x.var() + 1e-5)


def test_equals_a_slow_forward_pass_and_starts_positive():
    psi = np.random.default_rng(0).normal(size=(4, 7)).astype(np.float32)
    network = Projection(hidden=6, size=5)
    params = network.init(jax.random.key(0), psi)
    layers = params["params"]
    assert set(layers) == {"Dense_0", "Dense_1"}  # the normalisations have nothing to train
    for layer in layers.values():
        assert np.all((layer["kernel"] >= 0) & (layer["kernel"] < 1))
        assert not np.any(layer["bias"])
    assert np.std(layers["Dense_0"]["kernel"]) > 0.2
    for i, row in enumerate(network.apply(params, psi)):
        hidden = np.maximum(normalise(psi[i] @ layers["Dense_0"]["kernel"]), 0)
        expected = normalise(hidden @ layers["Dense_1"]["kernel"])
        np.testing.assert_allclose(row, expected, rtol=1e-4, atol=1e-4)
