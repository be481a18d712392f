"""Networks of SimPLe (Kaiser et al., 2020), as in the authors' code, tensorflow/tensor2tensor.

The world model predicts the next frame and its reward from the last frames and an action. The model
is a U-Net of strided convolutions; it chooses each pixel of each colour from 256 values. There are
two kinds, which share the U-Net:

* The deterministic model reads a stack of frames.
* The stochastic model reads the newest frame and a recurrent state of all earlier frames. Latent
  bits add what the frames do not tell. In training they come from the next frame, in play from an
  LSTM.

Frames are float32 in [0, 255] until a model standardises them.
"""

import math
from typing import NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from rcrl_jax.agents.simple import layers

VALUES = 256  # of a pixel of one colour
_REWARD_HIDDEN = 128
_POLICY_FILTERS, _POLICY_HIDDEN = 32, 128
_MOST_ACTIONS = 18  # of a game


class Prediction(NamedTuple):
    """What a world model predicts for the step after each of N frames.

    The logits of pixels are computed only where they are read. On a TPU they are computed colour by
    colour, so that XLA fuses the product with what reads it and writes no logits to memory.
    """

    features: jax.Array  # [N, H, W, c], of pixels
    kernel: jax.Array  # [c, 3 * 256], of the layer from features to logits
    bias: jax.Array  # [3 * 256], likewise
    reward: jax.Array  # [N, 3], logits of -1, 0 and 1

    @property
    def pixels(self) -> jax.Array:
        """`[N, H, W, 3, 256]`, logits."""
        logits = layers.multiply(self.features, self.kernel) + self.bias[None, None, None]
        return logits.reshape(*logits.shape[:-1], 3, VALUES)

    @property
    def colours(self) -> list[jax.Array]:
        """The logits of each colour, `[N, H, W, 256]`."""
        kernels, biases = (jnp.split(x, 3, axis=-1) for x in (self.kernel, self.bias))
        return [
            layers.multiply(self.features, kernel) + bias[None, None, None]
            for kernel, bias in zip(kernels, biases, strict=True)
        ]

    @property
    def frame(self) -> jax.Array:
        """`[N, H, W, 3] float32`, the most likely value of each pixel."""
        return jax.lax.platform_dependent(
            self, tpu=frame_by_colour, default=lambda self: most_likely(self.pixels)
        )

    @property
    def sign(self) -> jax.Array:
        """`[N] float32`, the most likely reward."""
        return jnp.argmax(self.reward, axis=-1).astype(jnp.float32) - 1.0


def frame_by_colour(prediction: Prediction) -> jax.Array:
    """The frame of a prediction, as a TPU computes it."""
    return jnp.stack([most_likely(logits) for logits in prediction.colours], axis=-1)


def most_likely(logits: jax.Array) -> jax.Array:
    """The first index of the largest logit, `[..., K] -> [...] float32`."""

    def in_two_passes(logits):  # XLA's argmax for CPUs takes twice as long
        indices = jax.lax.broadcasted_iota(jnp.float32, logits.shape, logits.ndim - 1)
        is_largest = logits == logits.max(-1, keepdims=True)
        return jnp.where(is_largest, indices, logits.shape[-1]).min(-1)

    def in_one_pass(logits):
        return jnp.argmax(logits, axis=-1).astype(jnp.float32)

    return jax.lax.platform_dependent(logits, cpu=in_two_passes, default=in_one_pass)


def standardise(frames: jax.Array) -> jax.Array:
    """Each colour of each frame with mean 0 and variance 1 over its pixels; `[..., H, W, 3]`."""
    least = 1.0 / math.sqrt(frames.shape[-2] * frames.shape[-3])
    centred = frames - frames.mean((-3, -2), keepdims=True)
    std = jnp.sqrt(jnp.square(centred).mean((-3, -2), keepdims=True))
    return centred / jnp.maximum(std, least)


def _to_even(x: jax.Array) -> jax.Array:
    """Pads with zeros below and to the right, so that height and width are even."""
    return jnp.pad(x, ((0, 0), (0, x.shape[1] % 2), (0, x.shape[2] % 2), (0, 0)))


