"""The residual encoder of IMPALA, which the strongest agents of Atari-100k use.

Source: Espeholt et al. (2018), figure 3, right, without the dense layer, because the head has one.
Initial values as in BBF (Schwarzer et al., 2023).
"""

import functools

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from rcrl_jax.agents.rainbow.encoders import Encoder
from rcrl_jax.ops import convolution, strided_convolution


class ImpalaEncoder(Encoder):
    """Three stacks: a convolution, pooling that halves each side, two residual blocks."""

    @nn.compact
    def __call__(self, observation: jax.Array) -> jax.Array:
        """Maps whole frames `[N, C, 84, 84] uint8` to psi(s) `[N, 3872] float32`."""
        chex.assert_shape(observation, (None, None, 84, 84))
        chex.assert_type(observation, jnp.uint8)
        x = observation.transpose(0, 2, 3, 1).astype(jnp.float32) / 255.0
        for channels in (16, 32, 32):
            x = max_pool(Convolution(channels)(x))
            for _ in range(2):
                inner = Convolution(channels, relu=True)(nn.relu(x))
                x += Convolution(channels)(inner)
        return nn.relu(x).reshape(len(x), -1)


class Convolution(nn.Module):
    """A 3x3 convolution of stride 1 that keeps height and width, on zero-padded images.

    The kernel starts uniform with Glorot's scale, the bias at 0. `nn.Conv` computes the same, but
    takes about ten times as long inside the loop over runs on a CPU.

    Attributes:
      channels: channels out.
      relu: whether negative outputs become 0.
    """

    channels: int
    relu: bool = False

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Maps `[N, H, W, I]` to `[N, H, W, channels]`, float32."""
        init = nn.initializers.xavier_uniform()
        kernel = self.param("kernel", init, (3, 3, x.shape[-1], self.channels))
        bias = self.param("bias", nn.initializers.zeros, (self.channels,))
        on_cpu = functools.partial(convolution.convolve, stride=1, relu=self.relu)
        on_device = functools.partial(_convolve_on_device, relu=self.relu)
        padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        return jax.lax.platform_dependent(padded, kernel, bias, cpu=on_cpu, default=on_device)


def _convolve_on_device(x, kernel, bias, relu):
    y = strided_convolution.convolve_on_device(x, kernel, 1) + bias[None, None, None]
    return nn.relu(y) if relu else y


def max_pool(x: jax.Array) -> jax.Array:
    """The largest of each 3x3 window, stride 2: `[N, H, W, C] -> [N, ceil(H / 2), ceil(W / 2), C]`.

    Computes `nn.max_pool` with padding 'SAME', whose gradient takes three times as long on a CPU.
    Equal largest values share the gradient.
    """
    chex.assert_rank(x, 4)
    for axis in (1, 2):
        size = (x.shape[axis] + 1) // 2
        missing = 2 * size + 1 - x.shape[axis]
        padding = [(0, 0)] * x.ndim
        padding[axis] = (missing // 2, missing - missing // 2)
        padded = jnp.pad(x, padding, constant_values=-jnp.inf)
        x = functools.reduce(
            jnp.maximum,
            (jax.lax.slice_in_dim(padded, i, i + 2 * size - 1, 2, axis) for i in range(3)),
        )
    return x
