"""Noisy layers: structure, distribution and scale of the noise; padding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from rcrl_jax.agents.rainbow import noisy

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
    """Kernel and bias with one sample of noise, computed from the layer's outputs."""
    inputs = jnp.concatenate([jnp.zeros((1, IN)), jnp.eye(IN)])
    outputs = LAYER.apply(params, inputs, sample)
    return outputs[1:] - outputs[:1], outputs[0]


def noise(params, seed: int):
    """Noise of the kernel and of the bias in units of their sigmas."""
    p = params["params"]
    kernel, bias = weights(params, draw(seed))
    return (
        np.asarray((kernel - p["kernel_mu"][0]) / p["kernel_sigma"][0]),
        np.asarray((bias - p["bias_mu"][0]) / p["bias_sigma"][0]),
    )


def test_a_layer_without_sigmas_has_the_mean_weights_of_one_with_them(params):
    means = noisy.NoisyDense(OUT, None).init(jax.random.key(0), jnp.zeros((1, IN)))["params"]
    assert means.keys() == {"kernel_mu", "bias_mu"}
    for name, mean in means.items():
        np.testing.assert_array_equal(mean, params["params"][name])


def test_kernel_noise_is_an_outer_product_with_the_bias_noise(params):
    kernel, bias = noise(params, 1)
    singular = np.linalg.svd(kernel, compute_uv=False)
    assert singular[0] > 1.0
    assert singular[1] < 1e-3 * singular[0]  # rank one: not independent noise
    inputs = kernel / bias  # leaves the input vector, the same in every column
    np.testing.assert_allclose(inputs, inputs[:, :1] * np.ones(OUT), rtol=2e-3, atol=1e-3)


def test_noise_is_the_signed_root_of_a_normal(params):
    kernels, biases = zip(*(noise(params, seed) for seed in range(200)), strict=True)
    for factor in (np.stack(biases), np.stack(kernels)[:, :, 0] / np.stack(biases)[:, :1]):
        normal = (np.sign(factor) * factor**2).ravel()
        assert stats.kstest(normal, "norm").pvalue > 1e-3
    draws = np.stack(biases)
    assert np.abs(np.corrcoef(draws.T)[np.triu_indices(OUT, 1)]).max() < 0.35
    x = np.asarray(noisy.scaled_noise(jax.random.key(3), 20_000))
    assert stats.kstest(np.sign(x) * x**2, "norm").pvalue > 1e-3


def test_initial_values_have_the_scales_of_the_source(params):
    p = params["params"]
    np.testing.assert_allclose(p["kernel_sigma"], SIGMA / np.sqrt(IN), rtol=1e-6)
    np.testing.assert_allclose(p["bias_sigma"], SIGMA / np.sqrt(OUT), rtol=1e-6)  # not sqrt(IN)
    big = noisy.NoisyDense(300, SIGMA).init(jax.random.key(1), jnp.zeros((1, 40)))
    for name in ("kernel_mu", "bias_mu"):
        values = np.asarray(big["params"][name]).ravel() * np.sqrt(40)
        assert stats.kstest(values, "uniform", args=(-1, 2)).pvalue > 1e-3


def test_initial_sigma_of_the_bias_counts_valid_outputs_only():
    inputs = jnp.zeros((1, IN))
    layer = noisy.NoisyDense(OUT, SIGMA, groups=5)
    for valid, arguments in ((5, ()), (3, (None, np.int32(3)))):
        p = layer.init(jax.random.key(0), inputs, *arguments)["params"]
        np.testing.assert_allclose(p["bias_sigma"], SIGMA / np.sqrt(valid * OUT), rtol=1e-6)
        np.testing.assert_allclose(p["kernel_sigma"], SIGMA / np.sqrt(IN), rtol=1e-6)


@pytest.mark.parametrize(
    "sizes, more",
    [
        ([(3, 2)], 5),
        ([(2, 2), (3, 3)], 1),  # as many inputs as outputs in all
        ([(9, 1), (9, 1), (2, 2)], 3),  # more inputs than outputs, in both draws
        ([(2, 9), (1, 1)], 4),  # more outputs than inputs, in both draws
        ([(4, 1), (1, 2), (3, 3), (2, 1)], 9),  # more outputs in the second draw only
    ],
)
def test_all_drawn_numbers_differ_and_do_not_depend_on_the_size_of_the_last_layer(sizes, more):
    last_in, last_out = sizes[-1]

    def drawn(key, sizes):
        layers = {str(i): size for i, size in enumerate(sizes)}
        sample = noisy.draw_noise(key, layers)
        assert list(sample) == list(layers)
        return [vector for name in layers for vector in sample[name]]

    @jax.jit  # operation by operation, most of the time would be compilation
    def both(key):
        return drawn(key, sizes), drawn(key, [*sizes[:-1], (last_in, last_out + more)])

    vectors, longer = jax.tree.map(np.asarray, both(jax.random.key(2)))
    assert [len(vector) for vector in vectors] == [n for size in sizes for n in size]
    together = np.concatenate(vectors)
    assert len(np.unique(together)) == len(together)
    longer[-1] = longer[-1][:last_out]
    np.testing.assert_array_equal(np.concatenate(longer), together)
