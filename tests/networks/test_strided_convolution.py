"""Convolutions as products, and on devices, equal XLA's, gradients included."""

import jax
import numpy as np
import pytest

from rcrl_jax.networks import strided_convolution
from tests.networks import lax
from tests.networks.test_device_convolutions import outputs_and_gradients


def by_xla(x, kernel, bias):
    return lax.convolve(x, kernel, bias, 2)


def transposed_by_xla(x, kernel, bias):
    around = [(len(kernel) - 1,) * 2] * 2
    return lax.convolve(x, kernel[::-1, ::-1], bias, 1, around, lhs_dilation=(2, 2))


@pytest.mark.parametrize(
    "side, size", [(3, (7, 8)), (4, (6, 9)), (5, (7, 8)), (6, (6, 9))], ids=str
)
@pytest.mark.parametrize(
    "mine, xla",
    [
        (strided_convolution.convolve, by_xla),
        (strided_convolution.convolve_on_device, by_xla),
        (strided_convolution.convolve_transposed, transposed_by_xla),
        (strided_convolution.convolve_transposed_on_device, transposed_by_xla),
    ],
    ids=["convolution", "on devices", "transposed", "transposed, on devices"],
)
def test_convolutions_equal_those_of_xla(mine, xla, size, side):
    rng = np.random.default_rng(0)
    shapes = (2, *size, 3), (side, side, 3, 4), (4,)
    arguments = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    found, expected = (outputs_and_gradients(f, arguments) for f in (mine, xla))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), found, expected
    )


def test_a_pixel_becomes_the_kernel_in_a_transposed_convolution():
    kernel = np.arange(25, dtype=np.float32).reshape(5, 5, 1, 1)
    x = np.zeros((1, 2, 2, 1), np.float32)
    x[0, 1, 0] = 2.0
    y = strided_convolution.convolve_transposed(x, kernel, np.float32([1.0]))
    expected = np.ones((7, 7), np.float32)
    expected[2:7, 0:5] += 2.0 * kernel[..., 0, 0]
    np.testing.assert_array_equal(y[0, :, :, 0], expected)


@pytest.mark.parametrize("number", [40, 20, 37])
def test_chunks_change_neither_results_nor_gradients(number):
    """Two chunks of 20; one; a prime number, which is not cut."""
    rng = np.random.default_rng(0)
    x, kernel = rng.normal(size=(number, 6, 6, 2)), rng.normal(size=(4, 4, 2, 3))
    arguments = [a.astype(np.float32) for a in (x, kernel, np.zeros(3))]

    def chunked(x, kernel, bias):
        return strided_convolution.in_chunks(
            lambda part: strided_convolution.convolve(part, kernel, bias), x
        )

    found = outputs_and_gradients(chunked, arguments)
    expected = outputs_and_gradients(strided_convolution.convolve, arguments)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    lowered = jax.jit(chunked).lower(*arguments).as_text()
    assert ("while" in lowered) == (number == 40)
    elsewhere = jax.jit(chunked).trace(*arguments).lower(lowering_platforms=("tpu",))
    assert "while" not in elsewhere.as_text()
