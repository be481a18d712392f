"""The Nature encoder; `test_branches.py` compares what the encoder computes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from rcrl_jax.agents.rainbow.encoders import nature
from rcrl_jax.ops import native


def test_layers_have_the_published_sizes_and_initial_values():
    stacks = np.zeros((1, 4, 84, 84), np.uint8)
    p = jax.jit(nature.NatureEncoder().init)(jax.random.key(0), stacks)["params"]
    assert {name: array.shape for name, array in p.items()} == {
        "conv1_kernel": (8, 8, 4, 32), "conv1_bias": (32,),
        "conv2_kernel": (4, 4, 32, 64), "conv2_bias": (64,),
        "conv3_kernel": (3, 3, 64, 64), "conv3_bias": (64,),
    }  # fmt: skip
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
