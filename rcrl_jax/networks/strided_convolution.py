"""Convolutions of stride 2 and their transposes, for world models.

On a CPU they are matrix products, gradients included. Blocks of 2 x 2 pixels become channels, so
that the stride is 1. `_correlate` gathers the windows of a few images at a time, which then lie in
the cache, and multiplies once. `_spread`, its transpose, multiplies once and adds shifted results.
Each is the other's gradient by the images. XLA's own gradient of a transposed convolution is slow
inside loops, and that of gathering adds padded arrays.

Accelerators have convolutions of their own, which write neither gathered blocks nor what is added.
"""

from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp

from rcrl_jax.networks import device_convolutions

_MOST_BYTES = 4 << 20  # of the windows that are gathered at a time


def _for_platforms(
    cpu: Callable[[jax.Array, jax.Array], jax.Array],
    device: Callable[[jax.Array, jax.Array], jax.Array],
) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """A function of images and kernel, bilinear, that computes in one way on CPUs.

    Its gradients keep the arguments alone; those of a choice by platform would keep what either way
    keeps.
    """

    def of_gradient(way):
        return lambda x, kernel, gradient: jax.vjp(way, x, kernel)[1](gradient)

    @jax.custom_vjp
    def either(x, kernel):
        return jax.lax.platform_dependent(x, kernel, cpu=cpu, default=device)

    def forward(x, kernel):
        return either(x, kernel), (x, kernel)

    def backward(arguments, gradient):
        return jax.lax.platform_dependent(
            *arguments, gradient, cpu=of_gradient(cpu), default=of_gradient(device)
        )

    either.defvjp(forward, backward)
    return either


