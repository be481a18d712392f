"""The convolution on the CPU by XLA, for machines that could not compile `convolution.cc`.

XLA uses its fast convolution kernel inside a loop only if the dimensions are in one particular
order. A fleet calls an update inside a loop, and the gradients of `jax.grad` use other orders: they
ran at a fiftieth of the kernel's rate. The forward pass and both gradients are therefore written in
that order. Some padding, cut off again, keeps XLA from choosing another library's kernel, which
took twice the time. The forward pass with few channels, as a product of patches, and the gradient
of the kernel process a few images at a time, so that the operands of a product stay in the cache.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax

_ORDER = ("NHWC", "HWIO", "NHWC")
_IMAGES = 4  # number of images computed at a time
_FEW_CHANNELS = 16  # up to this number of input channels, the forward pass is a product of patches


def convolve(x: jax.Array, kernel: jax.Array, *, stride: int) -> jax.Array:
    """`[N, H, W, I], [3, 3, I, O] -> [N, H', W', O]`, see `convolution.convolve`."""
    if x.shape[3] <= _FEW_CHANNELS:
        multiply = functools.partial(_multiply_patches, kernel=kernel, stride=stride)
        return lax.map(multiply, x, batch_size=_IMAGES)
    width = (x.shape[2] - 3) // stride + 1
    padding = ((0, 0), (0, stride))
    y = lax.conv_general_dilated(x, kernel, (stride, stride), padding, dimension_numbers=_ORDER)
    return y[:, :, :width]


def _multiply_patches(image, kernel, *, stride):
    """The convolution of one image as a product: `[H, W, I] -> [H', W', O]`."""
    height, width = ((size - 3) // stride + 1 for size in image.shape[:2])
    patches = jnp.concatenate(
        [
            image[row : row + height * stride : stride, column : column + width * stride : stride]
            for row in range(3)
            for column in range(3)
        ],
        axis=-1,
    )
    # Without the barrier, XLA gathers the patches again inside the loops of the product.
    patches = lax.optimization_barrier(patches.reshape(height * width, -1))
    return (patches @ kernel.reshape(patches.shape[1], -1)).reshape(height, width, -1)


def image_gradient(
    x: jax.Array, kernel: jax.Array, gradient: jax.Array, *, stride: int
) -> jax.Array:
    """Gradient by the images; arguments as of `kernel_gradient`."""
    # Trailing rows and columns that no window covers.
    rest = [(size - 3) % stride for size in x.shape[1:3]]
    mirrored = kernel[::-1, ::-1].swapaxes(2, 3)
    return lax.conv_general_dilated(
        gradient,
        mirrored,
        (1, 1),
        [(2, 2 + size) for size in rest],
        lhs_dilation=(stride, stride),
        dimension_numbers=_ORDER,
    )


def kernel_gradient(
    x: jax.Array, kernel: jax.Array, gradient: jax.Array, *, stride: int
) -> jax.Array:
    """Gradient by the kernel.

    Args:
      x: `[N, H, W, I]`, what was convolved.
      kernel: `[3, 3, I, O]`.
      gradient: `[N, H', W', O]`, of the outputs.
      stride: in pixels.
    """
    whole = len(x) // _IMAGES * _IMAGES
    in_parts = [a[:whole].reshape(-1, _IMAGES, *a.shape[1:]) for a in (x, gradient)]
    remainder = (
        _correlate(x[whole:], gradient[whole:], stride)
        if whole < len(x)
        else jnp.zeros_like(kernel)
    )
    total, _ = lax.scan(
        lambda total, part: (total + _correlate(*part, stride), None), remainder, in_parts
    )
    return total


def _correlate(x, gradient, stride):
    """Correlates the images with the output's gradient; channels and batch swap their axes."""
    kernel_gradient = lax.conv_general_dilated(
        x.transpose(3, 1, 2, 0),
        gradient.transpose(1, 2, 0, 3),
        (1, 1),
        ((0, 0), (0, 1)),
        rhs_dilation=(stride, stride),
        dimension_numbers=_ORDER,
    )
    return kernel_gradient[:, :3, :3].transpose(1, 2, 0, 3)
