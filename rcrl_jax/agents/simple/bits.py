"""The bits of SimPLe's stochastic world model: inferred, predicted and fed to its U-Net."""

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from rcrl_jax.agents.simple import layers
from rcrl_jax.agents.simple.loss import cut_cross_entropy, linear_ramp

_ATTENTION_HEADS = 4
_SUMMARY_FILTERS = 128, 512  # of the two convolutions that summarise frames for the bits
BITS_AT_ONCE = 8
_PLACES = 2 ** np.arange(BITS_AT_ONCE)[None, None]
_LSTM_DROPOUT = 0.1
_BIT_NOISE = 0.2  # standard deviation of the noise on numbers that become bits


class AttendedMean(nn.Module):
    """A vector of an image: its mean and four attended means, through a dense layer."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """`[N, H, W, c] -> [N, 2 c]`."""
        n, *_, channels = x.shape
        scores = layers.dense(_ATTENTION_HEADS, name="scores")(x).reshape(n, -1, _ATTENTION_HEADS)
        x = x.reshape(n, -1, channels)
        # Means of weighted pixels, as in the code, not sums.
        attended = jnp.einsum("npc,nph->nch", x, nn.softmax(scores, axis=1)) / x.shape[1]
        both = jnp.concatenate([attended, x.mean(1)[..., None]], axis=-1)
        return layers.dense(2 * channels, name="final")(both.reshape(n, -1))


class BitPredictor(nn.Module):
    """An LSTM that reads the middle of the U-Net and predicts bits, eight at once.

    The gates have the biases of TensorFlow's cell: the forget gate's bias starts at 1.
    """

    number: int  # of bits, a multiple of 8
    size: int  # of the LSTM

    def setup(self) -> None:
        """Makes the layers, which both methods share."""
        self.first = layers.dense(self.size)
        self.cell_start = layers.dense(self.size)
        self.output_start = layers.dense(self.size)
        self.gates = layers.dense(4 * self.size)
        self.symbols = layers.dense(2**BITS_AT_ONCE)
        self.embedding = layers.dense(self.size)
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
        """Mean cross-entropy `[]` of bits `[N, number]`, -1 or 1, each given the earlier bits."""
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
    """Bits of numbers `[N, b]` in training; gradients are those of tanh(x).

    Some bits are flipped. Some numbers are not rounded to bits: they stay tanh(x) with noise.

    Args:
      x: numbers before the tanh.
      key: of the noise.
      flip_rate: probability that a bit changes its sign.
      discrete_share: `[]`, probability that a number is rounded to -1 or 1.
    """
    noise_key, flip_key, mix_key = jax.random.split(key, 3)
    noise = _BIT_NOISE * jax.random.truncated_normal(noise_key, -2.0, 2.0, x.shape)
    soft = jnp.tanh(x + noise)
    bits = soft + jax.lax.stop_gradient(sign(soft) - soft)
    bits = jnp.where(jax.random.bernoulli(flip_key, flip_rate, x.shape), -bits, bits)
    return jnp.where(jax.random.bernoulli(mix_key, discrete_share, x.shape), bits, soft)


class BitInjection(nn.Module):
    """Feeds bits to the U-Net's middle: read from the next frame in training, else predicted."""

    hidden: int  # channels of the frames from which bits are read
    number: int  # of bits
    flip_rate: float
    ramp: int  # updates until bits are discrete, and until predicted bits are most frequent
    most_predicted: float  # probability that a bit is predicted, at the end of the ramp
    most_used: float  # probability that the U-Net gets bits at all, after half the ramp
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
        tell = layers.Injection(name="tell")
        if not training:
            return tell(x, predictor.draw(x)), jnp.zeros(())
        frames = layers.with_timing(layers.embed(self.hidden, name="embed")(seen))
        frames = layers.Injection(name="action")(frames, action)
        summary = [
            AttendedMean(name=f"mean_{i}")(
                layers.Convolution(filters, 8, 4, name=f"summary_{i}")(frames)
            )
            for i, filters in enumerate(_SUMMARY_FILTERS)
        ]
        numbers = layers.dense(self.number, name="bits")(jnp.concatenate(summary, axis=-1))
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
