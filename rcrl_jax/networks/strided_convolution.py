"""Convolutions of stride 2 and their transposes, for world models.

On a CPU they are matrix products. An image is cut into blocks of 2 x 2 pixels. A convolution
gathers shifted blocks and multiplies once; a transposed convolution multiplies once and adds
shifted results. The gradients are products and shifted sums as well. So they are fast inside loops,
where XLA's own gradient of a transposed convolution is not. `in_chunks` keeps what lies between two
layers in the cache.

Accelerators have convolutions of their own, which write neither gathered blocks nor what is added.
"""

from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp

from rcrl_jax.networks import device_convolutions

_MOST_IMAGES = 32  # of a chunk


def in_chunks(function: Callable[[jax.Array], jax.Array], x: jax.Array) -> jax.Array:
    """`function(x)`, on a CPU for a few rows at a time.

    The results of a layer for all frames of a batch fill hundreds of megabytes, which a CPU writes
    to memory and reads again. An accelerator takes all rows at once.

    Args:
      function: of images or features `[N, ...]`, row by row.
      x: `[N, ...]`.
    """
    n = len(x)
    size = max(d for d in range(1, _MOST_IMAGES + 1) if n % d == 0)
    if size in (n, 1):
        return function(x)

    def chunked(x):
        results = jax.lax.map(function, x.reshape(n // size, size, *x.shape[1:]))
        return results.reshape(n, *results.shape[2:])

    return jax.lax.platform_dependent(x, cpu=chunked, default=function)


def convolve(x: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
    """A convolution of stride 2 without padding: `[N, H, W, I] -> [N, H', W', O]`.

    H' = (H - k) // 2 + 1; W' follows from W in the same way.

    Args:
      x: images.
      kernel: `[k, k, I, O]`, axes row, column, channel in, channel out.
      bias: `[O]`.
    """
    chex.assert_rank([x, kernel, bias], [4, 4, 1])
    return jax.lax.platform_dependent(
        x, kernel, bias, cpu=multiply_blocks, default=convolve_on_device
    )


def convolve_on_device(x: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
    """`convolve` by the compiler's own convolution."""
    order = ("NHWC", "HWIO", "NHWC")
    y = jax.lax.conv_general_dilated(x, kernel, (2, 2), "VALID", dimension_numbers=order)
    return y + bias[None, None, None]


def multiply_blocks(x: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
    """`convolve` as a product of gathered blocks."""
    n, height, width, channels = x.shape
    side, _, _, filters = kernel.shape
    rows, columns = ((size - side) // 2 + 1 for size in (height, width))
    even = jnp.pad(x, ((0, 0), (0, height % 2), (0, width % 2), (0, 0)))
    blocks = even.reshape(n, even.shape[1] // 2, 2, even.shape[2] // 2, 2, channels)
    blocks = blocks.transpose(0, 1, 3, 2, 4, 5)  # [N, H / 2, W / 2, 2, 2, I]
    patches, weights = [], []
    for down in range(0, side, 2):
        for right in range(0, side, 2):
            # An odd kernel reads half of its last blocks.
            high, wide = min(2, side - down), min(2, side - right)
            own = blocks[:, down // 2 :, right // 2 :, :high, :wide][:, :rows, :columns]
            patches.append(own.reshape(n, rows, columns, -1))
            part = kernel[down : down + high, right : right + wide]
            weights.append(part.reshape(-1, filters))
    product = jnp.concatenate(patches, axis=-1) @ jnp.concatenate(weights)
    return product + bias[None, None, None]


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
    return jax.lax.platform_dependent(
        x, kernel, bias, cpu=add_shifted, default=convolve_transposed_on_device
    )


def convolve_transposed_on_device(x: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
    """`convolve_transposed` by the compiler's own convolution."""
    mirrored = kernel[::-1, ::-1]
    return device_convolutions.convolve_transposed(x, mirrored, bias, stride=2, relu=False)


def add_shifted(x: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
    """`convolve_transposed` as one product whose shifted results are added."""
    n, height, width, channels = x.shape
    side, _, _, filters = kernel.shape
    parts = (side + 1) // 2  # blocks of 2 x 2 pixels in a row of the kernel
    spread = x @ kernel.transpose(2, 0, 1, 3).reshape(channels, -1)
    spread = spread.reshape(n, height, width, side, side, filters)
    odd = (0, side % 2)
    spread = jnp.pad(spread, ((0, 0), (0, 0), (0, 0), odd, odd, (0, 0)))
    spread = spread.reshape(n, height, width, parts, 2, parts, 2, filters)
    down = sum(
        jnp.pad(spread[:, :, :, p], ((0, 0), (p, parts - 1 - p), *[(0, 0)] * 5))
        for p in range(parts)
    )  # [N, H + parts - 1, W, 2, parts, 2, O]
    blocks = sum(
        jnp.pad(down[:, :, :, :, p], ((0, 0), (0, 0), (p, parts - 1 - p), *[(0, 0)] * 3))
        for p in range(parts)
    )  # [N, H + parts - 1, W + parts - 1, 2, 2, O]
    image = blocks.transpose(0, 1, 3, 2, 4, 5).reshape(
        n, 2 * blocks.shape[1], 2 * blocks.shape[2], filters
    )
    rows, columns = (2 * (size - 1) + side for size in (height, width))
    return image[:, :rows, :columns] + bias[None, None, None]
