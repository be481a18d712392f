"""The convolution and its gradients equal those of jax.lax."""

import jax
import numpy as np
import pytest
from jax import lax

from rcrl_jax.networks import convolution


def reference(x, kernel, stride):
    return lax.conv_general_dilated(
        x, kernel, (stride, stride), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


@pytest.mark.parametrize("channels", [3, 20])  # few and many channels take different paths
@pytest.mark.parametrize("images", [2, 8, 9])  # whole and partial groups of four
@pytest.mark.parametrize("stride, height, width", [(1, 7, 5), (2, 8, 9), (2, 9, 8)])
def test_output_and_gradients_equal_those_of_lax(stride, height, width, images, channels):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(images, height, width, channels)).astype(np.float32)
    kernel = rng.normal(size=(3, 3, channels, 4)).astype(np.float32)
    shape = reference(x, kernel, stride).shape
    gradient = rng.normal(size=shape).astype(np.float32)
    results = []
    for function in (convolution.convolve, reference):

        def both(x, kernel, function=function):
            y, backwards = jax.vjp(lambda x, kernel: function(x, kernel, stride), x, kernel)
            return y, backwards(gradient)

        results.append(jax.tree.leaves(jax.jit(both)(x, kernel)))
    for mine, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)


def test_shapes_are_checked():
    images, kernel = np.zeros((1, 5, 5, 3), np.float32), np.zeros((3, 3, 4, 2), np.float32)
    with pytest.raises(AssertionError):
        convolution.convolve(images, kernel, 1)  # 3 channels, 4 expected
    with pytest.raises(AssertionError):
        convolution.convolve(images[0], kernel[:, :, :3], 1)
