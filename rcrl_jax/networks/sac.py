"""The networks of SAC: tied convolutions, embeddings, twin critics, actor, decoder.

    observation ── Convolutions ──┬── Embedding ── psi(s) ──┬── [psi(s), a] ── twin critics
                                  │                         └── Decoder
                                  └── Embedding (the actor's own; no gradient flows back) ── Actor

Sizes and initial values are those of CURL's code: weights orthogonal, convolutions
delta-orthogonal with the gain of a ReLU, biases zero. State vectors pass neither convolutions nor
embedding.
"""

import math

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from rcrl_jax.losses.sac import Policy
from rcrl_jax.networks import convolution, initializers

STRIDES = (2, 1, 1, 1)


def conv_sizes(size: int) -> list[int]:
    """Heights of the four convolutions' outputs for images of height `size`."""
    sizes = []
    for stride in STRIDES:
        size = (size - 3) // stride + 1
        sizes.append(size)
    return sizes


def as_channels(observation: jax.Array) -> jax.Array:
    """The stack's colours, frame by frame, as channels: `[N, C, H, W, 3] -> [N, H, W, 3 C]`."""
    n, stack, height, width, colours = observation.shape
    return observation.transpose(0, 2, 3, 1, 4).reshape(n, height, width, stack * colours)


def _dense(features: int, name: str | None = None) -> nn.Dense:
    return nn.Dense(features, kernel_init=nn.initializers.orthogonal(), name=name)


class _Convolution(nn.Module):
    """A 3x3 convolution without padding, with a bias."""

    filters: int
    stride: int = 1

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        init = initializers.delta_orthogonal(math.sqrt(2.0))
        kernel = self.param("kernel", init, (3, 3, x.shape[-1], self.filters))
        bias = self.param("bias", nn.initializers.zeros, (self.filters,))
        return convolution.convolve(x, kernel, self.stride) + bias


class Convolutions(nn.Module):
    """Four 3x3 convolutions without padding, the first of stride 2."""

    filters: int

    @nn.compact
    def __call__(self, observation: jax.Array) -> jax.Array:
        """Maps `[N, C, H, W, 3] uint8` to features `[N, F]`."""
        chex.assert_rank(observation, 5)
        chex.assert_type(observation, jnp.uint8)
        # Without the barrier the CPU compiler repeats the cast inside the convolution's loops.
        x = jax.lax.optimization_barrier(as_channels(observation).astype(jnp.float32) / 255.0)
        for stride in STRIDES:
            x = nn.relu(_Convolution(self.filters, stride)(x))
        return x.reshape(x.shape[0], -1)


class Embedding(nn.Module):
    """A linear map and a LayerNorm."""

    features: int

    @nn.compact
    def __call__(self, features: jax.Array) -> jax.Array:
        """Maps `[N, F]` to `[N, features]`."""
        return nn.LayerNorm(epsilon=1e-5)(_dense(self.features)(features))


class TwinCritics(nn.Module):
    """Two critics of the state-action embedding phi(s, a) = [psi(s), a]."""

    hidden: int

    @nn.compact
    def __call__(self, embedding: jax.Array) -> jax.Array:
        """Maps phi `[N, d]` to both critics' values `[N, 2]`."""
        values = []
        for critic in ("first", "second"):
            x = nn.relu(_dense(self.hidden, f"{critic}_hidden_1")(embedding))
            x = nn.relu(_dense(self.hidden, f"{critic}_hidden_2")(x))
            values.append(_dense(1, f"{critic}_value")(x))
        return jnp.concatenate(values, axis=-1)


class Actor(nn.Module):
    """A Gaussian policy before it is squashed."""

    hidden: int
    num_actions: int
    log_std_min: float
    log_std_max: float

    @nn.compact
    def __call__(self, embedding: jax.Array) -> Policy:
        """Maps `[N, d]` to means and log standard deviations `[N, A]`."""
        x = nn.relu(_dense(self.hidden)(embedding))
        x = nn.relu(_dense(self.hidden)(x))
        mean, raw = jnp.split(_dense(2 * self.num_actions)(x), 2, axis=-1)
        # A clipped value would have no gradient beyond its bounds.
        share = 0.5 * (jnp.tanh(raw) + 1.0)
        return Policy(mean, self.log_std_min + share * (self.log_std_max - self.log_std_min))


class Decoder(nn.Module):
    """From psi(s) back to an image: the convolutions in reverse (Yarats et al., SAC+AE)."""

    filters: int
    size: int
    channels: int

    @nn.compact
    def __call__(self, embedding: jax.Array) -> jax.Array:
        """Maps `[N, d]` to `[N, size, size, channels]`."""
        side = conv_sizes(self.size)[-1]
        x = nn.relu(_dense(side * side * self.filters)(embedding))
        x = x.reshape(-1, side, side, self.filters)
        for _ in STRIDES[1:]:
            x = nn.relu(_Convolution(self.filters)(_spread(x, 1)))
        x = _Convolution(self.channels)(_spread(x, STRIDES[0]))
        # The first convolution of an even size leaves its last row and column out.
        return jnp.pad(x, ((0, 0), (0, 1), (0, 1), (0, 0)))[:, : self.size, : self.size]


def _spread(x: jax.Array, stride: int) -> jax.Array:
    """What a convolution reads so that it is the reverse of one with `stride`."""
    edges = (2, 2, stride - 1)
    return jax.lax.pad(x, jnp.zeros((), x.dtype), ((0, 0, 0), edges, edges, (0, 0, 0)))
