"""What accelerators compute for SAC's images, in bfloat16; `test_branches.py` has float32."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rcrl_jax.agents.sac import network as sac
from rcrl_jax.ops import device_convolutions, precision

RNG = np.random.default_rng(0)
FILTERS = 8


def convolutions(channels: int, scale: float = 1.0, bias: float = 0.0):
    shapes = [(3, 3, channels, FILTERS), *[(3, 3, FILTERS, FILTERS)] * 3]
    return [
        ((scale * RNG.normal(size=s) / np.sqrt(np.prod(s[:3]))).astype(np.float32),
         (bias + RNG.normal(size=s[3]) / 10).astype(np.float32))
        for s in shapes
    ]  # fmt: skip


def outputs_and_gradients(function, arguments):
    """Outputs, and gradients by the arguments of a random weighted sum of them."""

    def weighted(*arguments):
        y = function(*arguments)
        return jnp.sum(y * np.random.default_rng(1).normal(size=y.shape)), y

    by = range(len(arguments))
    found = jax.jit(jax.grad(weighted, argnums=tuple(by), has_aux=True))(*arguments)
    return jax.tree.map(np.asarray, found)


def assert_close(mine, theirs):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=3e-2 * np.abs(b).max()),
        mine,
        theirs,
    )


def test_encoding_in_bfloat16_is_close_to_that_of_the_cpu():
    """All outputs are positive, since one near zero may round to either side of the ReLU."""
    pixels = RNG.integers(0, 256, (5, 17, 17, 9), np.uint8)
    parameters = convolutions(9, scale=0.1, bias=3.0)

    def on_device(parameters):
        return precision.at_precision(device_convolutions.encode, "bfloat16")(pixels, parameters)

    expected = outputs_and_gradients(lambda p: sac._convolve_on_cpu(pixels, p), [parameters])
    assert_close(outputs_and_gradients(on_device, [parameters]), expected)


def test_a_transposed_convolution_in_bfloat16_is_close_to_that_of_the_cpu():
    x = RNG.normal(size=(3, 5, 7, 4)).astype(np.float32)
    kernel = RNG.normal(size=(3, 3, 4, 6)).astype(np.float32)
    bias = (30 + RNG.normal(size=6)).astype(np.float32)
    fields = {"stride": 1, "relu": True}
    on_cpu = functools.partial(sac._convolve_spread, **fields)
    on_device = functools.partial(device_convolutions.convolve_transposed, **fields)
    arguments = [x, kernel, bias]
    mine = outputs_and_gradients(precision.at_precision(on_device, "bfloat16"), arguments)
    assert_close(mine, outputs_and_gradients(on_cpu, arguments))


@pytest.mark.parametrize("relu", [False, True])
def test_in_bfloat16_the_gradient_of_a_bias_is_summed_in_float32(relu):
    def loss(bias):
        y = device_convolutions.convolve_transposed(
            np.ones((2, 3, 3, 4), np.float32), np.ones((3, 3, 4, 6), np.float32), bias, 2, relu
        )
        return jnp.sum(jnp.square(y))

    gradient = precision.at_precision(jax.grad(loss), "bfloat16")
    text = str(jax.make_jaxpr(gradient)(np.ones(6, np.float32)))
    assert ":bf16[2,7,7,6]" in text
    assert set(re.findall(r":(\w+)\[6\] = reduce_sum", text)) == {"f32"}


def test_in_bfloat16_all_that_the_backward_pass_reads_is_stored_in_it_or_as_bytes():
    pixels = RNG.integers(0, 256, (2, 17, 17, 9), np.uint8)
    encode = precision.at_precision(device_convolutions.encode, "bfloat16")
    _, backward = jax.vjp(functools.partial(encode, pixels), convolutions(9))
    images = [x.dtype for x in jax.tree.leaves(backward) if x.ndim == 4 and x.shape[0] == 2]
    assert len(images) >= 4 and {str(dtype) for dtype in images} <= {"bfloat16", "uint8"}


def test_the_images_have_no_gradient():
    """Of the layers, all but the first have two products in the backward pass."""
    pixels, parameters = RNG.integers(0, 256, (2, 17, 17, 9), np.uint8), convolutions(9)
    gradient = jax.grad(lambda p: device_convolutions.encode(pixels, p).sum())
    lowered = jax.jit(gradient).lower(parameters).as_text()
    assert lowered.count("stablehlo.convolution") == 4 + 4 + 3


@pytest.mark.parametrize("size", [16, 39200, 7])
def test_a_product_in_parts_equals_the_product(size):
    x, kernel = (RNG.normal(size=s).astype(np.float32) for s in ((3, size), (size, 4)))
    np.testing.assert_allclose(sac._multiply_in_parts(x, kernel), x @ kernel, atol=1e-3)
