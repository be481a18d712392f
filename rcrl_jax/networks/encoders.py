"""Encoders from observations to the state embedding psi(s)."""

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from rcrl_jax.networks import initializers
from rcrl_jax.observations import CELLS, GRID, PATCH


class DataEfficientEncoder(nn.Module):
    """The data-efficient Rainbow encoder: two 5x5 convolutions of stride 5, 32 and 64 channels.

    The convolutions do not overlap, so each is one matrix product over patches that arrive in
    order (see `observations.pack_patches`): the first product's output is, without moving a
    byte, the second product's input. The parameters have the shapes of the convolutions they
    stand for, `[5, 5, in, out]`. Source: van Hasselt et al. (2019), sizes as in
    github.com/Kaixhin/Rainbow `model.py`.
    """

    channels: tuple[int, int] = (32, 64)

    @nn.compact
    def __call__(self, observation: jax.Array) -> jax.Array:
        """Maps patches `[N, 225, C, 25] uint8` to psi(s) `[N, 576] float32`."""
        chex.assert_rank(observation, 4)
        chex.assert_type(observation, jnp.uint8)
        n, _, stack, _ = observation.shape
        first, second = self.channels
        w1, b1 = self._convolution("conv1", stack, first)
        w2, b2 = self._convolution("conv2", first, second)

        pixels = observation.reshape(n * CELLS, stack * PATCH**2).astype(jnp.float32)
        # Without the barrier the CPU compiler repeats the cast inside every product reading it.
        pixels = jax.lax.optimization_barrier(pixels)
        # [y, x, c, out] -> rows (c, y, x); dividing the weights by 255 instead of the pixels
        # saves a pass over the largest array of the update.
        w1 = (w1 / 255.0).transpose(2, 0, 1, 3).reshape(stack * PATCH**2, first)
        cells = nn.relu(pixels @ w1 + b1)  # [N * 225, 32], rows (n, I, J, i, j)
        cells = cells.reshape(n * GRID**2, PATCH**2 * first)
        features = nn.relu(cells @ w2.reshape(PATCH**2 * first, second) + b2)  # [N * 9, 64]
        return features.reshape(n, GRID**2 * second)

    def _convolution(self, name: str, channels_in: int, channels_out: int):
        init = initializers.uniform_fan_in(PATCH * PATCH * channels_in)
        kernel = self.param(f"{name}_kernel", init, (PATCH, PATCH, channels_in, channels_out))
        return kernel, self.param(f"{name}_bias", init, (channels_out,))
