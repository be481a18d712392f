"""Convolutions as products, and on devices, equal XLA's, gradients included."""

import functools

import chex
import jax
import numpy as np
import pytest

from rcrl_jax.ops import precision, strided_convolution
from tests.ops import lax
from tests.ops.test_device_convolutions import outputs_and_gradients

assert_close = functools.partial(chex.assert_trees_all_close, rtol=1e-4, atol=1e-4)


def by_xla(x, kernel, bias):
    return lax.convolve(x, kernel, bias, 2)


def transposed_by_xla(x, kernel, bias):
    around = [(len(kernel) - 1,) * 2] * 2
    return lax.convolve(x, kernel[::-1, ::-1], bias, 1, around, lhs_dilation=(2, 2))


def with_bias(convolve):
    return lambda x, kernel, bias: convolve(x, kernel) + bias[None, None, None]


@functools.cache
def of_xla(convolve, side, size):
    """Images, a kernel and a bias, and what XLA makes of them, gradients included."""
    rng = np.random.default_rng(0)
    shapes = (2, *size, 3), (side, side, 3, 4), (4,)
    arguments = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    return arguments, outputs_and_gradients(convolve, arguments)


@pytest.mark.parametrize(
    "side, size", [(3, (7, 8)), (4, (6, 9)), (5, (7, 8)), (6, (6, 9)), (6, (30, 30))], ids=str
)
@pytest.mark.parametrize(
    "mine, xla",
    [
        (strided_convolution.convolve, by_xla),
        (with_bias(strided_convolution.convolve_on_device), by_xla),
        (strided_convolution.convolve_transposed, transposed_by_xla),
        (with_bias(strided_convolution.convolve_transposed_on_device), transposed_by_xla),
    ],
    ids=["convolution", "on devices", "transposed", "transposed, on devices"],
)
def test_convolutions_equal_those_of_xla(mine, xla, size, side):
    arguments, expected = of_xla(xla, side, size)
    found = outputs_and_gradients(mine, arguments)
    assert_close(found, expected)


def test_outputs_on_devices_are_not_rounded_in_bfloat16():
    """In the program: a CPU computes bfloat16 in float32 and may leave the rounding out."""
    x, kernel = np.ones((1, 2, 2, 3), np.float32), np.ones((4, 4, 3, 2), np.float32)
    convolve = precision.at_precision(strided_convolution.convolve_transposed_on_device, "bfloat16")
    assert "bf16" not in jax.jit(convolve).lower(x, kernel).as_text()


def test_a_pixel_becomes_the_kernel_in_a_transposed_convolution():
    kernel = np.arange(25, dtype=np.float32).reshape(5, 5, 1, 1)
    x = np.zeros((1, 2, 2, 1), np.float32)
    x[0, 1, 0] = 2.0
    y = strided_convolution.convolve_transposed(x, kernel, np.float32([1.0]))
    expected = np.ones((7, 7), np.float32)
    expected[2:7, 0:5] += 2.0 * kernel[..., 0, 0]
    np.testing.assert_array_equal(y[0, :, :, 0], expected)


def test_a_single_pixel_becomes_the_kernel_without_blocks():
    rng = np.random.default_rng(0)
    x, kernel = rng.normal(size=(3, 1, 1, 4)), rng.normal(size=(5, 5, 4, 2))
    arguments = [a.astype(np.float32) for a in (x, kernel, np.ones(2))]
    found, expected = (
        outputs_and_gradients(f, arguments)
        for f in (strided_convolution.convolve_transposed, transposed_by_xla)
    )
    assert_close(found, expected)


@pytest.mark.parametrize(
    "mine, xla, side",
    [
        (strided_convolution.convolve, by_xla, 12),
        (strided_convolution.convolve_transposed, transposed_by_xla, 6),
    ],
    ids=["convolution", "transposed"],
)
@pytest.mark.parametrize("number, size, parts", [(12, 4, 3), (4, 4, 1), (7, 4, 1), (3, 1, 3)])
def test_parts_of_a_batch_change_neither_results_nor_gradients(
    monkeypatch, mine, xla, side, number, size, parts
):
    """Parts of 4 images: three; one; a prime number, which is not cut. Images one at a time."""
    monkeypatch.setattr(strided_convolution, "_MOST_BYTES", 4 * size * (4 * 2 * 2 * 2) * 6 * 6)
    rng = np.random.default_rng(0)
    x, kernel = rng.normal(size=(number, side, side, 2)), rng.normal(size=(4, 4, 2, 2))
    arguments = [a.astype(np.float32) for a in (x, kernel, np.zeros(2))]
    found, expected = (outputs_and_gradients(f, arguments) for f in (mine, xla))
    assert_close(found, expected)
    lowered = jax.jit(mine).lower(*arguments).as_text()
    assert ("while" in lowered) == (parts > 1)
    elsewhere = jax.jit(mine).trace(*arguments).lower(lowering_platforms=("tpu",))
    assert "while" not in elsewhere.as_text()
