"""SAC's convolutions on accelerators, and the transposed convolutions of its decoder.

Memory traffic limits these updates, so each array is written once, in the type that the next
product reads:

* Pixels stay bytes until the first product. We divide its kernel by 255 instead of the pixels.
* The first layer has stride 2. Blocks of 2 x 2 pixels become channels, and the kernel becomes 2 x 2
  with stride 1. So there are 36 channels: 9 would leave most of a matrix unit idle.
* At precision 'bfloat16', SAC's convolutions store outputs and their gradients in bfloat16.
"""

from collections.abc import Sequence

import chex
import jax
import jax.numpy as jnp
from jax import lax

from rcrl_jax.ops import precision, strided_convolution

_LOADED = 16  # bytes that a GPU loads at once


def encode(pixels: jax.Array, parameters: Sequence[tuple[jax.Array, jax.Array]]) -> jax.Array:
    """3x3 convolutions without padding, each with bias and ReLU; the first has stride 2.

    Args:
      pixels: `[N, H, W, I] uint8`.
      parameters: kernel `[3, 3, I, O]` and bias `[O]` of each layer, float32; the first kernel
        applies to pixels in [0, 1].

    Returns:
      `[N, H', W', O] float32`.
    """
    chex.assert_rank(pixels, 4)
    chex.assert_type(pixels, jnp.uint8)
    (first, first_bias), *rest = parameters
    x = _fill_channels(strided_convolution.as_cells(pixels, len(first), 2), 3)
    first = _fill_channels(strided_convolution.over_cells(first / 255.0, 2), 2)
    x = x.astype(_stored_type())
    for kernel, bias in ((first, first_bias), *rest):
        y = strided_convolution.convolve_on_device(x, kernel.astype(x.dtype), 1)
        x = _add_bias_and_relu(y, bias)
    return x.astype(jnp.float32)


def convolve_transposed(
    x: jax.Array,
    kernel: jax.Array,
    bias: jax.Array,
    stride: int,
    relu: bool,
) -> jax.Array:
    """A transposed convolution with bias: `[N, H, W, I] -> [N, H', W', O]` float32.

    H' = stride * (H - 1) + k; W' follows from W in the same way.

    Args:
      x: images.
      kernel: `[k, k, I, O]`, mirrored: the kernel that is convolved with the spaced pixels.
      bias: `[O]`.
      stride: distance of the inputs' pixels in the outputs.
      relu: whether negative outputs become 0.
    """
    dtype = _stored_type()
    unmirrored = kernel[::-1, ::-1].swapaxes(2, 3).astype(dtype)
    y = strided_convolution.spread_on_device(x.astype(dtype), unmirrored, stride)
    if relu:
        return _add_bias_and_relu(y, bias).astype(jnp.float32)
    return y.astype(jnp.float32) + bias[None, None, None]  # the bias's gradient is a float32 sum


@jax.custom_vjp
def _add_bias_and_relu(y, bias):
    return jax.nn.relu(y + bias.astype(y.dtype)[None, None, None])


def _forward(y, bias):
    # Without the barrier, XLA's backward pass tests the sign of the sum, not of the ReLU's output.
    # Then it keeps both arrays, and does not fuse the ReLU into cuDNN's kernel.
    x = lax.optimization_barrier(_add_bias_and_relu(y, bias))
    return x, x


def _backward(x, gradient):
    passed = jnp.where(x > 0, gradient, 0)
    return passed, jnp.sum(passed, (0, 1, 2), dtype=jnp.float32)


_add_bias_and_relu.defvjp(_forward, _backward)


def _fill_channels(x, axis):
    missing = -x.shape[axis] % (_LOADED // jnp.dtype(_stored_type()).itemsize)
    return jnp.pad(x, [(0, missing if i == axis else 0) for i in range(x.ndim)])


def _stored_type():
    return jnp.bfloat16 if precision.is_bfloat16() else jnp.float32
