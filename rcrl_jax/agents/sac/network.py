"""The networks of SAC: tied convolutions, embeddings, twin critics, actor, decoder.

    observation ── Convolutions ──┬── Embedding ── psi(s) ──┬── [psi(s), a] ── TwinCritics
                                  │                         └── Decoder
                                  └── stop gradient ── Embedding (the actor's own) ── Actor

Sizes and initial values are those of CURL's code: weights are orthogonal, convolutions
delta-orthogonal with the gain of a ReLU, biases zero. State vectors skip the convolutions and the
embedding.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from rcrl_jax import types
from rcrl_jax.agents.sac.config import SacConfig
from rcrl_jax.networks.policy import Policy
from rcrl_jax.observations import ObservationFormat
from rcrl_jax.ops import convolution, device_convolutions

STRIDES = (2, 1, 1, 1)  # of the four convolutions
_MOST_PARTS = 64  # of a sum on a GPU


def conv_sizes(size: int) -> list[int]:
    """Heights of the four convolutions' outputs for images of height `size`."""
    sizes = []
    for stride in STRIDES:
        size = (size - 3) // stride + 1
        sizes.append(size)
    return sizes


def as_channels(observation: jax.Array) -> jax.Array:
    """Puts the colours of all frames, frame by frame, on the channel axis.

    `[N, C, H, W, 3] -> [N, H, W, 3 C]`.
    """
    chex.assert_rank(observation, 5)
    n, frame_stack, height, width, colours = observation.shape
    return observation.transpose(0, 2, 3, 1, 4).reshape(n, height, width, frame_stack * colours)


