"""Layers of SimPLe's networks."""

import functools
import math

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from rcrl_jax.networks.initializers import by_row
from rcrl_jax.ops import strided_convolution

_unit_scaling = jax.nn.initializers.variance_scaling(1.3, "fan_avg", "uniform")


@jax.custom_vjp
def multiply(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """`[..., I] @ [I, O]`, where I is much smaller than O."""
    return x @ kernel


def _keep(x, kernel):
    return multiply(x, kernel), (x, kernel)


def _gradients(arguments, gradient):
    x, kernel = arguments
    rows = tuple(range(x.ndim - 1))
    # With this order of factors, XLA for CPUs transposes x. For JAX's own gradient it would
    # transpose the larger array, which takes longer than both products.
    return gradient @ kernel.T, jax.lax.dot_general(x, gradient, ((rows, rows), ((), ())))


multiply.defvjp(_keep, _gradients)

dense = functools.partial(nn.Dense, kernel_init=_unit_scaling)
# Standardised frames of one colour are all zeros; a bias of zero would keep them so.
embed = functools.partial(dense, bias_init=nn.initializers.normal(0.01))
layer_norm = functools.partial(nn.LayerNorm, epsilon=1e-6, use_fast_variance=False)


class DenseParameters(nn.Module):
    """The parameters of a linear layer."""

    outputs: int

    @nn.compact
    def __call__(self, inputs: int) -> tuple[jax.Array, jax.Array]:
        """Kernel `[inputs, outputs]` and bias `[outputs]`."""
        kernel = self.param("kernel", _unit_scaling, (inputs, self.outputs))
        return kernel, self.param("bias", nn.initializers.zeros, (self.outputs,))


def timing_signal(height: int, width: int, channels: int) -> np.ndarray:
    """`[H, W, c]`: sines and cosines of the row, then of the column, at channels // 4 timescales.

    The timescales lie between 1 and 10,000 pixels at equal ratios; remaining channels are 0.
    """
    number = channels // 4
    timescales = 10_000.0 ** (np.arange(number) / max(number - 1, 1))
    signal = np.zeros((height, width, channels), np.float32)
    for axis, size in enumerate((height, width)):
        phase = np.arange(size)[:, None] / timescales
        waves = np.concatenate([np.sin(phase), np.cos(phase)], axis=1)
        channels_of_axis = signal[..., 2 * number * axis : 2 * number * (axis + 1)]
        channels_of_axis += np.expand_dims(waves, 1 - axis)
    return signal


def with_timing(x: jax.Array) -> jax.Array:
    """Images `[N, H, W, c]` plus the timing signal."""
    return x + timing_signal(*x.shape[1:])[None]


class Convolution(nn.Module):
    """A convolution with padding 'SAME', as a product of shifted images."""

    filters: int
    side: int
    stride: int = 1
    kernel_init: nn.initializers.Initializer = _unit_scaling

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """`[N, H, W, c] -> [N, ceil(H / stride), ceil(W / stride), filters]`."""
        shape = (self.side, self.side, x.shape[-1], self.filters)
        kernel = self.param("kernel", self.kernel_init, shape)
        bias = self.param("bias", nn.initializers.zeros, (self.filters,))
        sides, strides = (self.side,) * 2, (self.stride,) * 2
        edges = jax.lax.padtype_to_pads(x.shape[1:3], sides, strides, "SAME")
        x = jnp.pad(x, ((0, 0), *edges, (0, 0)))
        if self.stride == 2:
            return strided_convolution.convolve(x, kernel, bias)
        windows, weights = strided_convolution.as_product(x, kernel, self.stride)
        return windows @ weights + bias[None, None, None]


class TransposedConvolution(nn.Module):
    """A transposed 4x4 convolution of stride 2 with padding 'SAME'."""

    filters: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """`[N, H, W, c] -> [N, 2 H, 2 W, filters]`."""
        kernel = self.param("kernel", _unit_scaling, (4, 4, x.shape[-1], self.filters))
        bias = self.param("bias", nn.initializers.zeros, (self.filters,))
        return strided_convolution.convolve_transposed(x, kernel, bias)[:, 1:-1, 1:-1]


class Injection(nn.Module):
    """Multiplies images by gates of a vector and adds a vector: `x sigmoid(W_m e) + W_a e`."""

    @nn.compact
    def __call__(self, x: jax.Array, vector: jax.Array) -> jax.Array:
        """Images `[N, H, W, c]` and vectors `[N, d]`."""
        vector = vector[:, None, None]
        gate = nn.sigmoid(dense(x.shape[-1], name="multiply")(vector))
        return x * gate + dense(x.shape[-1], name="add")(vector)


class ActionEmbedding(nn.Module):
    """Vectors of actions; the vector of action 0 is zero."""

    max_num_actions: int
    size: int

    @nn.compact
    def __call__(self, action: jax.Array) -> jax.Array:
        """`[N] int32 -> [N, size]`."""
        init = by_row(nn.initializers.normal(self.size**-0.5))
        table = self.param("table", init, (self.max_num_actions, self.size))
        return table[action] * math.sqrt(self.size) * (action != 0)[:, None]
