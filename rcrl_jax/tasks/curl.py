"""CURL: two random views of one observation are a positive pair (Srinivas et al., 2020).

             Atari (curl_rainbow)                        DMControl (curl)
    query    another shift -> encoder -> projection      psi of the RL loss's crop
    key      another shift -> momentum copies of both    another crop -> the agent's target encoder
    logit    0.1 query W key                             query W key

Key i is the positive of query i. The two codebases differ in these points; we follow each on its
benchmark.
"""

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from rcrl_jax import types
from rcrl_jax.config.base import AgentConfig, CurlConfig
from rcrl_jax.tasks import task

_UNIFORM = nn.initializers.uniform(1.0)  # U[0, 1), all positive


def make_curl(parts: task.AgentParts, config: AgentConfig) -> task.AuxiliaryTask:
    """Makes CURL's task as in the codebase for the agent's family."""
    if config.family == "rainbow":
        return make_momentum_curl(parts, config.curl)
    return make_target_curl(parts)


def make_momentum_curl(parts: task.AgentParts, config: CurlConfig) -> task.AuxiliaryTask:
    """Makes CURL's task for Atari and an agent whose encoder is `params["params"]["encoder"]`.

    Args:
      parts: of the agent.
      config: sizes, momentum and the weight of each game.
    """
    head = Projection(config.hidden_size, config.projection_size)

    def init(key: chex.PRNGKey) -> types.Params:
        projection_key, bilinear_key = jax.random.split(key)
        return {
            "projection": head.init(projection_key, jnp.zeros((1, parts.psi_size))),
            "bilinear": _init_bilinear(bilinear_key, config.projection_size),
        }

    def key_network(task_params, agent_params) -> types.Params:
        """The parameters that the momentum network follows."""
        encoder = agent_params["params"]["encoder"]
        return {"encoder": encoder, "projection": task_params["projection"]}

    def images(batch, sampled: types.Batch, key):
        del batch
        query_key, _ = jax.random.split(key)
        return (parts.augment(query_key, sampled.transitions.observation),)

    def loss(task_params, view: task.UpdateView, momentum, key):
        _, key_key = jax.random.split(key)
        (psi,) = view.psi_of_images
        queries = head.apply(task_params["projection"], psi)
        shifted = parts.augment(key_key, view.sampled.transitions.observation)
        followed = view.params["params"] | {"encoder": momentum["encoder"]}
        other = parts.encode({"params": followed}, shifted)
        keys = head.apply(momentum["projection"], other)
        logits = config.logit_scale * _similarities(task_params["bilinear"], queries, keys)
        return info_nce(logits), {"curl_accuracy": _accuracy(logits)}

    def next_state(momentum, task_params, agent_params) -> types.Params:
        return optax.incremental_update(
            key_network(task_params, agent_params), momentum, 1.0 - config.momentum
        )

    def game_factor(game: str) -> np.float32:
        return np.float32(config.reduced_weight if game in config.reduced_games else 1.0)

    return task.AuxiliaryTask(
        init,
        loss,
        weight=lambda factor: config.weight * factor,
        whole_frames=True,
        encoded=2,
        images=images,
        constants=game_factor,
        init_state=key_network,
        next_state=next_state,
        importance_weighted=config.importance_weighted,
        in_priorities=config.in_priorities,
    )


def make_target_curl(parts: task.AgentParts) -> task.AuxiliaryTask:
    """Makes CURL's task for DMControl."""

    def init(key: chex.PRNGKey) -> types.Params:
        return {"bilinear": _init_bilinear(key, parts.psi_size)}

    def loss(task_params, view: task.UpdateView, state, key):
        del state
        other_crop = parts.augment(key, view.sampled.transitions.observation)
        keys = parts.encode_target(view.target_params, other_crop)
        logits = _similarities(task_params["bilinear"], view.psi, keys)
        return info_nce(logits), {"instance_accuracy": _accuracy(logits)}

    return task.AuxiliaryTask(init, loss, whole_frames=True, encoded=1)


class Projection(nn.Module):
    """Two linear layers, each followed by a normalisation without trainable scale and shift.

    As in github.com/aravindsrinivas/curl_rainbow `model.py`: weights start in U[0, 1) and biases
    at 0. That code makes new normalisation layers in every forward pass, so it never trains their
    scale and shift.

    Attributes:
      hidden: units of the first layer.
      size: units of the second layer.
    """

    hidden: int
    size: int

    @nn.compact
    def __call__(self, psi: jax.Array) -> jax.Array:
        """Maps psi(s) `[N, d]` to `[N, size]`."""
        chex.assert_rank(psi, 2)
        hidden = nn.relu(_normalise(nn.Dense(self.hidden, kernel_init=_UNIFORM)(psi)))
        return _normalise(nn.Dense(self.size, kernel_init=_UNIFORM)(hidden))


def _normalise(x: jax.Array) -> jax.Array:
    # The fast variance, E[x^2] - E[x]^2, loses digits: all inputs and initial weights are positive.
    norm = nn.LayerNorm(epsilon=1e-5, use_bias=False, use_scale=False, use_fast_variance=False)
    return norm(x)


def _init_bilinear(key: chex.PRNGKey, size: int) -> jax.Array:
    return jax.random.uniform(key, (size, size))


def _similarities(bilinear: jax.Array, queries: jax.Array, keys: jax.Array) -> jax.Array:
    """query W key: `[d, d], [N, d], [N, d] -> [N, N]`; no gradient reaches the keys."""
    return queries @ bilinear @ jax.lax.stop_gradient(keys).T


def info_nce(logits: jax.Array) -> jax.Array:
    """InfoNCE, the mean cross-entropy of a batch (van den Oord et al., 2018).

    Args:
      logits: similarity of query i and key j, `[N, N]`. Key i is the positive of query i; all
        other keys are its negatives.

    Returns:
      One loss for the batch, `[]`.
    """
    chex.assert_shape(logits, (len(logits), len(logits)))
    return -jnp.mean(jnp.diagonal(jax.nn.log_softmax(logits, axis=1)))


def _accuracy(logits: jax.Array) -> jax.Array:
    """Share of queries whose positive has the largest logit: `[N, N] -> []`."""
    return jnp.mean(jnp.argmax(logits, axis=1) == jnp.arange(len(logits)))