def delta_orthogonal(gain: float) -> jax.nn.initializers.Initializer:
    """Convolution kernels `[h, w, in, out]`, h and w odd, that are zero outside the centre tap.

    The centre tap is `gain` times a matrix with orthonormal rows or columns, whichever are fewer
    (Xiao et al., 2018). `jax.nn.initializers.delta_orthogonal` rejects kernels with fewer outputs
    than inputs.
    """
    orthogonal = jax.nn.initializers.orthogonal(gain)

    def init(key: chex.PRNGKey, shape: tuple[int, ...], dtype=jnp.float32) -> jax.Array:
        height, width, *matrix = shape
        centre = orthogonal(key, matrix, dtype)
        return jnp.zeros(shape, dtype).at[height // 2, width // 2].set(centre)

    return init


def _dense(features: int, name: str | None = None, **fields) -> nn.Dense:
    return nn.Dense(features, kernel_init=nn.initializers.orthogonal(), name=name, **fields)


class _Convolution(nn.Module):
    """The parameters of a 3x3 convolution."""

    filters: int

    @nn.compact
    def __call__(self, channels: int) -> tuple[jax.Array, jax.Array]:
        """Kernel `[3, 3, channels, filters]` and bias `[filters]`."""
        init = delta_orthogonal(math.sqrt(2.0))
        kernel = self.param("kernel", init, (3, 3, channels, self.filters))
        return kernel, self.param("bias", nn.initializers.zeros, (self.filters,))


class Convolutions(nn.Module):
    """Four 3x3 convolutions without padding, the first of stride 2."""

    filters: int

    @nn.compact
    def __call__(self, observation: jax.Array) -> jax.Array:
        """Maps `[N, C, H, W, 3] uint8` to features `[N, F]`."""
        chex.assert_shape(observation, (None, None, None, None, 3))
        chex.assert_type(observation, jnp.uint8)
        pixels = as_channels(observation)
        channels = [pixels.shape[-1], *[self.filters] * (len(STRIDES) - 1)]
        parameters = [_Convolution(self.filters)(number) for number in channels]
        features = jax.lax.platform_dependent(
            pixels, parameters, cpu=_convolve_on_cpu, default=device_convolutions.encode
        )
        return features.reshape(len(pixels), -1)


def _convolve_on_cpu(pixels, parameters):
    # Without the barrier, XLA repeats the cast inside the loops of the convolution.
    x = jax.lax.optimization_barrier(pixels.astype(jnp.float32) / 255.0)
    for stride, (kernel, bias) in zip(STRIDES, parameters, strict=True):
        x = convolution.convolve(x, kernel, bias, stride, True)
    return x


class Embedding(nn.Module):
    """A linear map and a LayerNorm."""

    features: int

    @nn.compact
    def __call__(self, features: jax.Array) -> jax.Array:
        """Maps `[N, F]` to `[N, features]`."""
        chex.assert_rank(features, 2)
        dense = _dense(self.features, dot_general=_multiply)
        return nn.LayerNorm(epsilon=1e-5)(dense(features))


def _multiply(x, kernel, dimensions, precision=None, **_):
    product = functools.partial(
        jax.lax.dot_general, dimension_numbers=dimensions, precision=precision
    )
    return jax.lax.platform_dependent(x, kernel, cuda=_multiply_in_parts, default=product)


def _multiply_in_parts(x, kernel):
    """`[N, F], [F, d] -> [N, d]` as a sum of products over parts of F.

    `[N, d]` has few tiles to distribute over a GPU, so we split the sum. XLA would split it, too,
    but into parts that do not divide F, and would first copy the features into a padded array.
    """
    size = len(kernel)
    parts = max((n for n in range(1, _MOST_PARTS + 1) if size % (8 * n) == 0), default=1)
    x_parts = x.reshape(len(x), parts, -1)
    kernel_parts = kernel.reshape(parts, -1, kernel.shape[-1])
    return jnp.einsum("npk,pkd->pnd", x_parts, kernel_parts).sum(0)


class TwinCritics(nn.Module):
    """Two critics without shared weights; both read phi(s, a) = [psi(s), a]."""

    hidden: int

    @nn.compact
    def __call__(self, embedding: jax.Array) -> jax.Array:
        """Maps phi(s, a) `[N, d]` to the values of both critics `[N, 2]`."""
        chex.assert_rank(embedding, 2)
        values = []
        for critic in ("first", "second"):
            x = nn.relu(_dense(self.hidden, f"{critic}_hidden_1")(embedding))
            x = nn.relu(_dense(self.hidden, f"{critic}_hidden_2")(x))
            values.append(_dense(1, f"{critic}_value")(x))
        return jnp.concatenate(values, axis=-1)


class Actor(nn.Module):
    """A Gaussian policy, before the tanh of its samples.

    Attributes:
      hidden: units of each of the two hidden layers.
      max_num_actions: A, the number of components of an action, padding included.
      log_std_min: lower bound of the log standard deviations.
      log_std_max: upper bound of the log standard deviations.
    """

    hidden: int
    max_num_actions: int
    log_std_min: float
    log_std_max: float

    @nn.compact
    def __call__(self, embedding: jax.Array) -> Policy:
        """Maps `[N, d]` to means and log standard deviations `[N, A]`."""
        chex.assert_rank(embedding, 2)
        x = nn.relu(_dense(self.hidden)(embedding))
        x = nn.relu(_dense(self.hidden)(x))
        mean, raw = jnp.split(_dense(2 * self.max_num_actions)(x), 2, axis=-1)
        # Squashed by tanh: a clipped value would have no gradient outside its bounds.
        share = 0.5 * (jnp.tanh(raw) + 1.0)
        return Policy(mean, self.log_std_min + share * (self.log_std_max - self.log_std_min))


class Decoder(nn.Module):
    """Maps psi(s) back to an image: the convolutions in reverse (Yarats et al., SAC+AE).

    Attributes:
      filters: channels between the convolutions.
      size: height and width of the image.
      channels: channels of the image.
    """

    filters: int
    size: int
    channels: int

    @nn.compact
    def __call__(self, embedding: jax.Array) -> jax.Array:
        """Maps psi(s) `[N, d]` to `[N, size, size, channels]`."""
        chex.assert_rank(embedding, 2)
        side = conv_sizes(self.size)[-1]
        x = nn.relu(_dense(side * side * self.filters)(embedding))
        x = x.reshape(-1, side, side, self.filters)
        for stride, filters in zip(
            reversed(STRIDES), [*[self.filters] * (len(STRIDES) - 1), self.channels], strict=True
        ):
            x = jax.lax.platform_dependent(
                x,
                *_Convolution(filters)(self.filters),
                cpu=functools.partial(_convolve_spread, stride=stride, relu=stride == 1),
                default=functools.partial(
                    device_convolutions.convolve_transposed, stride=stride, relu=stride == 1
                ),
            )
        # With an even size, the first convolution does not read the last row and column.
        return jnp.pad(x, ((0, 0), (0, 1), (0, 1), (0, 0)))[:, : self.size, : self.size]


def _convolve_spread(x, kernel, bias, *, stride, relu):
    """A transposed 3x3 convolution: spaces pixels by `stride`, pads, and convolves."""
    edges = (2, 2, stride - 1)
    spread = jax.lax.pad(x, jnp.zeros((), x.dtype), ((0, 0, 0), edges, edges, (0, 0, 0)))
    return convolution.convolve(spread, kernel, bias, 1, relu)


class CriticParams(NamedTuple):
    """The critic with its encoder; the targets have the same structure."""

    convolutions: types.Params  # empty for state vectors, as is the embedding
    embedding: types.Params
    critics: types.Params


class ActorParams(NamedTuple):
    """The actor on top of the critic's convolutions."""

    embedding: types.Params
    actor: types.Params


class SacParams(NamedTuple):
    """All parameters of the agent."""

    critic: CriticParams
    actor: ActorParams
    log_temperature: jax.Array  # []


class SacModel(NamedTuple):
    """The networks as functions. F: width of the features; d: of psi; A: components of an action.

    Attributes:
      init: `keys [5] -> SacParams`.
      psi: `(critic, observation [N, *obs]) -> psi [N, d]`.
      features: `(critic, observation [N, *obs]) -> [N, F]`, the input of the embeddings.
      encode: `(critic, observation, *others) -> (psi, features, psi of each of the others)`.
      values: `(critic, psi [N, d], action [N, A]) -> [N, 2]`, of both critics.
      policy: `(actor, features [N, F]) -> Policy` of `[N, A]`.
      psi_size: d.
    """

    init: Callable[[chex.PRNGKey], SacParams]
    psi: Callable[[CriticParams, jax.Array], jax.Array]
    features: Callable[[CriticParams, jax.Array], jax.Array]
    encode: Callable[..., tuple[jax.Array, jax.Array, list[jax.Array]]]
    values: Callable[[CriticParams, jax.Array, jax.Array], jax.Array]
    policy: Callable[[ActorParams, jax.Array], Policy]
    psi_size: int


def make_model(
    config: SacConfig, observations: ObservationFormat, max_num_actions: int
) -> SacModel:
    """Makes the networks of a configuration.

    Args:
      config: the configuration.
      observations: format of the observations; of pixels, the networks read crops.
      max_num_actions: A.
    """
    pixels = config.observation == "pixels"
    convolutions = Convolutions(config.filters)
    embedding = Embedding(config.embedding_size)
    critics = TwinCritics(config.hidden_size)
    actor = Actor(config.hidden_size, max_num_actions, config.log_std_min, config.log_std_max)
    observation_shape = observations.network_shape
    if pixels:
        observation_shape = (config.frame_stack, config.crop_size, config.crop_size, 3)
    psi_size = config.embedding_size if pixels else int(np.prod(observation_shape))

    def init(keys: chex.PRNGKey) -> SacParams:
        observation = jnp.zeros((1, *observation_shape), observations.network.dtype)
        conv_params, psi_params, actor_psi_params = {}, {}, {}
        if pixels:
            shared, conv_params = convolutions.init_with_output(keys[0], observation)
            psi_params = embedding.init(keys[1], shared)
            actor_psi_params = embedding.init(keys[2], shared)
        pair = jnp.zeros((1, psi_size + max_num_actions))
        critic = CriticParams(conv_params, psi_params, critics.init(keys[3], pair))
        actor_params = ActorParams(actor_psi_params, actor.init(keys[4], pair[:, :psi_size]))
        return SacParams(critic, actor_params, jnp.log(jnp.float32(config.initial_temperature)))

    def features(critic: CriticParams, observation: jax.Array) -> jax.Array:
        chex.assert_shape(observation, (None, *observation_shape))
        if not pixels:
            return observation.reshape(observation.shape[0], -1)
        return convolutions.apply(critic.convolutions, observation)

    def psi_of_features(params: types.Params, shared: jax.Array) -> jax.Array:
        return embedding.apply(params, shared) if pixels else shared

    def psi(critic: CriticParams, observation: jax.Array) -> jax.Array:
        return psi_of_features(critic.embedding, features(critic, observation))

    def encode_each(critic, observation, *others):
        shared = features(critic, observation)
        return psi_of_features(critic.embedding, shared), shared, [psi(critic, x) for x in others]

    def encode_together(critic, *observations):
        shared = features(critic, jnp.concatenate(observations))
        ends = np.cumsum([len(observation) for observation in observations])
        first, *others = jnp.split(psi_of_features(critic.embedding, shared), ends[:-1])
        return first, shared[: len(first)], others

    def encode(critic, *observations):
        return jax.lax.platform_dependent(
            critic, *observations, cpu=encode_each, default=encode_together
        )

    def values(critic: CriticParams, psi_: jax.Array, action: jax.Array) -> jax.Array:
        return critics.apply(critic.critics, jnp.concatenate([psi_, action], axis=-1))

    def policy(params: ActorParams, shared: jax.Array) -> Policy:
        return actor.apply(params.actor, psi_of_features(params.embedding, shared))

    return SacModel(init, psi, features, encode, values, policy, psi_size)
