"""IMPALA's residual network equals one made of Flax's own layers."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rcrl_jax.agents.rainbow.encoders import impala

STACKS = np.random.default_rng(0).integers(0, 256, (2, 4, 84, 84), np.uint8)
ENCODER = impala.ImpalaEncoder()


class Reference(nn.Module):
    """Figure 3 of Espeholt et al. (2018), right, up to the flat features."""

    @nn.compact
    def __call__(self, stacks):
        layers = iter(range(15))

        def convolve(x, channels):
            return nn.Conv(channels, (3, 3), name=f"Convolution_{next(layers)}")(x)

        x = jnp.moveaxis(stacks, 1, -1) / 255.0
        for channels in (16, 32, 32):
            x = nn.max_pool(convolve(x, channels), (3, 3), (2, 2), "SAME")
            for _ in range(2):
                x = x + convolve(nn.relu(convolve(nn.relu(x), channels)), channels)
        return nn.relu(x).reshape(len(x), -1)


@pytest.fixture(scope="module")
def params():
    return jax.jit(ENCODER.init)(jax.random.key(0), STACKS)


def test_psi_and_its_gradients_equal_those_of_flax_layers(params):
    direction = np.random.default_rng(1).normal(size=(2, 3872)).astype(np.float32)

    def value(params, encoder):
        psi = encoder.apply(params, STACKS)
        return jnp.sum(psi * direction), psi

    (ours, psi), (slow, expected) = (
        jax.jit(jax.grad(lambda p, e=e: value(p, e), has_aux=True))(params)
        for e in (ENCODER, Reference())
    )
    assert psi.shape == (2, 3872) and psi.dtype == jnp.float32
    assert 0.2 < np.mean(np.asarray(psi) > 0) < 0.8
    np.testing.assert_allclose(psi, expected, rtol=1e-4, atol=1e-4)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(slow), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4 * np.abs(other).max())


def test_kernels_start_uniform_with_glorots_scale_and_biases_at_0(params):
    channels = 4
    layers = iter(range(15))
    for filters in (16, 32, 32):
        for _ in range(5):
            layer = params["params"][f"Convolution_{next(layers)}"]
            assert layer["kernel"].shape == (3, 3, channels, filters)
            bound = np.sqrt(6 / (9 * (channels + filters)))
            assert 0.97 * bound < np.abs(layer["kernel"]).max() <= bound
            np.testing.assert_array_equal(layer["bias"], np.zeros(filters))
            channels = filters
    assert next(layers, None) is None and len(params["params"]) == 15


@pytest.mark.parametrize("height, width", [(6, 6), (5, 6), (1, 3), (21, 2)])
def test_pooling_and_its_gradient_equal_those_of_flax(height, width):
    rng = np.random.default_rng(height)
    x = rng.permutation(2 * height * width * 3).reshape(2, height, width, 3)  # without ties
    x = x.astype(np.float32) - 50  # windows at the edge of negative numbers too
    pooled = impala.max_pool(x)
    np.testing.assert_array_equal(pooled, nn.max_pool(x, (3, 3), (2, 2), "SAME"))
    weights = rng.normal(size=pooled.shape).astype(np.float32)
    found, expected = (
        jax.grad(lambda x, f=f: jnp.sum(weights * f(x)))(x)
        for f in (impala.max_pool, lambda x: nn.max_pool(x, (3, 3), (2, 2), "SAME"))
    )
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_equal_largest_values_share_the_gradient():
    image = np.float32([[1, 7, 7], [0, 7, 2], [3, 4, 5]]).reshape(1, 3, 3, 1)
    gradient = jax.grad(lambda x: impala.max_pool(x)[0, 0, 1, 0])(image)[0, ..., 0]
    assert gradient.sum() == 1 and np.all((np.asarray(gradient) > 0) == (image[0, ..., 0] == 7))
