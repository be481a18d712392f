"""The discriminator equals slow forward passes, with every input."""

import jax
import numpy as np
import pytest
from scipy import stats

from rcrl_jax.return_contrast.discriminator import Discriminator, distance

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    "reads, layers", [("concatenation", 1), ("concatenation", 3), ("difference_product", 1)]
)
def test_a_discriminator_equals_a_slow_forward_pass(reads, layers):
    network = Discriminator(4, reads, layers)
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


@pytest.mark.parametrize("ulp, by_first", [(-4, 1), (-1, 1), (0, 1), (4, 1), (-20, -1), (20, 1)])
def test_components_that_differ_by_rounding_count_as_equal(ulp, by_first):
    """At numbers just above 2^k, where an ulp is largest beside the number, and at zeros."""
    for number in np.float32([1.0, 512.0, 2.0**-20]):
        second = np.nextafter(number, np.float32(2 * number))
        first = second + np.float32(ulp) * np.spacing(second)
        value, by = jax.value_and_grad(distance, (0, 1))(first, second)
        assert value == abs(first - second) and by == (by_first, -by_first)
    assert jax.grad(distance, (0, 1))(0.0, 0.0) == (1, -1)
    assert jax.grad(distance, (0, 1))(-1.0, 1.0) == (-1, 1)


def test_weights_start_lecun_normal_and_biases_at_zero():
    network, x = Discriminator(256, "difference_product", 1), np.zeros((1, 576), np.float32)
    layers = network.init(jax.random.key(0), x, x)["params"]
    assert not any(np.any(layer["bias"]) for layer in layers.values())
    for name, inputs in (("Dense_0", 1152), ("Dense_1", 256)):
        # Variance 1 / inputs, of a normal cut at two of its own standard deviations.
        scaled = np.ravel(layers[name]["kernel"]) * inputs**0.5 * 0.87962566
        assert stats.kstest(scaled, stats.truncnorm(-2, 2).cdf).pvalue > 1e-3
