"""The world model of Dreamer and PlaNet: encoder, recurrent state-space model, decoder, reward.

    frame o_t ── Encoder ── e_t ──────────────────────┐
                                                      v
    s_{t-1}, a_{t-1} ── dense ── GRU ── h_t ──┬── posterior q(s_t | h_t, e_t)
                                   ^          └── prior p(s_t | h_t)
                                  h_{t-1}
    feature = [s_t, h_t] ──┬── Decoder ── frame
                           └── Mlp ── reward, value, policy

Sizes, activations and initial values are those of google-research/dreamer (Hafner et al., 2020).
PlaNet (google-research/planet) has another activation and another reward network. The authors'
second code of Dreamer (danijar/dreamer) has Keras's GRU, and one layer instead of two for the means
and standard deviations of a distribution. Weights are Glorot uniform, but the recurrent weights of
Keras's GRU are orthogonal. Biases are zero, but those of `BlockGru`'s gates start at 1.

Only layers that read the previous state are inside the loop over time. Encoder, decoder, prior, and
the product of embeddings with the posterior's weights take all frames of a batch at once.
"""

from typing import Any, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from rcrl_jax.agents.world_models import (
    IMAGE_SIZE,
    Activation,
    Gaussian,
    Mlp,
    StridedKernel,
    dense,
    gaussian,
)
from rcrl_jax.ops.strided_convolution import convolve, convolve_transposed

ENCODER_KERNEL = 4  # of all four convolutions; 64 -> 31 -> 14 -> 6 -> 2 pixels
_DECODER_KERNELS = (5, 5, 6, 6)  # 1 -> 5 -> 13 -> 30 -> 64 pixels
_LEAST_STD = 0.1

_glorot = nn.initializers.glorot_uniform()


def _two_layers(key: jax.Array, shape: tuple[int, int], dtype: Any = jnp.float32) -> jax.Array:
    """Glorot's weights of two layers side by side, each with half of the outputs."""
    half = shape[0], shape[1] // 2
    return jnp.concatenate([_glorot(k, half, dtype) for k in jax.random.split(key)], axis=1)


class Encoder(nn.Module):
    """Four convolutions of stride 2 with ReLU."""

    filters: int  # of the first convolution; each further one doubles them

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        """Maps `[N, 64, 64, 3]` to embeddings `[N, 32 filters]`."""
        chex.assert_shape(image, (None, IMAGE_SIZE, IMAGE_SIZE, 3))
        x = image
        for doubled in range(4):
            kernel = StridedKernel(ENCODER_KERNEL, self.filters << doubled)(x.shape[-1])
            x = nn.relu(convolve(x, *kernel))
        return x.reshape(len(x), -1)


class Decoder(nn.Module):
    """A linear map and four transposed convolutions, with ReLU between them."""

    filters: int  # as in `Encoder`

    @nn.compact
    def __call__(self, feature: jax.Array) -> jax.Array:
        """Maps `[N, d]` to the means of the pixels `[N, 64, 64, 3]`."""
        chex.assert_rank(feature, 2)
        x = dense(32 * self.filters)(feature)[:, None, None]
        for side, filters in zip(_DECODER_KERNELS, (4, 2, 1, None), strict=True):
            last = filters is None
            kernel = StridedKernel(side, 3 if last else filters * self.filters)(x.shape[-1])
            x = convolve_transposed(x, *kernel)
            x = x if last else nn.relu(x)
        return x


class KerasGru(nn.Module):
    """The GRU of Keras, whose reset gate acts after the recurrent product.

    As in Keras, the weights of the three gates are drawn as one matrix, and there are two biases.
    """

    size: int

    @nn.compact
    def __call__(self, hidden: jax.Array, x: jax.Array) -> jax.Array:
        """Maps the last state `[..., size]` and an input `[..., d]` to the state `[..., size]`."""
        gates = 3 * self.size
        kernel = self.param("kernel", _glorot, (x.shape[-1], gates))
        recurrent = self.param("recurrent", nn.initializers.orthogonal(), (self.size, gates))
        bias = self.param("bias", nn.initializers.zeros, (2, gates))
        from_input = jnp.split(_affine(x, kernel, bias[0]), 3, axis=-1)
        from_state = jnp.split(_affine(hidden, recurrent, bias[1]), 3, axis=-1)
        keep = nn.sigmoid(from_input[0] + from_state[0])
        reset = nn.sigmoid(from_input[1] + from_state[1])
        candidate = jnp.tanh(from_input[2] + reset * from_state[2])
        return keep * hidden + (1.0 - keep) * candidate


class BlockGru(nn.Module):
    """TensorFlow's `GRUBlockCell`, whose reset gate acts before the recurrent product.

    The gates' bias starts at 1.
    """

    size: int

    @nn.compact
    def __call__(self, hidden: jax.Array, x: jax.Array) -> jax.Array:
        """Maps the last state `[..., size]` and an input `[..., d]` to the state `[..., size]`."""
        fan_in = x.shape[-1] + self.size
        kernel = self.param("gates_kernel", _glorot, (fan_in, 2 * self.size))
        bias = self.param("gates_bias", nn.initializers.ones, (2 * self.size,))
        gates = nn.sigmoid(_affine(jnp.concatenate([x, hidden], axis=-1), kernel, bias))
        reset, keep = jnp.split(gates, 2, axis=-1)
        kernel = self.param("candidate_kernel", _glorot, (fan_in, self.size))
        bias = self.param("candidate_bias", nn.initializers.zeros, (self.size,))
        candidate = _affine(jnp.concatenate([x, reset * hidden], axis=-1), kernel, bias)
        return keep * hidden + (1.0 - keep) * jnp.tanh(candidate)


