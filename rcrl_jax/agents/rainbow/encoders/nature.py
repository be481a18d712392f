"""The Nature DQN encoder, which the original Rainbow uses."""

import functools
from collections.abc import Callable

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from rcrl_jax.agents.rainbow.encoders import Encoder
from rcrl_jax.networks import initializers
from rcrl_jax.ops import convolution, strided_convolution

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

    `jax.vmap` over runs turns the product into a batched product, but would turn a convolution into
    a slow grouped convolution.

    Args:
      images: `[N, H, W, in]`.
      kernel: `[K, K, in, out]`.
      stride: in pixels.
      multiply: computes the product `[N, Y, X, F], [F, out]`; None: in parts on a GPU.

    Returns:
      `[N, (H - K) // stride + 1, (W - K) // stride + 1, out]`.
    """
    patches, weights = strided_convolution.as_product(images, kernel, stride)
    if multiply is not None:
        return multiply(jax.lax.optimization_barrier(patches), weights)
    return jax.lax.platform_dependent(patches, weights, cuda=_multiply_in_parts, default=jnp.matmul)


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
    cells = strided_convolution.as_cells(x, len(kernel), stride)
    weights = strided_convolution.over_cells(kernel, stride)
    return convolution.convolve(cells, weights, bias, 1, True)