class UNet(nn.Module):
    """The part that both world models share."""

    hidden: int  # channels at full size
    compress_steps: int  # halvings of height and width
    double_steps: int  # first halvings, which double the channels
    middle_layers: int
    dropout: float
    residual_dropout: float  # in the middle
    bits: nn.Module | None = None  # `BitInjection`

    @nn.compact
    def __call__(
        self,
        stacked: jax.Array,
        action: jax.Array,
        training: bool,
        seen: jax.Array | None = None,
        step: jax.Array | None = None,
    ) -> tuple[Prediction, jax.Array]:
        """Predicts the frame that follows.

        Args:
          stacked: `[N, H, W, c]`, standardised frames, and a state.
          action: `[N, d]`, the embedding of the action.
          training: whether units are dropped.
          seen: `[N, H, W, 6]`, the newest frame and the next one, for bits in training.
          step: `[]`, updates so far, for bits in training.

        Returns:
          The prediction, and the loss of the bits `[]`.
        """

        def drop(x: jax.Array, rate: float) -> jax.Array:
            return nn.Dropout(rate, deterministic=not training)(x)

        filters = self.hidden
        # Without the barrier, the product reads a transposed array, and XLA finds no tiles for it
        # on an A100.
        stacked = jax.lax.optimization_barrier(stacked)
        x = layers.with_timing(layers.embed(filters, name="embed")(stacked))
        skipped = []
        for i in range(self.compress_steps):
            skipped.append(x)
            x = _to_even(drop(x, self.dropout))
            filters *= 2 if i < self.double_steps else 1
            x = nn.relu(layers.Convolution(filters, 4, 2, name=f"down_{i}")(layers.with_timing(x)))
            x = layers.layer_norm(name=f"down_norm_{i}")(x)
        x = layers.Injection(name="action_middle")(x, action)
        loss = jnp.zeros(())
        if self.bits is not None:
            x, loss = self.bits(x, action, training, seen, step)
        of_middle = x.mean((1, 2))
        for i in range(self.middle_layers):
            y = nn.relu(
                layers.Convolution(filters, 3, name=f"middle_{i}")(drop(x, self.residual_dropout))
            )
            x = layers.layer_norm(name=f"middle_norm_{i}")(x + y) if i else y
        for i, skip in enumerate(reversed(skipped)):
            x = layers.Injection(name=f"action_{i}")(drop(x, self.dropout), action)
            filters //= 2 if i >= self.compress_steps - self.double_steps else 1
            x = nn.relu(layers.TransposedConvolution(filters, name=f"up_{i}")(x))
            x = x[:, : skip.shape[1], : skip.shape[2]]
            x = layers.with_timing(layers.layer_norm(name=f"up_norm_{i}")(x + skip))
        means = jnp.concatenate([of_middle, x.mean((1, 2))], axis=-1)
        of_reward = nn.relu(layers.dense(_REWARD_HIDDEN, name="reward_hidden")(means))
        init = nn.initializers.normal(_REWARD_HIDDEN**-0.5)
        reward = nn.Dense(3, use_bias=False, kernel_init=init, name="reward")(of_reward)
        of_pixels = layers.DenseParameters(3 * VALUES, name="pixels")(x.shape[-1])
        return Prediction(x, *of_pixels, reward), loss


class DeterministicModel(nn.Module):
    """Predicts the frame after a stack of frames."""

    max_num_actions: int
    hidden: int
    unet: UNet

    @nn.compact
    def __call__(self, frames: jax.Array, action: jax.Array, training: bool = False) -> Prediction:
        """Maps frames `[N, C, H, W, 3]`, newest last, and actions `[N]` on the newest one."""
        chex.assert_rank([frames, action], [5, 1])
        n, stack, height, width, colours = frames.shape
        stacked = standardise(frames).transpose(0, 2, 3, 1, 4)
        stacked = stacked.reshape(n, height, width, stack * colours)
        embedded = layers.ActionEmbedding(self.max_num_actions, self.hidden)(action)
        return self.unet(stacked, embedded, training)[0]


