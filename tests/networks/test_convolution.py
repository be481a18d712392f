"""The convolution and its gradients, against those of jax.lax."""

import jax
import numpy as np
import pytest
from jax import lax

from rcrl_jax.networks import convolution


def reference(x, kernel, stride):
    return lax.conv_general_dilated(
        x, kernel, (stride, stride), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


@pytest.mark.parametrize("channels", [3, 20])  # few and many take different ways
@pytest.mark.parametrize("images", [2, 8, 9])  # computed four at a time
@pytest.mark.parametrize("stride, height, width", [(1, 7, 5), (2, 8, 9), (2, 9, 8)])
def test_equals_lax_forwards_and_backwards(stride, height, width, images, channels):
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
