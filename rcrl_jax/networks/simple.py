"""Networks of SimPLe (Kaiser et al., 2020), as in its code, github.com/tensorflow/tensor2tensor.

The world model predicts the next frame and its reward from the last frames and an action. It is a
U-Net of strided convolutions; every pixel of each colour is a choice out of 256 values. There are
two kinds, which share the U-Net:

* deterministic: it reads a stack of frames;
* stochastic: it reads the newest frame and a state that gates all frames so far; bits tell it what
  the frames do not. While it learns, they are read off the next frame; then an LSTM draws them.

Frames are float32 in [0, 255] until a model standardises them.
"""

import functools
import math
from typing import NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from rcrl_jax.losses.simple import cut_cross_entropy, linear_ramp
from rcrl_jax.networks import strided_convolution
from rcrl_jax.networks.initializers import by_row

VALUES = 256  # of a pixel of one colour
_REWARD_HIDDEN = 128
_POLICY_FILTERS, _POLICY_HIDDEN = 32, 128
_MOST_ACTIONS = 18  # of a game
_ATTENTION_HEADS = 4
_SUMMARY_FILTERS = 128, 512  # of the two convolutions that summarise frames for the bits
BITS_AT_ONCE = 8
_PLACES = 2 ** np.arange(BITS_AT_ONCE)[None, None]
_LSTM_DROPOUT = 0.1
_BIT_NOISE = 0.2  # standard deviation of the noise on numbers that become bits

_unit_scaling = jax.nn.initializers.variance_scaling(1.3, "fan_avg", "uniform")


