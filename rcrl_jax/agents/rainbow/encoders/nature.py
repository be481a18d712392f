"""The Nature DQN encoder, which the original Rainbow uses."""

import functools
from collections.abc import Callable

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from rcrl_jax.agents.rainbow.encoders import Encoder
from rcrl_jax.networks import initializers
from rcrl_jax.ops import convolution

_LAYERS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # channels out, kernel, stride
_MOST_PARTS = 32
_TILE = 32  # rows of a tile of a product on a GPU


def convolve(
    images: jax.Array,
    kernel: jax.Array,
    stride: int,
    multiply: Callable[[jax.Array, jax.Array], jax.Array] | None = None,
) -> jax.Array:
    """A convolution without padding, as one matrix product.

    Each block of `stride` x `stride` pixels becomes the channels of one cell. The convolution over
    cells has stride 1 and k = K / stride taps per side; its k * k shifted inputs are concatenated.
    `jax.vmap` over runs turns the product into a batched product, but would turn a convolution into
    a slow grouped convolution.

    Args:
      images: `[N, H, W, in]`; H and W are multiples of the stride.
      kernel: `[K, K, in, out]`; K is a multiple of the stride.
      stride: in pixels.
      multiply: computes the product `[N, Y, X, F], [F, out]`; None: in parts on a GPU.

    Returns:
      `[N, (H - K) / stride + 1, (W - K) / stride + 1, out]`.
    """
    cells, weights = _as_cells(images, kernel, stride)
    taps, (_, rows, columns, _) = len(weights), cells.shape
    rows, columns = rows - taps + 1, columns - taps + 1
    shifted = [cells[:, i : i + rows, j : j + columns] for i in range(taps) for j in range(taps)]
    weights = weights.reshape(-1, weights.shape[-1])
    patches = jnp.concatenate(shifted, axis=-1)
    if multiply is not None:
        return multiply(jax.lax.optimization_barrier(patches), weights)
    return jax.lax.platform_dependent(patches, weights, cuda=_multiply_in_parts, default=jnp.matmul)


def _as_cells(images, kernel, stride):
    """Cells `[N, H / s, W / s, s s in]`, and the kernel `[K / s, K / s, s s in, out]` over them."""
    chex.assert_rank([images, kernel], 4)
    chex.assert_shape(kernel, (kernel.shape[0], kernel.shape[0], images.shape[-1], None))
    chex.assert_is_divisible(kernel.shape[0], stride)
    n, height, width, channels_in = images.shape
    taps, channels_out = kernel.shape[0] // stride, kernel.shape[-1]
    rows, columns = height // stride, width // stride
    cells = images.reshape(n, rows, stride, columns, stride, channels_in)
    cells = cells.transpose(0, 1, 3, 2, 4, 5).reshape(n, rows, columns, -1)
    weights = kernel.reshape(taps, stride, taps, stride, channels_in, channels_out)
    weights = weights.transpose(0, 2, 1, 3, 4, 5).reshape(taps, taps, -1, channels_out)
    return cells, weights


@jax.custom_vjp
def _multiply_in_parts(x, kernel):
    """`[N, Y, X, F], [F, d] -> [N, Y, X, d]`; the kernel's gradient is a sum of products.

    The kernel's gradient has few tiles to distribute over a GPU, so we split the sum. XLA would
    split it, too, but into parts for which its TF32 products find no tiles: with few runs, the
    update would not compile.
    """
    return x @ kernel


def _multiply_forward(x, kernel):
    return x @ kernel, (x, kernel)


def _multiply_backward(saved, gradient):
    x, kernel = saved
    rows = gradient.size // gradient.shape[-1]
    fitting = (n for n in range(1, _MOST_PARTS + 1) if rows % (_TILE * n) == 0)
    parts = max(fitting, default=1)
    inputs, outputs = (y.reshape(parts, -1, y.shape[-1]) for y in (x, gradient))
    return gradient @ kernel.T, jnp.einsum("npf,npd->nfd", inputs, outputs).sum(axis=0)


_multiply_in_parts.defvjp(_multiply_forward, _multiply_backward)


class NatureEncoder(Encoder):
    """Three convolutions without padding: 8x8 stride 4, 4x4 stride 2, 3x3 stride 1.

    Source: Mnih et al. (2015). Initial values, and no padding, as in github.com/Kaixhin/Rainbow
    `model.py`, architecture `canonical`.
    """

    @nn.compact
    def __call__(self, observation: jax.Array) -> jax.Array:
        """Maps whole frames `[N, C, 84, 84] uint8` to psi(s) `[N, 3136] float32`."""
        chex.assert_shape(observation, (None, None, 84, 84))
        chex.assert_type(observation, jnp.uint8)
        activation = observation.transpose(0, 2, 3, 1).astype(jnp.float32) / 255.0
        for number, (channels, side, stride) in enumerate(_LAYERS, start=1):
            channels_in = activation.shape[-1]
            init = initializers.uniform_fan_in(side * side * channels_in)
            shape = (side, side, channels_in, channels)
            kernel = self.param(f"conv{number}_kernel", init, shape)
            bias = self.param(f"conv{number}_bias", init, (channels,))
            activation = jax.lax.platform_dependent(
                activation,
                kernel,
                bias,
                cpu=functools.partial(_layer_on_cpu, stride=stride),
                default=functools.partial(_layer, stride=stride),
            )
        return activation.reshape(len(observation), -1)


def _layer(x, kernel, bias, *, stride):
    return nn.relu(convolve(x, kernel, stride) + bias[None, None, None])


def _layer_on_cpu(x, kernel, bias, *, stride):
    """A convolution of stride 1 over cells: twice as fast as the product of the windows."""
    return convolution.convolve(*_as_cells(x, kernel, stride), bias, 1, True)
