"""The parameters of SAC, and its networks as pure functions of them."""

from collections.abc import Callable
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from rcrl_jax import types
from rcrl_jax.agents.sac import network as networks
from rcrl_jax.agents.sac.config import SacConfig
from rcrl_jax.networks.policy import Policy
from rcrl_jax.observations import ObservationFormat


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
    """The networks. F: width of the features; d: width of psi; A: components of an action.

    Attributes:
      init: `keys [5] -> SacParams`.
      psi: `(critic, observation [N, *obs]) -> psi [N, d]`.
      features: `(critic, observation [N, *obs]) -> [N, F]`, what embeddings read.
      encode: `(critic, observation, *others) -> (psi, features, psi of each other one)`.
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
      observations: their format; from pixels, the networks read crops of them.
      max_num_actions: A.
    """
    pixels = config.observation == "pixels"
    convolutions = networks.Convolutions(config.filters)
    embedding = networks.Embedding(config.embedding_size)
    critics = networks.TwinCritics(config.hidden_size)
    actor = networks.Actor(
        config.hidden_size, max_num_actions, config.log_std_min, config.log_std_max
    )
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