@jax.custom_vjp
def _multiply(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """`[..., I] @ [I, O]`, where I is much smaller than O."""
    return x @ kernel


def _keep(x, kernel):
    return _multiply(x, kernel), (x, kernel)


def _gradients(arguments, gradient):
    x, kernel = arguments
    rows = tuple(range(x.ndim - 1))
    # In this order XLA for CPUs transposes x. In that of its own gradient it transposes the greater
    # array, which takes longer than both products.
    return gradient @ kernel.T, jax.lax.dot_general(x, gradient, ((rows, rows), ((), ())))


_multiply.defvjp(_keep, _gradients)

_dense = functools.partial(nn.Dense, kernel_init=_unit_scaling)
# Inputs may be uniform; a bias of zero would keep them so.
_embed = functools.partial(_dense, bias_init=nn.initializers.normal(0.01))
_dense_to_many = functools.partial(
    _dense, dot_general=lambda x, kernel, *_, **__: _multiply(x, kernel)
)
_layer_norm = functools.partial(nn.LayerNorm, epsilon=1e-6, use_fast_variance=False)


class Prediction(NamedTuple):
    """What a world model says of the step after N frames."""

    pixels: jax.Array  # [N, H, W, 3, 256], logits
    reward: jax.Array  # [N, 3], logits of -1, 0 and 1

    @property
    def frame(self) -> jax.Array:
        """`[N, H, W, 3] float32`, the most likely value of each pixel."""
        return most_likely(self.pixels)

    @property
    def sign(self) -> jax.Array:
        """`[N] float32`, the most likely reward."""
        return jnp.argmax(self.reward, axis=-1).astype(jnp.float32) - 1.0


def most_likely(logits: jax.Array) -> jax.Array:
    """The first index of the largest of logits `[..., K]`: `[...] float32`."""

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


def timing_signal(height: int, width: int, channels: int) -> np.ndarray:
    """`[H, W, c]`: sines and cosines of the row, then of the column, at channels // 4 timescales.

    The timescales lie between 1 and 10,000 pixels at equal ratios; channels that are left are 0.
    """
    number = channels // 4
    timescales = 10_000.0 ** (np.arange(number) / max(number - 1, 1))
    signal = np.zeros((height, width, channels), np.float32)
    for axis, size in enumerate((height, width)):
        phase = np.arange(size)[:, None] / timescales
        waves = np.concatenate([np.sin(phase), np.cos(phase)], axis=1)
        own = signal[..., 2 * number * axis : 2 * number * (axis + 1)]
        own += np.expand_dims(waves, 1 - axis)
    return signal


def _with_timing(x: jax.Array) -> jax.Array:
    return x + timing_signal(*x.shape[1:])[None]


def _to_even(x: jax.Array) -> jax.Array:
    """Zeros below and to the right, so that height and width are even."""
    return jnp.pad(x, ((0, 0), (0, x.shape[1] % 2), (0, x.shape[2] % 2), (0, 0)))


def pad_same(x: jax.Array, side: int, stride: int) -> jax.Array:
    """Zeros around images `[N, H, W, c]` as TensorFlow's padding 'SAME', the odd one at the end."""
    missing = (max((-(-n // stride) - 1) * stride + side - n, 0) for n in x.shape[1:3])
    return jnp.pad(x, ((0, 0), *((n // 2, n - n // 2) for n in missing), (0, 0)))


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
        rows, columns = (-(-n // self.stride) for n in x.shape[1:3])
        x = pad_same(x, self.side, self.stride)
        if self.stride == 2:
            return strided_convolution.convolve(x, kernel, bias)
        shifted = [
            x[:, i : i + (rows - 1) * self.stride + 1, j : j + (columns - 1) * self.stride + 1][
                :, :: self.stride, :: self.stride
            ]
            for i in range(self.side)
            for j in range(self.side)
        ]
        return (
            jnp.concatenate(shifted, axis=-1) @ kernel.reshape(-1, self.filters)
            + bias[None, None, None]
        )


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
        gate = nn.sigmoid(_dense(x.shape[-1], name="multiply")(vector))
        return x * gate + _dense(x.shape[-1], name="add")(vector)


class ActionEmbedding(nn.Module):
    """Vectors of actions; that of action 0 is zero."""

    max_num_actions: int
    size: int

    @nn.compact
    def __call__(self, action: jax.Array) -> jax.Array:
        """`[N] int32 -> [N, size]`."""
        init = by_row(nn.initializers.normal(self.size**-0.5))
        table = self.param("table", init, (self.max_num_actions, self.size))
        return table[action] * math.sqrt(self.size) * (action != 0)[:, None]


class UNet(nn.Module):
    """The part that both world models share."""

    hidden: int  # channels at full size
    compress_steps: int  # halvings of height and width
    double_steps: int  # the first of them, which double the channels
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
          action: `[N, d]`, its embedding.
          training: whether units are dropped.
          seen: `[N, H, W, 6]`, the newest frame and the one that follows, for bits while training.
          step: `[]`, updates so far, likewise.

        Returns:
          The prediction, and the loss of the bits `[]`.
        """

        def drop(x: jax.Array, rate: float) -> jax.Array:
            return nn.Dropout(rate, deterministic=not training)(x)

        filters = self.hidden
        # For an A100, XLA finds no tiles for this product if it reads a transposed array.
        stacked = jax.lax.optimization_barrier(stacked)
        x = _with_timing(_embed(filters, name="embed")(stacked))
        skipped = []
        for i in range(self.compress_steps):
            skipped.append(x)
            x = _to_even(drop(x, self.dropout))
            filters *= 2 if i < self.double_steps else 1
            x = nn.relu(Convolution(filters, 4, 2, name=f"down_{i}")(_with_timing(x)))
            x = _layer_norm(name=f"down_norm_{i}")(x)
        x = Injection(name="action_middle")(x, action)
        loss = jnp.zeros(())
        if self.bits is not None:
            x, loss = self.bits(x, action, training, seen, step)
        of_middle = x.mean((1, 2))
        for i in range(self.middle_layers):
            y = nn.relu(Convolution(filters, 3, name=f"middle_{i}")(drop(x, self.residual_dropout)))
            x = _layer_norm(name=f"middle_norm_{i}")(x + y) if i else y
        for i, skip in enumerate(reversed(skipped)):
            x = Injection(name=f"action_{i}")(drop(x, self.dropout), action)
            filters //= 2 if i >= self.compress_steps - self.double_steps else 1
            x = nn.relu(TransposedConvolution(filters, name=f"up_{i}")(x))
            x = x[:, : skip.shape[1], : skip.shape[2]]
            x = _with_timing(_layer_norm(name=f"up_norm_{i}")(x + skip))
        pixels = _dense_to_many(3 * VALUES, name="pixels")(x)
        means = jnp.concatenate([of_middle, x.mean((1, 2))], axis=-1)
        of_reward = nn.relu(_dense(_REWARD_HIDDEN, name="reward_hidden")(means))
        init = nn.initializers.normal(_REWARD_HIDDEN**-0.5)
        reward = nn.Dense(3, use_bias=False, kernel_init=init, name="reward")(of_reward)
        return Prediction(pixels.reshape(*x.shape[:3], 3, VALUES), reward), loss


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
        embedded = ActionEmbedding(self.max_num_actions, self.hidden)(action)
        return self.unet(stacked, embedded, training)[0]


class AttendedMean(nn.Module):
    """A vector of an image: its mean and four attended means, through a dense layer."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """`[N, H, W, c] -> [N, 2 c]`."""
        n, *_, channels = x.shape
        scores = _dense(_ATTENTION_HEADS, name="scores")(x).reshape(n, -1, _ATTENTION_HEADS)
        x = x.reshape(n, -1, channels)
        # Means of weighted pixels, as in the code, not sums.
        attended = jnp.einsum("npc,nph->nch", x, nn.softmax(scores, axis=1)) / x.shape[1]
        both = jnp.concatenate([attended, x.mean(1)[..., None]], axis=-1)
        return _dense(2 * channels, name="final")(both.reshape(n, -1))


class BitPredictor(nn.Module):
    """An LSTM that reads the middle of the U-Net and predicts bits, eight at once.

    Its gates have the biases of TensorFlow's cell, where the one that keeps starts at 1.
    """

    number: int  # of bits, a multiple of 8
    size: int  # of the LSTM

    def setup(self) -> None:
        """Makes the layers, which both methods share."""
        self.first = _dense(self.size)
        self.cell_start = _dense(self.size)
        self.output_start = _dense(self.size)
        self.gates = _dense(4 * self.size)
        self.symbols = _dense(2**BITS_AT_ONCE)
        self.embedding = _dense(self.size)
        self.dropout = nn.Dropout(_LSTM_DROPOUT, deterministic=False)

    def _start(self, x: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        flat = x.reshape(len(x), -1)
        return self.first(flat), (self.cell_start(flat), self.output_start(flat))

    def _advance(
        self, x: jax.Array, state: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        cell, output = state
        gates = self.gates(jnp.concatenate([x, output], axis=-1))
        enter, new, keep, leave = jnp.split(gates, 4, axis=-1)
        cell = nn.sigmoid(keep + 1.0) * cell + nn.sigmoid(enter) * jnp.tanh(new)
        return cell, nn.sigmoid(leave) * jnp.tanh(cell)

    def loss(self, x: jax.Array, bits: jax.Array) -> jax.Array:
        """Mean cross-entropy `[]` of bits `[N, number]`, of -1 and 1, each given those before."""
        symbols = to_symbols(bits)
        given = self.dropout(self.embedding(nn.one_hot(symbols, 2**BITS_AT_ONCE)))
        following, state = self._start(x)
        outputs = []
        for i in range(symbols.shape[1]):
            state = self._advance(following, state)
            outputs.append(state[1])
            following = given[:, i]
        logits = self.symbols(self.dropout(jnp.stack(outputs, axis=1)))
        return cut_cross_entropy(logits, symbols, 0.0)

    def draw(self, x: jax.Array) -> jax.Array:
        """Bits `[N, number]`, of -1 and 1."""
        following, state = self._start(x)
        drawn = []
        for _ in range(self.number // BITS_AT_ONCE):
            state = self._advance(following, state)
            symbol = jax.random.categorical(self.make_rng("noise"), self.symbols(state[1]))
            drawn.append(symbol)
            following = self.embedding(nn.one_hot(symbol, 2**BITS_AT_ONCE))
        return to_bits(jnp.stack(drawn, axis=1))


def to_symbols(bits: jax.Array) -> jax.Array:
    """`[N, b]`, of -1 and 1 `-> [N, b / 8] int32`; the first of eight bits counts 1."""
    groups = bits.reshape(len(bits), -1, BITS_AT_ONCE) > 0
    return jnp.sum(groups * _PLACES, axis=-1)


def to_bits(symbols: jax.Array) -> jax.Array:
    """The inverse of `to_symbols`, float32."""
    bits = symbols[..., None] // _PLACES % 2
    return 2.0 * bits.reshape(len(symbols), -1).astype(jnp.float32) - 1.0


def sign(x: jax.Array) -> jax.Array:
    """1 above zero, -1 elsewhere."""
    return jnp.where(x > 0, 1.0, -1.0)


def noisy_bits(
    x: jax.Array, key: chex.PRNGKey, flip_rate: float, discrete_share: jax.Array
) -> jax.Array:
    """Bits of numbers `[N, b]` while a model learns; gradients pass as if they were tanh(x).

    Some bits are flipped, and some stay tanh(x) with noise.

    Args:
      x: numbers before the tanh.
      key: of the noise.
      flip_rate: probability that a bit changes its sign.
      discrete_share: `[]`, probability that a number becomes a bit at all.
    """
    noise_key, flip_key, mix_key = jax.random.split(key, 3)
    noise = _BIT_NOISE * jax.random.truncated_normal(noise_key, -2.0, 2.0, x.shape)
    soft = jnp.tanh(x + noise)
    bits = soft + jax.lax.stop_gradient(sign(soft) - soft)
    bits = jnp.where(jax.random.bernoulli(flip_key, flip_rate, x.shape), -bits, bits)
    return jnp.where(jax.random.bernoulli(mix_key, discrete_share, x.shape), bits, soft)


class BitInjection(nn.Module):
    """Tells the middle of the U-Net bits: of the next frame while learning, else predicted ones."""

    hidden: int  # channels of the frames from which bits are read
    number: int  # of bits
    flip_rate: float
    ramp: int  # updates until bits are discrete, and predicted ones most frequent
    most_predicted: float  # probability that a bit is a predicted one, at the end of the ramp
    most_used: float  # probability that bits are told at all, at the end of half the ramp
    predictor_size: int

    @nn.compact
    def __call__(
        self,
        x: jax.Array,
        action: jax.Array,
        training: bool,
        seen: jax.Array | None,
        step: jax.Array | None,
    ) -> tuple[jax.Array, jax.Array]:
        """Returns images like `x [N, H, W, c]`, and the loss of the prediction `[]`."""
        predictor = BitPredictor(self.number, self.predictor_size, name="predictor")
        tell = Injection(name="tell")
        if not training:
            return tell(x, predictor.draw(x)), jnp.zeros(())
        frames = _with_timing(_embed(self.hidden, name="embed")(seen))
        frames = Injection(name="action")(frames, action)
        summary = [
            AttendedMean(name=f"mean_{i}")(Convolution(filters, 8, 4, name=f"summary_{i}")(frames))
            for i, filters in enumerate(_SUMMARY_FILTERS)
        ]
        numbers = _dense(self.number, name="bits")(jnp.concatenate(summary, axis=-1))
        clean = jax.lax.stop_gradient(sign(numbers))
        ramp = linear_ramp(step, self.ramp)
        bits = noisy_bits(numbers, self.make_rng("noise"), self.flip_rate, ramp)
        loss = predictor.loss(x, clean)
        predicted = jax.random.bernoulli(
            self.make_rng("noise"), self.most_predicted * ramp, bits.shape
        )
        bits = jnp.where(predicted, jax.lax.stop_gradient(predictor.draw(x)), bits)
        used = jax.random.bernoulli(
            self.make_rng("noise"), self.most_used * linear_ramp(step, self.ramp // 2), (len(x),)
        )
        return jnp.where(used[:, None, None, None], tell(x, bits), x), loss


class StochasticModel(nn.Module):
    """Predicts the next frame from the newest one and a state, which gates all frames so far."""

    max_num_actions: int
    hidden: int
    state_size: int
    unet: UNet

    def setup(self) -> None:
        """Makes what the methods share."""
        self.embedding = ActionEmbedding(self.max_num_actions, self.hidden)
        self.gates = Convolution(2 * self.state_size, 3)

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
        """Predicts the frame after one.

        Args:
          state: `[N, H, W, s]`, of the frames before.
          frame: `[N, H, W, 3]`, the newest one.
          action: `[N] int32`, on it.
          training: whether units are dropped and bits are read off the next frame.
          following: `[N, H, W, 3]`, the next frame, while training.
          step: `[]`, updates so far, while training.

        Returns:
          The prediction; the loss of the bits `[]`; the state with the newest frame.
        """
        standardised, seen = standardise(frame), None
        if training:
            seen = jnp.concatenate([standardised, standardise(following)], axis=-1)
        stacked = jnp.concatenate([standardised, state], axis=-1)
        prediction, loss = self.unet(stacked, self.embedding(action), training, seen, step)
        return prediction, loss, self.advance(state, frame)


def with_pixel_noise(frames: jax.Array, key: chex.PRNGKey, rate: float) -> jax.Array:
    """Some pixels take the median colour of all frames: `[N, C, H, W, 3]`."""
    noisy = jax.random.bernoulli(key, rate, (*frames.shape[:-1], 1))
    return jnp.where(noisy, median_colour(frames), frames)


def median_colour(frames: jax.Array) -> jax.Array:
    """The median of whole numbers from 0 to 255 `[..., 3]`, of each colour: `[3] float32`.

    Of an even number of values, the greater one of the two in the middle. It is found by halving
    the range eight times; on a CPU sorting takes fifty times as long.
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

        The logits of an action do not depend on how many there are.
        """
        chex.assert_rank(frames, 5)
        init = nn.initializers.orthogonal(1.5)

        def first_columns(key, shape, dtype=jnp.float32):
            return init(key, (shape[0], max(_MOST_ACTIONS, shape[1])), dtype)[:, : shape[1]]

        n, stack, height, width, colours = frames.shape
        x = frames.transpose(0, 2, 3, 1, 4).reshape(n, height, width, stack * colours) / 255.0
        for _ in range(2):
            x = nn.relu(Convolution(_POLICY_FILTERS, 5, 2, kernel_init=init)(x))
        x = nn.relu(nn.Dense(_POLICY_HIDDEN, kernel_init=init)(x.reshape(n, -1)))
        logits = nn.Dense(self.max_num_actions, kernel_init=first_columns, name="logits")(x)
        value = nn.Dense(1, kernel_init=init, name="value")(x)
        return logits, value[:, 0], x