class StochasticModel(nn.Module):
    """Predicts the next frame from the newest one and a recurrent state of all earlier frames."""

    max_num_actions: int
    hidden: int
    state_size: int
    unet: UNet

    def setup(self) -> None:
        """Makes what the methods share."""
        self.embedding = layers.ActionEmbedding(self.max_num_actions, self.hidden)
        self.gates = layers.Convolution(2 * self.state_size, 3)

    def start(self, frame: jax.Array) -> jax.Array:
        """The state `[N, H, W, s]` before the first of frames `[N, H, W, 3]`."""
        return jnp.zeros((*frame.shape[:-1], self.state_size))

    def advance(self, state: jax.Array, frame: jax.Array) -> jax.Array:
        """The state after one more frame `[N, H, W, 3]`."""
        gates = self.gates(jnp.concatenate([state, standardise(frame)], axis=-1))
        keep, new = jnp.split(gates, 2, axis=-1)
        keep = nn.sigmoid(keep)
        return state * keep + jnp.tanh(new) * (1.0 - keep)

    def __call__(
        self,
        state: jax.Array,
        frame: jax.Array,
        action: jax.Array,
        training: bool = False,
        following: jax.Array | None = None,
        step: jax.Array | None = None,
    ) -> tuple[Prediction, jax.Array, jax.Array]:
        """Predicts the frame after `frame`.

        Args:
          state: `[N, H, W, s]`, of the frames before.
          frame: `[N, H, W, 3]`, the newest one.
          action: `[N] int32`, taken at `frame`.
          training: whether units are dropped and bits are read from the next frame.
          following: `[N, H, W, 3]`, the next frame, while training.
          step: `[]`, updates so far, while training.

        Returns:
          The prediction; the loss of the bits `[]`; the state after the newest frame.
        """
        standardised, seen = standardise(frame), None
        if training:
            seen = jnp.concatenate([standardised, standardise(following)], axis=-1)
        stacked = jnp.concatenate([standardised, state], axis=-1)
        prediction, loss = self.unet(stacked, self.embedding(action), training, seen, step)
        return prediction, loss, self.advance(state, frame)


def with_pixel_noise(frames: jax.Array, key: chex.PRNGKey, rate: float) -> jax.Array:
    """Sets some pixels of frames `[N, C, H, W, 3]` to the median colour of all frames."""
    noisy = jax.random.bernoulli(key, rate, (*frames.shape[:-1], 1))
    return jnp.where(noisy, median_colour(frames), frames)


def median_colour(frames: jax.Array) -> jax.Array:
    """The median of each colour of whole numbers from 0 to 255, `[..., 3] -> [3] float32`.

    For an even number of values, the greater of the two in the middle. Halves the range eight
    times; on a CPU, sorting takes fifty times as long.
    """
    values = frames.reshape(-1, frames.shape[-1])
    least = jnp.zeros((1, frames.shape[-1]))
    for step in 2.0 ** np.arange(7, -1, -1):
        below = jnp.sum(values < least + step, axis=0, keepdims=True)
        least = jnp.where(below <= len(values) // 2, least + step, least)
    return least[0]


class Policy(nn.Module):
    """The policy's logits, and the value, of stacks of frames."""

    max_num_actions: int

    @nn.compact
    def __call__(self, frames: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """`[N, C, H, W, 3]`, of 0 to 255 `-> [N, A]`, `[N]`, and the last hidden layer `[N, 128]`.

        The logits of an action do not depend on the number of actions.
        """
        chex.assert_rank(frames, 5)
        init = nn.initializers.orthogonal(1.5)

        def first_columns(key, shape, dtype=jnp.float32):
            return init(key, (shape[0], max(_MOST_ACTIONS, shape[1])), dtype)[:, : shape[1]]

        n, stack, height, width, colours = frames.shape
        x = frames.transpose(0, 2, 3, 1, 4).reshape(n, height, width, stack * colours) / 255.0
        for _ in range(2):
            x = nn.relu(layers.Convolution(_POLICY_FILTERS, 5, 2, kernel_init=init)(x))
        x = nn.relu(nn.Dense(_POLICY_HIDDEN, kernel_init=init)(x.reshape(n, -1)))
        logits = nn.Dense(self.max_num_actions, kernel_init=first_columns, name="logits")(x)
        value = nn.Dense(1, kernel_init=init, name="value")(x)
        return logits, value[:, 0], x
