"""The Nature encoder's matrix products equal convolutions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from rcrl_jax.agents.rainbow.encoders import nature
from rcrl_jax.ops import native
from tests.ops import lax


def reference(images, kernel, stride):
    return lax.convolve(images, kernel, stride=stride)


@pytest.mark.parametrize("taps, stride", [(1, 3), (2, 2), (3, 1), (2, 4)])
def test_output_and_gradients_of_the_convolution_equal_those_of_lax(taps, stride):
    rng = np.random.default_rng(0)
    side = taps * stride
    images = rng.normal(size=(2, 4 * stride, 6 * stride, 3)).astype(np.float32)
    kernel = rng.normal(size=(side, side, 3, 5)).astype(np.float32)
    ours = nature.convolve(images, kernel, stride)
    np.testing.assert_allclose(ours, reference(images, kernel, stride), rtol=1e-4, atol=1e-4)
    weight = rng.normal(size=ours.shape).astype(np.float32)
    gradients = (
        jax.jit(jax.grad(lambda *a, f=f: jnp.sum(weight * f(*a, stride)), argnums=(0, 1)))(
            images, kernel
        )
        for f in (nature.convolve, reference)
    )
    for one, other in zip(*gradients, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kernels", [True, False])
def test_encoder_equals_the_published_network(kernels, monkeypatch):
    if not kernels:
        monkeypatch.setattr(native, "get", lambda name: None)
        jax.clear_caches()
    stacks = np.random.default_rng(0).integers(0, 256, (2, 4, 84, 84), np.uint8)
    encoder = nature.NatureEncoder()
    params = jax.jit(encoder.init)(jax.random.key(0), stacks)
    p = params["params"]
    assert {name: array.shape for name, array in p.items()} == {
        "conv1_kernel": (8, 8, 4, 32), "conv1_bias": (32,),
        "conv2_kernel": (4, 4, 32, 64), "conv2_bias": (64,),
        "conv3_kernel": (3, 3, 64, 64), "conv3_bias": (64,),
    }  # fmt: skip
    x = np.moveaxis(stacks, 1, -1) / np.float32(255)
    for layer, stride in ((1, 4), (2, 2), (3, 1)):
        x = jax.nn.relu(lax.convolve(x, p[f"conv{layer}_kernel"], p[f"conv{layer}_bias"], stride))
    psi = encoder.apply(params, stacks)
    assert psi.shape == (2, 3136) and psi.dtype == jnp.float32
    assert np.mean(np.asarray(psi) > 0) > 0.2
    np.testing.assert_allclose(psi, x.reshape(2, -1), rtol=1e-4, atol=1e-5)
    for layer, fan_in in ((1, 8 * 8 * 4), (2, 4 * 4 * 32), (3, 3 * 3 * 64)):
        for name in ("kernel", "bias"):
            values = np.ravel(p[f"conv{layer}_{name}"]) * np.sqrt(fan_in)
            assert stats.kstest(values, "uniform", args=(-1, 2)).pvalue > 1e-3


@pytest.mark.skipif(native.get("convolution") is None, reason="the kernels are not compiled")
@pytest.mark.parametrize("platform, calls", [("cpu", 3), ("cuda", 0)])
def test_every_layer_is_a_kernel_of_ours_on_the_cpu_alone(platform, calls):
    encoder = nature.NatureEncoder()
    stacks = jax.ShapeDtypeStruct((2, 4, 84, 84), np.uint8)
    params = jax.eval_shape(encoder.init, jax.random.key(0), stacks)
    lowered = jax.jit(encoder.apply).trace(params, stacks).lower(lowering_platforms=(platform,))
    assert lowered.as_text().count("call @rcrl_convolve") == calls


@pytest.mark.parametrize("images", [1, 3, 32])
def test_a_gradient_in_parts_equals_that_of_the_product(images):
    """With 32 images the 81 rows of each fall into 27 parts, with 1 or 3 into one."""
    rng = np.random.default_rng(images)
    x = rng.normal(size=(images, 9, 9, 16)).astype(np.float32)
    kernel = rng.normal(size=(16, 8)).astype(np.float32)
    weights = rng.normal(size=(images, 9, 9, 8)).astype(np.float32)
    found, expected = (
        jax.grad(lambda x, kernel, f=f: jnp.sum(weights * f(x, kernel)), argnums=(0, 1))(x, kernel)
        for f in (nature._multiply_in_parts, jnp.matmul)
    )
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
