"""The encoder of MinAtar's frames, 10x10 cells with one binary channel for each kind of object."""

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from rcrl_jax import observations
from rcrl_jax.agents.rainbow.encoders import Encoder, nature
from rcrl_jax.networks import initializers
from rcrl_jax.ops import products

_SIDE = 10  # of a frame [cells]
_KERNEL, _STRIDE, _CHANNELS = 4, 2, 16
_FAN_IN = _KERNEL**2 * 10  # with the ten channels of Seaquest, the game with the most


class MinAtarEncoder(Encoder):
    """One 4x4 convolution of stride 2 with 16 channels and ReLU, without padding.

    The initial weights of an input channel do not depend on the number of channels. So a game with
    few channels stays the same, up to rounding, in a fleet that pads its frames to the largest
    number of channels.
    """

    @nn.compact
    def __call__(self, observation: jax.Array) -> jax.Array:
        """Maps packed frames `[N, C, bytes] uint8` to psi(s) `[N, 256] float32`.

        Args:
          observation: stacks of C frames, `observations.as_bits` of `[10, 10, channels]`.
        """
        chex.assert_rank(observation, 3)
        chex.assert_type(observation, jnp.uint8)
        channels = 8 * observation.shape[-1] // _SIDE**2
        frames = observations.unpack_bits(observation, (_SIDE, _SIDE, channels))
        images = jnp.moveaxis(frames, 1, -2).reshape(len(frames), _SIDE, _SIDE, -1)
        init = initializers.uniform_fan_in(_FAN_IN)
        shape = (images.shape[-1], _KERNEL, _KERNEL, _CHANNELS)
        kernel = self.param("conv1_kernel", initializers.by_row(init), shape)
        bias = self.param("conv1_bias", init, (_CHANNELS,))
        images = images.astype(jnp.float32)
        weights = kernel.transpose(1, 2, 0, 3)
        cells = nature.convolve(images, weights, _STRIDE, products.multiply)
        return nn.relu(cells + bias[None, None, None]).reshape(len(frames), -1)
