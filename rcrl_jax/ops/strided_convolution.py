"""Convolutions of stride 2 and their transposes, for world models; SAC's fallback on the CPU.

On a CPU they are matrix products, gradients included. Blocks of 2 x 2 pixels become channels, so
that the stride is 1. `_correlate` gathers the windows of a few images at a time, which then lie in
the cache, and multiplies once. `_spread`, its transpose, multiplies once and adds shifted results.
Each is the other's gradient with respect to the images. XLA's gradients are slower: that of a
transposed convolution is slow inside loops, and that of gathering adds padded arrays.

Accelerators use XLA's convolutions, which store neither gathered blocks nor shifted results.

`as_product`, `as_cells` and `over_cells` cut images and kernels for the convolutions of others.
"""

import functools
from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp

_ORDER = ("NHWC", "HWIO", "NHWC")
_MOST_BYTES = 4 << 20  # of the windows that are gathered at a time


def _for_platforms(
    cpu: Callable[[jax.Array, jax.Array], jax.Array],
    device: Callable[[jax.Array, jax.Array], jax.Array],
) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """A bilinear function of images and kernel: `cpu` on CPUs, `device` elsewhere.

    The forward pass saves only the arguments. `platform_dependent` alone would save what the
    backward passes of both functions need.
    """

    def backward_of(function):
        return lambda x, kernel, gradient: jax.vjp(function, x, kernel)[1](gradient)

    @jax.custom_vjp
    def either(x, kernel):
        return jax.lax.platform_dependent(x, kernel, cpu=cpu, default=device)

    def forward(x, kernel):
        return either(x, kernel), (x, kernel)

    def backward(arguments, gradient):
        return jax.lax.platform_dependent(
            *arguments, gradient, cpu=backward_of(cpu), default=backward_of(device)
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


def convolve_on_device(x: jax.Array, kernel: jax.Array, stride: int = 2) -> jax.Array:
    """`convolve` by the compiler's own convolution, without a bias."""
    return jax.lax.conv_general_dilated(
        x, kernel, (stride, stride), "VALID", dimension_numbers=_ORDER
    )


def convolve_on_cpu(x: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    """A convolution as products of windows, without padding and without a bias."""
    return _correlate(_blocks(x, len(kernel), stride), kernel)


_convolve = _for_platforms(functools.partial(convolve_on_cpu, stride=2), convolve_on_device)


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


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def spread_on_device(x: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    """The transpose of `convolve_on_device`: `[N, H, W, I], [k, k, O, I] -> [N, H', W', O]`.

    H' = stride (H - 1) + k; W' follows from W in the same way.
    """
    # cuDNN dilates inputs only in the gradient with respect to the images, which XLA calls if it
    # sees that the kernel is reversed. Without the barrier, XLA would move the reversal away.
    mirrored = jax.lax.optimization_barrier(kernel)[::-1, ::-1].swapaxes(2, 3)
    return jax.lax.conv_general_dilated(
        x,
        mirrored,
        (1, 1),
        [(len(kernel) - 1,) * 2] * 2,
        lhs_dilation=(stride, stride),
        dimension_numbers=_ORDER,
    )


def _keep_for_device(x, kernel, stride):
    return spread_on_device(x, kernel, stride), (x, kernel)


def _gradients_on_device(stride, arguments, gradient):
    # For JAX's own gradient with respect to the kernel, XLA would mirror the images.
    x, kernel = arguments
    convolve_gradient = jax.linear_transpose(
        lambda k: convolve_on_device(gradient, k, stride), kernel
    )
    (kernel_gradient,) = convolve_gradient(x)
    return convolve_on_device(gradient, kernel, stride), kernel_gradient


spread_on_device.defvjp(_keep_for_device, _gradients_on_device)


def convolve_transposed_on_device(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """`convolve_transposed` by the compiler's own convolution, without a bias."""
    return spread_on_device(x, kernel.swapaxes(2, 3), 2)


def _convolve_transposed_on_cpu(x, kernel):
    n, height, width, channels = x.shape
    side, _, _, filters = kernel.shape
    if height == width == 1:
        y = x.reshape(n, channels) @ kernel.transpose(2, 0, 1, 3).reshape(channels, -1)
        return y.reshape(n, side, side, filters)
    blocks = _spread(x, kernel.swapaxes(2, 3))
    image = blocks.transpose(0, 1, 3, 2, 4, 5)
    image = image.reshape(n, 2 * blocks.shape[1], 2 * blocks.shape[2], filters)
    return image[:, : 2 * (height - 1) + side, : 2 * (width - 1) + side]


_convolve_transposed = _for_platforms(_convolve_transposed_on_cpu, convolve_transposed_on_device)


def as_product(x: jax.Array, kernel: jax.Array, stride: int) -> tuple[jax.Array, jax.Array]:
    """Windows `[N, H', W', F]` and weights `[F, O]`, whose product is the convolution.

    H' = (H - k) // s + 1; W' follows from W in the same way.

    Args:
      x: images `[N, H, W, I]`.
      kernel: `[k, k, I, O]`.
      stride: s.
    """
    cells, weights = as_cells(x, len(kernel), stride), over_cells(kernel, stride)
    taps = len(weights)
    rows, columns = (size - taps + 1 for size in cells.shape[1:3])
    shifted = [cells[:, i : i + rows, j : j + columns] for i in range(taps) for j in range(taps)]
    return jnp.concatenate(shifted, axis=-1), weights.reshape(-1, kernel.shape[-1])


def as_cells(x: jax.Array, side: int, stride: int) -> jax.Array:
    """`[N, H, W, C] -> [N, H', W', s s C]`: each block of s x s pixels as the channels of one cell.

    H' = (H - k) // s + ceil(k / s), as many as a kernel of side k reads with stride s; W' follows
    from W in the same way.
    """
    blocks = _blocks(x, side, stride)
    return blocks.reshape(*blocks.shape[:3], -1)


def over_cells(kernel: jax.Array, stride: int) -> jax.Array:
    """The kernel `[ceil(k / s), ceil(k / s), s s I, O]` over `as_cells`, which has stride 1."""
    side, _, _, filters = kernel.shape
    cells = as_cells(kernel.reshape(1, side, side, -1), side, stride)
    return cells.reshape(*cells.shape[1:3], -1, filters)


def _blocks(x, side, stride):
    """`as_cells` as `[N, H', W', s, s, C]`."""
    n, height, width, channels = x.shape
    full = jnp.pad(x, ((0, 0), (0, -height % stride), (0, -width % stride), (0, 0)))
    blocks = full.reshape(n, full.shape[1] // stride, stride, -1, stride, channels)
    rows, columns = ((size - side) // stride + -(-side // stride) for size in (height, width))
    return blocks.transpose(0, 1, 3, 2, 4, 5)[:, :rows, :columns]


@jax.custom_vjp
def _correlate(blocks: jax.Array, kernel: jax.Array) -> jax.Array:
    """`[N, H, W, s, s, C], [k, k, C, O] -> [N, H', W', O]`, a convolution of stride s.

    H' = H - ceil(k / s) + 1; W' follows from W in the same way.
    """
    weights = _arrange(kernel, blocks.shape[3])
    return _in_parts(lambda x: (None, _windows(x, len(kernel)) @ weights), kernel, blocks)[1]


@jax.custom_vjp
def _spread(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """`[N, H', W', O], [k, k, C, O] -> [N, H, W, 2, 2, C]`, the transpose of `_correlate`.

    Pixel (i, j) is multiplied by the whole kernel and added to the output from block (i, j) on.
    """
    weights = _arrange(kernel, 2)
    add_shifted = functools.partial(_add_shifted, weights=weights, side=len(kernel), stride=2)
    return _in_parts(lambda x: (None, add_shifted(x)), kernel, x)[1]


def _keep_for_correlate(blocks, kernel):
    return _correlate(blocks, kernel), (blocks, kernel)


def _gradients_of_correlate(arguments, gradient):
    blocks, kernel = arguments
    side, stride = len(kernel), blocks.shape[3]
    weights = _arrange(kernel, stride)

    def of_part(blocks, gradient):
        of_weights = _multiply_rows(gradient, _windows(blocks, side))
        return of_weights, _add_shifted(gradient, weights, side, stride)

    of_kernel, of_blocks = _in_parts(of_part, kernel, blocks, gradient)
    return of_blocks, _as_kernel(of_kernel, kernel, stride)


def _keep_for_spread(x, kernel):
    return _spread(x, kernel), (x, kernel)


def _gradients_of_spread(arguments, gradient):
    x, kernel = arguments
    weights = _arrange(kernel, 2)

    def of_part(x, gradient):
        windows = _windows(gradient, len(kernel))
        return _multiply_rows(x, windows), windows @ weights

    of_kernel, of_x = _in_parts(of_part, kernel, x, gradient)
    return of_x, _as_kernel(of_kernel, kernel, 2)


_correlate.defvjp(_keep_for_correlate, _gradients_of_correlate)
_spread.defvjp(_keep_for_spread, _gradients_of_spread)


def _places(side, stride):
    """Row and column of each block under a kernel, and how many of its rows and columns are read.

    A kernel whose side is no multiple of the stride reads only a part of the last blocks.
    """
    starts = range(0, side, stride)
    return [
        (i // stride, j // stride, min(stride, side - i), min(stride, side - j))
        for i in starts
        for j in starts
    ]


def _windows(blocks, side):
    """`[N, H, W, s, s, C] -> [N, H', W', k k C]`, what a kernel sees at each place."""
    n, height, width, stride = blocks.shape[:4]
    rows, columns = (size - -(-side // stride) + 1 for size in (height, width))
    seen = [
        blocks[:, i : i + rows, j : j + columns, :high, :wide].reshape(n, rows, columns, -1)
        for i, j, high, wide in _places(side, stride)
    ]
    return jnp.concatenate(seen, axis=-1)


def _arrange(kernel, stride):
    """`[k, k, C, O] -> [k k C, O]`, in the order of `_windows`."""
    return jnp.concatenate([
        kernel[i * stride :, j * stride :][:high, :wide].reshape(-1, kernel.shape[3])
        for i, j, high, wide in _places(len(kernel), stride)
    ])  # fmt: skip


def _as_kernel(gradient, kernel, stride):
    """`[O, k k C] -> [k, k, C, O]`, the reverse of `_arrange`."""
    (arranged,) = jax.linear_transpose(lambda kernel: _arrange(kernel, stride), kernel)(gradient.T)
    return arranged


def _add_shifted(x, weights, side, stride):
    """`[N, H', W', O] -> [N, H, W, s, s, C]`, the transpose of `_windows` and the product."""
    n, rows, columns, _ = x.shape
    products, start, total = x @ weights.T, 0, 0
    channels, last = len(weights) // side**2, -(-side // stride) - 1
    for i, j, high, wide in _places(side, stride):
        number = high * wide * channels
        block = products[..., start : start + number].reshape(n, rows, columns, high, wide, -1)
        around = (i, last - i), (j, last - j), (0, stride - high), (0, stride - wide)
        total += jnp.pad(block, ((0, 0), *around, (0, 0)))
        start += number
    return total


def _multiply_rows(x, windows):
    """`[N, H', W', O], [N, H', W', k k C] -> [O, k k C]`; XLA transposes `x`, the smaller one."""
    pixels = (0, 1, 2)
    return jax.lax.dot_general(x, windows, ((pixels, pixels), ((), ())))


def _in_parts(function, kernel, *images):
    """Computes `function(*images)` for as many images at a time as the cache holds.

    Args:
      function: takes images; returns a sum over them, or None, and a result `[N, ...]`.
      kernel: has the size of the windows that `function` gathers.
      *images: `[N, H, W, ...]`.
    """
    n, height, width = images[0].shape[:3]
    image_bytes = 4 * height * width * kernel[..., 0].size
    most = max(1, _MOST_BYTES // image_bytes)
    size = max(d for d in range(1, min(n, most) + 1) if n % d == 0)
    if size == n or size == 1 < most:  # single images only if two do not fit
        return function(*images)
    parts = [x.reshape(n // size, size, *x.shape[1:]) for x in images]
    of_part = jax.eval_shape(function, *(x[0] for x in parts))[0]
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), of_part)

    def add(total, part):
        of_part, result = function(*part)
        return jax.tree.map(jnp.add, total, of_part), result

    total, results = jax.lax.scan(add, zeros, parts)
    return total, results.reshape(n, *results.shape[2:])
