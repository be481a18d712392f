"""CURL on DMControl (Srinivas et al., 2020): two crops of one observation belong together."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from rcrl_jax import types
from rcrl_jax.auxiliary import task
from rcrl_jax.losses import contrastive


def make_instance_contrast(
    embed_query: Callable[[types.Params, types.Batch], jax.Array],
    embed_key: Callable[[types.Params, jax.Array], jax.Array],
    embedding_size: int,
    weight: float,
) -> task.AuxiliaryTask:
    """Makes the task for an agent.

    Args:
      embed_query: psi of the batch as the RL loss sees it, `(agent_params, batch) -> [B, d]`.
      embed_key: the target encoder's psi of other crops of the same observations,
        `(agent_params, key) -> [B, d]`.
      embedding_size: d.
      weight: of the loss.
    """

    def init(key) -> types.Params:
        return {"bilinear": jax.random.uniform(key, (embedding_size, embedding_size))}

    def loss(task_params, agent_params, state, batch: types.Batch, key):
        del state
        query = embed_query(agent_params, batch)
        keys = jax.lax.stop_gradient(embed_key(agent_params, key))
        logits = query @ task_params["bilinear"] @ keys.T
        correct = jnp.argmax(logits, axis=-1) == jnp.arange(len(logits))
        metrics = {"instance_accuracy": jnp.mean(correct)}
        return contrastive.info_nce(logits), metrics

    return task.AuxiliaryTask(init, loss, weight=lambda run: weight)