def _affine(x: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
    return x @ kernel + bias.reshape(*[1] * (x.ndim - 1), -1)


class Latent(NamedTuple):
    """The state of the model at one time."""

    sample: jax.Array  # [..., S], the stochastic part, a draw
    deter: jax.Array  # [..., H], the deterministic part

    @property
    def feature(self) -> jax.Array:
        """What all heads read, `[..., S + H]`."""
        return jnp.concatenate([self.sample, self.deter], axis=-1)


class WorldModel(nn.Module):
    """Encoder, recurrent state-space model, decoder and reward network; its methods are pure.

    Attributes:
      filters: channels of the encoder's first convolution.
      deter: H, width of the deterministic state.
      stoch: S, width of the stochastic state.
      hidden: units of the layers around the GRU.
      reward_layers: hidden layers of the reward network.
      reward_width: units of each hidden layer of the reward network.
      activation: between dense layers.
      cell: `KerasGru` or `BlockGru`.
      joint_stats: whether one layer yields both means and standard deviations of a distribution, or
        two layers do. This affects only the scale of Glorot's initial weights.
    """

    filters: int
    deter: int
    stoch: int
    hidden: int
    reward_layers: int
    reward_width: int
    activation: Activation
    cell: type[nn.Module]
    joint_stats: bool

    @property
    def feature_size(self) -> int:
        """d, width of `Latent.feature`."""
        return self.stoch + self.deter

    def setup(self) -> None:
        """Makes the parts."""
        self.encoder = Encoder(self.filters)
        self.decoder = Decoder(self.filters)
        self.reward_head = Mlp(self.reward_width, self.reward_layers, 1, self.activation)
        self.gru = self.cell(self.deter)
        self.transition = dense(self.hidden)
        self.prior_hidden = dense(self.hidden)
        stats_init = _glorot if self.joint_stats else _two_layers
        self.prior_stats = nn.Dense(2 * self.stoch, kernel_init=stats_init)
        self.posterior_stats = nn.Dense(2 * self.stoch, kernel_init=stats_init)
        # One matrix for [h, e], because Glorot's scale counts the inputs of both.
        shape = (self.deter + 32 * self.filters, self.hidden)
        self.posterior_kernel = self.param("posterior_kernel", _glorot, shape)
        self.posterior_bias = self.param("posterior_bias", nn.initializers.zeros, shape[1:])

    def __call__(self, image: jax.Array, action: jax.Array) -> None:
        """Touches every parameter, for `init`: `[N, 64, 64, 3]`, `[N, A]`."""
        start, noise = self.init_latent(len(image)), jnp.zeros((len(image), self.stoch))
        latent, _ = self.observe(start, action, self.project(image), noise)
        self.prior(latent.deter)
        self.decode(latent.feature)
        self.reward(latent.feature)

    def init_latent(self, *batch: int) -> Latent:
        """The state before the first frame of an episode, zeros `[*batch, ...]`."""
        return Latent(jnp.zeros((*batch, self.stoch)), jnp.zeros((*batch, self.deter)))

    def project(self, image: jax.Array) -> jax.Array:
        """Projects images `[N, 64, 64, 3]` to the posterior's input `[N, hidden]`."""
        return self.encoder(image) @ self.posterior_kernel[self.deter :]

    def observe(
        self, last: Latent, action: jax.Array, projected: jax.Array, noise: jax.Array
    ) -> tuple[Latent, Gaussian]:
        """One step of the filter.

        Args:
          last: state before the frame, `[..., *]`.
          action: `[..., A]`, the action that led to the frame.
          projected: `[..., hidden]`, of the frame, by `project`.
          noise: standard normal, `[..., S]`.

        Returns:
          The state, a draw from the posterior; the posterior.
        """
        deter = self._advance(last, action)
        joined = deter @ self.posterior_kernel[: self.deter] + projected
        bias = self.posterior_bias.reshape(*[1] * (joined.ndim - 1), -1)
        posterior = gaussian(self.posterior_stats(self.activation(joined + bias)), _LEAST_STD)
        return Latent(posterior.mean + posterior.std * noise, deter), posterior

    def prior(self, deter: jax.Array) -> Gaussian:
        """The prior of states whose deterministic part is `[..., H]`."""
        stats = self.prior_stats(self.activation(self.prior_hidden(deter)))
        return gaussian(stats, _LEAST_STD)

    def imagine(self, last: Latent, action: jax.Array, noise: jax.Array) -> Latent:
        """The next state, a draw from the prior; arguments as in `observe`."""
        deter = self._advance(last, action)
        prior = self.prior(deter)
        return Latent(prior.mean + prior.std * noise, deter)

    def decode(self, feature: jax.Array) -> jax.Array:
        """Means of the pixels `[N, 64, 64, 3]` of features `[N, S + H]`."""
        return self.decoder(feature)

    def reward(self, feature: jax.Array) -> jax.Array:
        """Means of the rewards `[...]` that come with states of features `[..., S + H]`."""
        return self.reward_head(feature)[..., 0]

    def _advance(self, last: Latent, action: jax.Array) -> jax.Array:
        joined = jnp.concatenate([last.sample, action], axis=-1)
        return self.gru(last.deter, self.activation(self.transition(joined)))
