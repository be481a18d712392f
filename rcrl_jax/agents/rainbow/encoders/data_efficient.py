"""Encoders from observations to the state embedding psi(s)."""

import math

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from rcrl_jax.agents.rainbow.encoders import Encoder
from rcrl_jax.networks import initializers
from rcrl_jax.observations import CELLS, GRID, PATCH
from rcrl_jax.ops import native, precision

_CHANNELS = (32, 64)  # of the two layers


class DataEfficientEncoder(Encoder):
    """The data-efficient Rainbow encoder: two 5x5 convolutions of stride 5, 32 and 64 channels.

    The windows of a convolution do not overlap, so each convolution is one matrix product over
    patches. The patches arrive in an order (see `observations.pack_patches`) in which the output
    of the first product is the input of the second one without a transpose. The parameters have
    the shapes of convolutions, `[5, 5, in, out]`. Source: van Hasselt et al. (2019), sizes as in
    github.com/Kaixhin/Rainbow `model.py`.
    """

    def __call__(self, observation: jax.Array) -> jax.Array:
        """Maps patches `[N, 225, C, 25] uint8` to psi(s) `[N, 576] float32`."""
        return self.encode_each((observation,))[0]

    @nn.compact
    def encode_each(self, observations: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        """Maps several batches of patches; an accelerator uses one product per layer for all."""
        for observation in observations:
            chex.assert_shape(observation, (None, CELLS, None, PATCH**2))
            chex.assert_type(observation, jnp.uint8)
        first, second = _CHANNELS
        kernels = (
            *self._convolution("conv1", observations[0].shape[2], first),
            *self._convolution("conv2", first, second),
        )
        return encode_each(observations, *kernels)

    def _convolution(self, name: str, channels_in: int, channels_out: int):
        init = initializers.uniform_fan_in(PATCH * PATCH * channels_in)
        kernel = self.param(f"{name}_kernel", init, (PATCH, PATCH, channels_in, channels_out))
        return kernel, self.param(f"{name}_bias", init, (channels_out,))


def encode_each(observations, w1, b1, w2, b2) -> tuple[jax.Array, ...]:
    """`DataEfficientEncoder.encode_each` with kernels `[5, 5, in, out]` and biases `[out]`."""
    return jax.lax.platform_dependent(
        observations, w1, b1, w2, b2, cpu=_encode_one_by_one, default=_encode_together
    )


def _as_matrices(pixels_a_patch: int, w1, b1, w2, b2):
    """The parameters as `encode_patches` takes them; the first layer reads pixels up to 255."""
    first, second = _CHANNELS
    # [y, x, c, out] -> rows (c, y, x). Dividing the weights by 255, not the pixels, saves a pass
    # over the largest array of the update.
    w1 = (w1 / 255.0).transpose(2, 0, 1, 3).reshape(pixels_a_patch, first)
    return w1, b1, w2.reshape(PATCH**2 * first, second), b2


def _encode_one_by_one(observations, *kernels):
    def encode(observation):
        pixels = observation.reshape(len(observation), CELLS, -1)
        return encode_patches(pixels, *_as_matrices(pixels.shape[-1], *kernels))

    return tuple(encode(observation) for observation in observations)


def _encode_together(observations, *kernels):
    width = observations[0].shape[2] * PATCH**2
    return _products(observations, *_as_matrices(width, *kernels))


@jax.custom_vjp
def _products(observations, w1, b1, w2, b2):
    return _products_forward(observations, w1, b1, w2, b2)[0]


def _products_forward(observations, w1, b1, w2, b2):
    pixels = _signed_rows(observations)
    bias = b1 + _MIDDLE * w1.sum(axis=0)
    # bias = high + low, because a bfloat16 product would round it.
    high = jax.lax.reduce_precision(bias, exponent_bits=8, mantissa_bits=7)
    weights = jnp.concatenate([w1, high[None], (bias - high)[None]])
    weights = jnp.pad(weights, ((0, pixels.shape[-1] - len(weights)), (0, 0)))
    # The barrier keeps the pixels as bytes in memory; each product converts them as it loads them.
    # Without it, XLA merges products of two calls with equal weights, and stores pixels as floats.
    pixels, weights, w2 = jax.lax.optimization_barrier((pixels, weights, w2))
    first = pixels.astype(jnp.float32) @ weights
    if precision.is_tf32():
        # The second product rounds to 10 bits of mantissa (TF32), which float16 has. So float16
        # halves the memory, and loses only numbers below 6e-5.
        first = first.astype(jnp.float16)
    second = _rows_of_cells(nn.relu(first)).astype(jnp.float32) @ w2 + b2[None]
    ends = np.cumsum([len(x) for x in observations])[:-1]
    psi = tuple(jnp.split(nn.relu(second).reshape(-1, GRID**2 * len(b2)), ends))
    return psi, (pixels, first, second, w1, w2)


def _signed_rows(observations) -> jax.Array:
    """All patches `[n * 225, 112] int8`: 100 pixels minus 128, two ones, zeros up to `ALIGNMENT`.

    XLA's products for GPUs convert signed bytes as they load them, but not unsigned ones. The
    ones multiply two rows of the weights that hold the bias. So one product also gives the bias's
    gradient.
    """
    width = observations[0].shape[2] * PATCH**2
    padded = -(-(width + 2) // ALIGNMENT) * ALIGNMENT
    rows = jnp.concatenate([x.reshape(-1, width) for x in observations])
    rest = np.full(padded - width, _MIDDLE, np.uint8)
    rest[:2] += 1
    rest = jnp.broadcast_to(rest, (len(rows), len(rest)))
    rows = jnp.concatenate([rows, rest], axis=-1)
    return jax.lax.bitcast_convert_type(rows ^ np.uint8(_MIDDLE), jnp.int8)


def _rows_of_cells(cells):
    """`[n * 225, I] -> [n * 9, 25 * I]`, the rows of the second product."""
    return cells.reshape(-1, PATCH**2 * cells.shape[-1])


def _products_backward(saved, gradients):
    pixels, first, second, w1, w2 = saved
    gradient = jnp.concatenate(gradients).reshape(second.shape)
    gradient = jnp.where(second > 0, gradient, 0.0)
    inner = (gradient @ (_SCALE * w2.T)).astype(first.dtype)
    inner = jnp.where(_rows_of_cells(first) > 0, inner, 0)
    # Splits the rows, so that the products of the parts run in parallel.
    part = math.gcd(len(pixels), _PART)
    parts = [x.reshape(-1, part, x.shape[-1]) for x in (pixels, inner.reshape(first.shape))]
    products = jnp.einsum("nip,nio->npo", *(x.astype(jnp.float32) for x in parts)).sum(axis=0)
    products /= _SCALE
    b1_gradient = products[len(w1)]
    return (
        None,
        products[: len(w1)] + _MIDDLE * b1_gradient[None],
        b1_gradient,
        _rows_of_cells(nn.relu(first)).astype(jnp.float32).T @ gradient,
        gradient.sum(axis=0),
    )


ALIGNMENT = 16
"""What the columns of an accelerator's first product are padded to a multiple of."""
_MIDDLE = 128
_PART = 800  # most patches in a part
_SCALE = 1024.0  # of the first layer's gradient, which is too small for float16


_products.defvjp(_products_forward, _products_backward)


def encode_patches(
    pixels: jax.Array, w1: jax.Array, b1: jax.Array, w2: jax.Array, b2: jax.Array
) -> jax.Array:
    """Two layers on the CPU, each with ReLU: `[N, 225, P] uint8 -> [N, 9 * 64]`.

    With AVX-512, a C++ kernel computes them (`ops/kernels/encoder.cc`), except in bfloat16.

    Args:
      pixels: P pixels of each patch.
      w1: `[P, 32]`, for pixels from 0 to 255.
      b1: `[32]`.
      w2: `[25 * 32, 64]`.
      b2: `[64]`.
    """
    first, second = _CHANNELS
    chex.assert_shape(pixels, (None, CELLS, None))
    chex.assert_shape([w1, b1], [(pixels.shape[-1], first), (first,)])
    chex.assert_shape([w2, b2], [(PATCH**2 * first, second), (second,)])
    kernel = native.get("encoder")
    if kernel is None or precision.is_bfloat16():
        # Without the barrier, XLA on the CPU repeats the cast inside every product that reads it.
        pixels = jax.lax.optimization_barrier(pixels.astype(jnp.float32))
        return _encode_by_products(pixels, w1, b1, w2, b2)
    return kernel.encode(pixels, w1, b1, w2, b2)


def _encode_by_products(pixels, w1, b1, w2, b2):
    """See `encode_patches`; pixels are float32 already."""
    n = len(pixels)
    rows = pixels.reshape(n * CELLS, -1)
    cells = nn.relu(rows @ w1 + b1[None])  # [N * 225, I], rows (n, I, J, i, j)
    cells = cells.reshape(n * GRID**2, -1)
    features = nn.relu(cells @ w2 + b2[None])  # [N * 9, O]
    return features.reshape(n, -1)
