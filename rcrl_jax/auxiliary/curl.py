"""CURL: two random shifts of one observation are a positive pair (Srinivas et al., 2020).

query: observation of the RL batch -> shift -> encoder          -> projection
key:   the same observation        -> shift -> momentum encoder -> momentum projection
logits of query i and key j: query_i W key_j; key i is the positive of query i
"""

from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax

from rcrl_jax import types
from rcrl_jax.auxiliary import task
from rcrl_jax.config.groups import CurlConfig
from rcrl_jax.losses import contrastive
from rcrl_jax.networks import projection


def make_curl(
    encode: Callable[[types.Params, jax.Array], jax.Array],
    shift: Callable[[chex.PRNGKey, jax.Array], jax.Array],
    embedding_size: int,
    config: CurlConfig,
    weight: float,
) -> task.AuxiliaryTask:
    """Makes the task for an agent whose transitions hold whole frames.

    Args:
      encode: psi, `(encoder_params, observation [N, *obs]) -> [N, embedding_size]`.
      shift: `(key, sampled observation [N, ...]) -> [N, *obs]`, whole frames shifted at random.
      embedding_size: width of psi(s).
      config: sizes, momentum and the weight of each game.
      weight: of every auxiliary loss.
    """
    head = projection.Projection(config.hidden_size, config.projection_size)

    def init(key: chex.PRNGKey) -> types.Params:
        projection_key, bilinear_key = jax.random.split(key)
        size = config.projection_size
        return {
            "projection": head.init(projection_key, jnp.zeros((1, embedding_size))),
            "bilinear": jax.random.uniform(bilinear_key, (size, size)),
        }

    def key_network(task_params, agent_params) -> types.Params:
        """The parameters that the momentum network follows."""
        encoder = agent_params["params"]["encoder"]
        return {"encoder": encoder, "projection": task_params["projection"]}

    def images(batch, sampled: types.Batch, key):
        del batch
        query_key, _ = jax.random.split(key)
        return (shift(query_key, sampled.transitions.observation),)

    def loss(task_params, view: task.UpdateView, momentum, key):
        _, key_key = jax.random.split(key)
        (psi,) = view.images
        queries = head.apply(task_params["projection"], psi)
        other = encode(momentum["encoder"], shift(key_key, view.sampled.transitions.observation))
        keys = jax.lax.stop_gradient(head.apply(momentum["projection"], other))
        logits = config.logit_scale * (queries @ task_params["bilinear"] @ keys.T)
        return contrastive.info_nce(logits), {
            "curl_accuracy": jnp.mean(jnp.argmax(logits, axis=1) == jnp.arange(len(logits)))
        }

    def next_state(momentum, task_params, agent_params) -> types.Params:
        return optax.incremental_update(
            key_network(task_params, agent_params), momentum, 1.0 - config.momentum
        )

    def game_factor(game: str) -> np.float32:
        return np.float32(config.reduced_weight if game in config.reduced_games else 1.0)

    return task.AuxiliaryTask(
        init,
        loss,
        weight=lambda factor: weight * config.weight * factor,
        images=images,
        constants=game_factor,
        init_state=key_network,
        next_state=next_state,
        importance_weighted=config.importance_weighted,
        in_priorities=config.in_priorities,
    )
