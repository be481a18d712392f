"""The discriminator equals slow forward passes, with every input and normalisation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rcrl_jax.return_contrast.discriminator import Discriminator

RNG = np.random.default_rng(0)


def test_concatenation_equals_a_slow_forward_pass():
    network = Discriminator(hidden=4)
    first, second = RNG.normal(size=(2, 6, 3)).astype(np.float32)
    params = network.init(jax.random.key(0), first, second)
    hidden, out = (params["params"][f"Dense_{i}"] for i in (0, 1))
    assert hidden["kernel"].shape == (6, 4)
    assert out["kernel"].shape == (4, 1)
    for i, logit in enumerate(network.apply(params, first, second)):
        pair = np.concatenate([first[i], second[i]])
        h = np.maximum(pair @ hidden["kernel"] + hidden["bias"], 0.0)
        np.testing.assert_allclose(logit, (h @ out["kernel"] + out["bias"])[0], rtol=1e-4)


def test_difference_and_product_equal_a_slow_forward_pass_and_are_symmetric():
    network = Discriminator(hidden=4, reads="difference_product")
    first, second = RNG.normal(size=(2, 6, 3)).astype(np.float32)
    params = network.init(jax.random.key(0), first, second)
    hidden, out = (params["params"][f"Dense_{i}"] for i in (0, 1))
    for i, logit in enumerate(network.apply(params, first, second)):
        pair = np.concatenate([np.abs(first[i] - second[i]), first[i] * second[i]])
        h = np.maximum(pair @ hidden["kernel"] + hidden["bias"], 0.0)
        np.testing.assert_allclose(logit, (h @ out["kernel"] + out["bias"])[0], rtol=1e-4)
    np.testing.assert_array_equal(
        network.apply(params, first, second), network.apply(params, second, first)
    )


def test_three_hidden_layers_equal_a_slow_forward_pass():
    network = Discriminator(hidden=4, layers=3)
    first, second = RNG.normal(size=(2, 6, 3)).astype(np.float32)
    params = network.init(jax.random.key(0), first, second)
    assert len(params["params"]) == 4
    *hidden, out = (params["params"][f"Dense_{i}"] for i in range(4))
    for i, logit in enumerate(network.apply(params, first, second)):
        h = np.concatenate([first[i], second[i]])
        for layer in hidden:
            h = np.maximum(h @ layer["kernel"] + layer["bias"], 0.0)
        np.testing.assert_allclose(logit, (h @ out["kernel"] + out["bias"])[0], rtol=1e-4)


@pytest.mark.parametrize(
    "norm, normalise",
    [
        ("layer_norm", lambda x: (x - x.mean()) / np.sqrt(x.var() + 1e-5)),
        ("unit", lambda x: x / np.linalg.norm(x)),
    ],
)
def test_normalised_inputs_equal_a_slow_normalisation(norm, normalise):
    network, plain = Discriminator(hidden=4, norm=norm), Discriminator(hidden=4)
    first, second = RNG.normal(1.0, 2.0, size=(2, 6, 3)).astype(np.float32)
    params = network.init(jax.random.key(0), first, second)
    normalised = [np.stack([normalise(row) for row in x]) for x in (first, second)]
    expected = plain.apply(params, *normalised)
    np.testing.assert_allclose(network.apply(params, first, second), expected, rtol=1e-4, atol=1e-5)
    assert np.abs(expected - plain.apply(params, first, second)).max() > 0.01


@pytest.mark.parametrize("norm", ["layer_norm", "unit"])
def test_a_normalised_embedding_of_zeros_has_a_finite_gradient(norm):
    network = Discriminator(hidden=4, norm=norm)
    zeros = jnp.zeros((2, 3))
    params = network.init(jax.random.key(0), zeros, zeros)
    gradient = jax.grad(lambda x: network.apply(params, x, zeros).sum())(zeros)
    assert np.isfinite(gradient).all()
