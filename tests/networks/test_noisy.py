"""Noisy layers: structure, distribution and scale of the noise; padding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
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


def test_without_noise_the_weights_are_mu(params):
    p = params["params"]
    inputs = np.random.default_rng(0).normal(size=(5, IN)).astype(np.float32)
    expected = inputs @ np.asarray(p["kernel_mu"][0]) + np.asarray(p["bias_mu"][0])
    outputs = LAYER.apply(params, inputs)
    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-6)


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


def test_equal_keys_draw_equal_noise_and_different_keys_do_not(params):
    one, same, other = (noise(params, seed)[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert np.abs(one - other).max() > 0.1


def test_all_items_of_a_batch_share_one_sample_of_noise(params):
    inputs = jnp.ones((4, IN))
    outputs = LAYER.apply(params, inputs, draw(0))
    np.testing.assert_allclose(outputs, outputs[:1] * np.ones((4, 1)), rtol=1e-6)


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


def test_gradients_reach_mu_and_sigma(params):
    def total(params):
        return jnp.sum(LAYER.apply(params, jnp.ones((2, IN)), draw(0)))

    gradients = jax.grad(total)(params)["params"]
    kernel, bias = noise(params, 0)
    np.testing.assert_allclose(gradients["kernel_mu"], 2.0)
    np.testing.assert_allclose(gradients["kernel_sigma"][0], 2 * kernel, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(gradients["bias_sigma"][0], 2 * bias, rtol=1e-3, atol=1e-3)


def test_a_group_does_not_depend_on_the_number_of_groups():
    inputs = jnp.ones((2, IN))
    outputs = []
    for groups in (2, 5):
        layer = noisy.NoisyDense(OUT, SIGMA, groups)
        sizes = {"before": (2 * IN, OUT), "layer": (IN, groups * OUT)}

        @jax.jit
        def run(layer=layer, sizes=sizes):
            params = layer.init(jax.random.key(0), inputs, None, 2)  # groups beyond 2 are padding
            sample = noisy.draw_noise(jax.random.key(1), sizes)["layer"]
            return layer.apply(params, inputs, sample)

        outputs.append(run())
    two, five = outputs
    assert five.shape == (2, 5 * OUT)
    np.testing.assert_allclose(two, five[:, : 2 * OUT], rtol=1e-5, atol=1e-6)
    assert np.abs(two[:, :OUT] - two[:, OUT:]).max() > 0.1  # groups differ from each other


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


def test_shapes_are_checked(params):
    with pytest.raises(AssertionError):
        LAYER.apply(params, jnp.ones(IN))
    other = noisy.LayerNoise(jnp.zeros(IN + 1), jnp.zeros(OUT))
    with pytest.raises(AssertionError):
        LAYER.apply(params, jnp.ones((1, IN)), other)
