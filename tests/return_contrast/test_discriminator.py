"""The discriminator equals slow forward passes, with every input and normalisation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rcrl_jax.return_contrast.discriminator import Discriminator

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    "reads, layers", [("concatenation", 1), ("concatenation", 3), ("difference_product", 1)]
)
def test_a_discriminator_equals_a_slow_forward_pass(reads, layers):
    network = Discriminator(hidden=4, reads=reads, layers=layers)
    first, second = RNG.normal(size=(2, 6, 3)).astype(np.float32)
    params = network.init(jax.random.key(0), first, second)
    *hidden, out = (params["params"][f"Dense_{i}"] for i in range(layers + 1))
    logits = network.apply(params, first, second)
    for x, y, logit in zip(first, second, logits, strict=True):
        h = np.concatenate([x, y] if reads == "concatenation" else [np.abs(x - y), x * y])
        for layer in hidden:
            h = np.maximum(h @ layer["kernel"] + layer["bias"], 0.0)
        np.testing.assert_allclose(logit, (h @ out["kernel"] + out["bias"])[0], rtol=1e-4)
    is_symmetric = np.array_equal(logits, network.apply(params, second, first))
    assert is_symmetric == (reads == "difference_product")


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
