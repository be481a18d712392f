"""A 3x3 convolution with fast gradients on the CPU, inside loops as well.

XLA's CPU compiler uses its fast convolution kernel inside a loop only if the dimensions are in one
particular order. A fleet calls an update inside a loop, and the gradients of `jax.grad` use other
orders: they ran at a fiftieth of the kernel's rate. On the CPU, the forward pass and both gradients
below are therefore written in that order. Some padding, cut off again, keeps XLA from choosing
another library's kernel, which took twice the time.

Two computations process a few images at a time, so that the operands of a product stay in the
cache: the gradient of the kernel, and the forward pass with few channels, as a product of patches.

GFLOP/s on one core, which multiplies large matrices at 211; in brackets, all images at once:

    input                        forward     image gradient   kernel gradient
    [N, 39, 39, 32], stride 1    180         130              120 (90 at N = 32, 50 at N = 128)
    [N, 84, 84, 9], stride 2     73 (40)                      65 (30)

Other platforms use `jax.lax.conv_general_dilated` and its own gradients.
"""

import functools

import chex
import jax
import jax.numpy as jnp
from jax import lax

_ORDER = ("NHWC", "HWIO", "NHWC")
_IMAGES = 4  # number of images computed at a time
_FEW_CHANNELS = 16  # up to this number of input channels, the forward pass is a product of patches


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def convolve(x: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    """Convolution without padding: `[N, H, W, I], [3, 3, I, O] -> [N, H', W', O]`.

    H' = (H - 3) // stride + 1; W' follows from W in the same way.
    """
    chex.assert_rank([x, kernel], 4)
    chex.assert_shape(kernel, (3, 3, x.shape[-1], None))
    return lax.platform_dependent(
        x,
        kernel,
        cpu=functools.partial(_convolve_cpu, stride=stride),
        default=functools.partial(_convolve, stride=stride),
    )


def _forward(x, kernel, stride):
    return convolve(x, kernel, stride), (x, kernel)


def _backward(stride, saved, gradient):
    return lax.platform_dependent(
        *saved,
        gradient,
        cpu=functools.partial(_gradients_cpu, stride=stride),
        default=functools.partial(_gradients, stride=stride),
    )


convolve.defvjp(_forward, _backward)


def _convolve(x, kernel, *, stride):
    return lax.conv_general_dilated(x, kernel, (stride, stride), "VALID", dimension_numbers=_ORDER)


def _gradients(x, kernel, gradient, *, stride):
    return jax.vjp(functools.partial(_convolve, stride=stride), x, kernel)[1](gradient)


def _convolve_cpu(x, kernel, *, stride):
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


def _gradients_cpu(x, kernel, gradient, *, stride):
    # Trailing rows and columns that no window covers.
    rest = [(size - 3) % stride for size in x.shape[1:3]]
    mirrored = kernel[::-1, ::-1].swapaxes(2, 3)
    x_gradient = lax.conv_general_dilated(
        gradient,
        mirrored,
        (1, 1),
        [(2, 2 + size) for size in rest],
        lhs_dilation=(stride, stride),
        dimension_numbers=_ORDER,
    )
    whole = len(x) // _IMAGES * _IMAGES
    in_parts = [a[:whole].reshape(-1, _IMAGES, *a.shape[1:]) for a in (x, gradient)]
    remainder = (
        _kernel_gradient(x[whole:], gradient[whole:], stride)
        if whole < len(x)
        else jnp.zeros_like(kernel)
    )
    kernel_gradient, _ = lax.scan(
        lambda total, part: (total + _kernel_gradient(*part, stride), None), remainder, in_parts
    )
    return x_gradient, kernel_gradient


def _kernel_gradient(x, gradient, stride):
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
