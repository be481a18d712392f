"""Noisy layers: structure, distribution and scale of the noise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from rcrl_jax.networks import noisy

IN, OUT, SIGMA = 7, 11, 0.5
LAYER = noisy.NoisyDense(OUT, SIGMA)


@pytest.fixture(scope="module")
def params():
    return LAYER.init(jax.random.key(0), jnp.zeros((1, IN)))


@jax.jit
def draw(seed: int) -> noisy.LayerNoise:
    return noisy.draw_noise(jax.random.key(seed), {"layer": (IN, OUT)})["layer"]


@jax.jit
def weights(params, sample):
    """Kernel and bias with one sample of noise, read off the layer's outputs."""
    inputs = jnp.concatenate([jnp.zeros((1, IN)), jnp.eye(IN)])
    outputs = LAYER.apply(params, inputs, sample)
    return outputs[1:] - outputs[0], outputs[0]


def noise(params, seed: int):
    """Noise of the kernel and of the bias in units of their sigmas."""
    p = params["params"]
    kernel, bias = weights(params, draw(seed))
    return (
        np.asarray((kernel - p["kernel_mu"][0]) / p["kernel_sigma"][0]),
        np.asarray((bias - p["bias_mu"][0]) / p["bias_sigma"][0]),
    )


def test_without_noise_the_layer_is_its_mean(params):
    p = params["params"]
    inputs = np.random.default_rng(0).normal(size=(5, IN)).astype(np.float32)
    expected = inputs @ np.asarray(p["kernel_mu"][0]) + np.asarray(p["bias_mu"][0])
    outputs = LAYER.apply(params, inputs)
    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-6)


def test_the_kernel_s_noise_is_an_outer_product_and_the_bias_shares_its_outputs(params):
    kernel, bias = noise(params, 1)
    singular = np.linalg.svd(kernel, compute_uv=False)
    assert singular[0] > 1.0
    assert singular[1] < 1e-3 * singular[0]  # rank one: not independent noise
    inputs = kernel / bias  # what is left is the vector of the inputs, the same in all columns
    np.testing.assert_allclose(inputs, inputs[:, :1] * np.ones(OUT), rtol=2e-3, atol=1e-3)


def test_the_noise_is_a_signed_root_of_a_normal(params):
    kernels, biases = zip(*(noise(params, seed) for seed in range(200)), strict=True)
    for factor in (np.stack(biases), np.stack(kernels)[:, :, 0] / np.stack(biases)[:, :1]):
        normal = (np.sign(factor) * factor**2).ravel()
        assert stats.kstest(normal, "norm").pvalue > 1e-3
    draws = np.stack(biases)
    assert np.abs(np.corrcoef(draws.T)[np.triu_indices(OUT, 1)]).max() < 0.35
    x = np.asarray(noisy.scaled_noise(jax.random.key(3), 20_000))
    assert stats.kstest(np.sign(x) * x**2, "norm").pvalue > 1e-3


def test_equal_keys_draw_equal_noise_and_others_do_not(params):
    one, same, other = (noise(params, seed)[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert np.abs(one - other).max() > 0.1


def test_one_draw_serves_a_whole_batch(params):
    inputs = jnp.ones((4, IN))
    outputs = LAYER.apply(params, inputs, draw(0))
    np.testing.assert_allclose(outputs, outputs[:1] * np.ones((4, 1)), rtol=1e-6)


def test_initial_values(params):
    p = params["params"]
    np.testing.assert_allclose(p["kernel_sigma"], SIGMA / np.sqrt(IN), rtol=1e-6)
    np.testing.assert_allclose(p["bias_sigma"], SIGMA / np.sqrt(OUT), rtol=1e-6)  # not sqrt(IN)
    big = noisy.NoisyDense(300, SIGMA).init(jax.random.key(1), jnp.zeros((1, 40)))
    for name in ("kernel_mu", "bias_mu"):
        values = np.asarray(big["params"][name]).ravel() * np.sqrt(40)
        assert stats.kstest(values, "uniform", args=(-1, 2)).pvalue > 1e-3


def test_the_initial_sigma_of_the_bias_counts_all_outputs_that_are_not_padding():
    inputs = jnp.zeros((1, IN))
    layer = noisy.NoisyDense(OUT, SIGMA, groups=5)
    for own, arguments in ((5, ()), (3, (None, np.int32(3)))):
        p = layer.init(jax.random.key(0), inputs, *arguments)["params"]
        np.testing.assert_allclose(p["bias_sigma"], SIGMA / np.sqrt(own * OUT), rtol=1e-6)
        np.testing.assert_allclose(p["kernel_sigma"], SIGMA / np.sqrt(IN), rtol=1e-6)


def test_gradients_reach_mean_and_sigma(params):
    def total(params):
        return jnp.sum(LAYER.apply(params, jnp.ones((2, IN)), draw(0)))

    gradients = jax.grad(total)(params)["params"]
    kernel, bias = noise(params, 0)
    np.testing.assert_allclose(gradients["kernel_mu"], 2.0)
    np.testing.assert_allclose(gradients["kernel_sigma"][0], 2 * kernel, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(gradients["bias_sigma"][0], 2 * bias, rtol=1e-3, atol=1e-3)


def test_a_group_does_not_depend_on_how_many_there_are():
    inputs = jnp.ones((2, IN))
    outputs = []
    for groups in (2, 5):
        layer = noisy.NoisyDense(OUT, SIGMA, groups)
        params = layer.init(jax.random.key(0), inputs, None, np.int32(2))  # the rest is padding
        sizes = {"before": (2 * IN, OUT), "layer": (IN, groups * OUT)}
        sample = noisy.draw_noise(jax.random.key(1), sizes)["layer"]
        outputs.append(layer.apply(params, inputs, sample))
    two, five = outputs
    assert five.shape == (2, 5 * OUT)
    np.testing.assert_allclose(two, five[:, : 2 * OUT], rtol=1e-5, atol=1e-6)
    assert np.abs(two[:, :OUT] - two[:, OUT:]).max() > 0.1  # groups differ from each other


@settings(max_examples=15, deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=4),
    more=st.integers(1, 9),
)
def test_every_vector_has_numbers_of_its_own_however_large_the_last_one_is(sizes, more):
    def drawn(sizes):
        layers = {str(i): size for i, size in enumerate(sizes)}
        sample = noisy.draw_noise(jax.random.key(2), layers)
        assert list(sample) == list(layers)
        return [np.asarray(vector) for name in layers for vector in sample[name]]

    vectors = drawn(sizes)
    assert [len(vector) for vector in vectors] == [n for size in sizes for n in size]
    together = np.concatenate(vectors)
    assert len(np.unique(together)) == len(together)
    last_in, last_out = sizes[-1]
    longer = drawn([*sizes[:-1], (last_in, last_out + more)])
    longer[-1] = longer[-1][:last_out]
    np.testing.assert_array_equal(np.concatenate(longer), together)