def convolve(x: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
    """A convolution of stride 2 without padding: `[N, H, W, I] -> [N, H', W', O]`.

    H' = (H - k) // 2 + 1; W' follows from W in the same way.

    Args:
      x: images.
      kernel: `[k, k, I, O]`, axes row, column, channel in, channel out.
      bias: `[O]`.
    """
    chex.assert_rank([x, kernel, bias], [4, 4, 1])
    return _convolve(x, kernel) + bias[None, None, None]


def convolve_on_device(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """`convolve` by the compiler's own convolution, without a bias."""
    order = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, kernel, (2, 2), "VALID", dimension_numbers=order)


def _convolve_on_cpu(x, kernel):
    parts = (len(kernel) + 1) // 2  # blocks in a row of the kernel
    rows, columns = ((side - len(kernel)) // 2 + parts for side in x.shape[1:3])
    return _correlate(_blocks(x)[:, :rows, :columns], _block_kernel(kernel))


_convolve = _for_platforms(_convolve_on_cpu, convolve_on_device)


def convolve_transposed(x: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
    """A transposed convolution of stride 2 without padding: `[N, H, W, I] -> [N, H', W', O]`.

    Pixel (i, j) is multiplied by the whole kernel and added to the output from (2 i, 2 j) on.
    H' = 2 (H - 1) + k; W' follows from W in the same way.

    Args:
      x: images.
      kernel: `[k, k, I, O]`, axes row, column, channel in, channel out.
      bias: `[O]`.
    """
    chex.assert_rank([x, kernel, bias], [4, 4, 1])
    return _convolve_transposed(x, kernel) + bias[None, None, None]


def convolve_transposed_on_device(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """`convolve_transposed` by the compiler's own convolution, without a bias."""
    mirrored, no_bias = kernel[::-1, ::-1], jnp.zeros(kernel.shape[3])
    return device_convolutions.convolve_transposed(x, mirrored, no_bias, stride=2, relu=False)


def _convolve_transposed_on_cpu(x, kernel):
    n, height, width, channels = x.shape
    side, _, _, filters = kernel.shape
    if height == width == 1:
        y = x.reshape(n, channels) @ kernel.transpose(2, 0, 1, 3).reshape(channels, -1)
        return y.reshape(n, side, side, filters)
    blocks = _spread(x, _block_kernel(kernel.swapaxes(2, 3)))
    image = blocks.reshape(*blocks.shape[:3], 2, 2, filters).transpose(0, 1, 3, 2, 4, 5)
    image = image.reshape(n, 2 * blocks.shape[1], 2 * blocks.shape[2], filters)
    return image[:, : 2 * (height - 1) + side, : 2 * (width - 1) + side]


_convolve_transposed = _for_platforms(_convolve_transposed_on_cpu, convolve_transposed_on_device)


def _blocks(x):
    """`[N, H, W, C] -> [N, (H + 1) // 2, (W + 1) // 2, 4 C]`."""
    n, height, width, channels = x.shape
    even = jnp.pad(x, ((0, 0), (0, height % 2), (0, width % 2), (0, 0)))
    rows, columns = even.shape[1] // 2, even.shape[2] // 2
    blocks = even.reshape(n, rows, 2, columns, 2, channels).transpose(0, 1, 3, 2, 4, 5)
    return blocks.reshape(n, rows, columns, 4 * channels)


def _block_kernel(kernel):
    """`[k, k, C, O] -> [(k + 1) // 2, (k + 1) // 2, 4 C, O]`, for the channels of `_blocks`."""
    return _blocks(kernel.transpose(3, 0, 1, 2)).transpose(1, 2, 3, 0)


@jax.custom_vjp
def _correlate(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """`[N, H, W, C], [k, k, C, O] -> [N, H - k + 1, W - k + 1, O]`, of stride 1."""
    return _in_parts(lambda x: (None, _multiply_windows(_windows(x, kernel), kernel)), kernel, x)[1]


@jax.custom_vjp
def _spread(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """`[N, H, W, C], [k, k, O, C] -> [N, H + k - 1, W + k - 1, O]`, the transpose of `_correlate`.

    Pixel (i, j) is multiplied by the whole kernel and added to the output from (i, j) on.
    """
    return _in_parts(lambda x: (None, _add_shifted(x, kernel)), kernel, x)[1]


def _keep(function):
    return lambda x, kernel: (function(x, kernel), (x, kernel))


def _gradients_of_correlate(arguments, gradient):
    x, kernel = arguments

    def of_part(x, gradient):
        return _multiply_rows(gradient, _windows(x, kernel)), _add_shifted(gradient, kernel)

    of_kernel, of_x = _in_parts(of_part, kernel, x, gradient)
    return of_x, _as_kernel(of_kernel, kernel)


def _gradients_of_spread(arguments, gradient):
    x, kernel = arguments

    def of_part(x, gradient):
        windows = _windows(gradient, kernel)
        return _multiply_rows(x, windows), _multiply_windows(windows, kernel)

    of_kernel, of_x = _in_parts(of_part, kernel, x, gradient)
    return of_x, _as_kernel(of_kernel, kernel)


_correlate.defvjp(_keep(_correlate), _gradients_of_correlate)
_spread.defvjp(_keep(_spread), _gradients_of_spread)


def _windows(x, kernel):
    """`[N, H, W, C] -> [N, H - k + 1, W - k + 1, k k C]`, what the kernel sees at each place."""
    rows, columns = (side - len(kernel) + 1 for side in x.shape[1:3])
    places = range(len(kernel))
    return jnp.concatenate(
        [x[:, i : i + rows, j : j + columns] for i in places for j in places], axis=-1
    )


def _multiply_windows(windows, kernel):
    """`[N, H, W, k k C] -> [N, H, W, O]`."""
    return windows @ kernel.reshape(-1, kernel.shape[3])


def _add_shifted(x, kernel):
    """`[N, H, W, O] -> [N, H + k - 1, W + k - 1, C]`, the transpose of windows and product."""
    side, _, channels, filters = kernel.shape
    products = (x @ kernel.reshape(-1, filters).T).reshape(*x.shape[:3], side, side, channels)
    return sum(
        jnp.pad(products[:, :, :, i, j], ((0, 0), (i, side - 1 - i), (j, side - 1 - j), (0, 0)))
        for i in range(side)
        for j in range(side)
    )


def _multiply_rows(x, windows):
    """`[N, H, W, O], [N, H, W, k k C] -> [O, k k C]`: the smaller operand is the transposed one."""
    pixels = (0, 1, 2)
    return jax.lax.dot_general(x, windows, ((pixels, pixels), ((), ())))


def _as_kernel(gradient, kernel):
    """`[O, k k C] -> [k, k, C, O]`."""
    return gradient.T.reshape(kernel.shape)


def _in_parts(function, kernel, *images):
    """`function(*images)`, for as many images at a time as a cache holds.

    Args:
      function: of images; returns a sum over them, or None, and a result `[N, ...]`.
      kernel: of the windows that it gathers.
      *images: `[N, H, W, C]`.
    """
    n, height, width, _ = images[0].shape
    image_bytes = 4 * height * width * kernel[..., 0].size
    most = max(1, _MOST_BYTES // image_bytes)
    size = max(d for d in range(1, min(n, most) + 1) if n % d == 0)
    if size in (n, 1):
        return function(*images)
    parts = [x.reshape(n // size, size, *x.shape[1:]) for x in images]
    of_part = jax.eval_shape(function, *(x[0] for x in parts))[0]
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), of_part)

    def add(total, part):
        of_part, result = function(*part)
        return jax.tree.map(jnp.add, total, of_part), result

    total, results = jax.lax.scan(add, zeros, parts)
    return total, results.reshape(n, *results.shape[2:])
