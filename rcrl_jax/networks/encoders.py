"""Encoders from observations to the state embedding psi(s)."""

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from rcrl_jax.networks import compiled_patch_encoder, initializers, precision
from rcrl_jax.observations import CELLS, GRID, PATCH

_CHANNELS = (32, 64)  # of the two layers


class DataEfficientEncoder(nn.Module):
    """The data-efficient Rainbow encoder: two 5x5 convolutions of stride 5, 32 and 64 channels.

    The windows of a convolution do not overlap, so each convolution is one matrix product over
    patches. The patches arrive in an order (see `observations.pack_patches`) in which the output
    of the first product is the input of the second one without a transpose. The parameters have
    the shapes of convolutions, `[5, 5, in, out]`. Source: van Hasselt et al. (2019), sizes as in
    github.com/Kaixhin/Rainbow `model.py`.
    """

    @nn.compact
    def __call__(self, observation: jax.Array) -> jax.Array:
        """Maps patches `[N, 225, C, 25] uint8` to psi(s) `[N, 576] float32`."""
        chex.assert_shape(observation, (None, CELLS, None, PATCH**2))
        chex.assert_type(observation, jnp.uint8)
        n, _, frame_stack, _ = observation.shape
        first, second = _CHANNELS
        w1, b1 = self._convolution("conv1", frame_stack, first)
        w2, b2 = self._convolution("conv2", first, second)

        # [y, x, c, out] -> rows (c, y, x). Dividing the weights by 255, not the pixels, saves a
        # pass over the largest array of the update.
        w1 = (w1 / 255.0).transpose(2, 0, 1, 3).reshape(frame_stack * PATCH**2, first)
        pixels = observation.reshape(n, CELLS, frame_stack * PATCH**2)
        return encode_patches(pixels, w1, b1, w2.reshape(PATCH**2 * first, second), b2)

    def _convolution(self, name: str, channels_in: int, channels_out: int):
        init = initializers.uniform_fan_in(PATCH * PATCH * channels_in)
        kernel = self.param(f"{name}_kernel", init, (PATCH, PATCH, channels_in, channels_out))
        return kernel, self.param(f"{name}_bias", init, (channels_out,))


def encode_patches(
    pixels: jax.Array, w1: jax.Array, b1: jax.Array, w2: jax.Array, b2: jax.Array
) -> jax.Array:
    """Two layers, each with ReLU: `[N, 225, P] uint8 -> [N, 9 * 64]`.

    On the CPU kernels of our own compute it (`patch_encoder.cc`), but not in bfloat16.

    Args:
      pixels: P pixels of each patch.
      w1: `[P, 32]`, of a pixel from 0 to 255.
      b1: `[32]`.
      w2: `[25 * 32, 64]`.
      b2: `[64]`.
    """
    first, second = _CHANNELS
    chex.assert_shape(pixels, (None, CELLS, None))
    chex.assert_shape([w1, b1], [(pixels.shape[-1], first), (first,)])
    chex.assert_shape([w2, b2], [(PATCH**2 * first, second), (second,)])
    arguments = (pixels, w1, b1, w2, b2)
    if compiled_patch_encoder.instructions() == "XLA" or precision.is_bfloat16():
        return _encode_by_xla(*arguments)
    return jax.lax.platform_dependent(
        *arguments, cpu=compiled_patch_encoder.encode, default=_encode_by_xla
    )


def _encode_by_xla(pixels, w1, b1, w2, b2):
    n = len(pixels)
    # Without the barrier, XLA on the CPU repeats the cast inside every product that reads it.
    rows = pixels.reshape(n * CELLS, -1).astype(jnp.float32)
    rows = jax.lax.optimization_barrier(rows)
    cells = nn.relu(rows @ w1 + b1[None])  # [N * 225, I], rows (n, I, J, i, j)
    cells = cells.reshape(n * GRID**2, -1)
    features = nn.relu(cells @ w2 + b2[None])  # [N * 9, O]
    return features.reshape(n, -1)
