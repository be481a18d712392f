"""The return-contrastive task (RCRL, sections 4.2 and 4.3).

A discriminator on the agent's own state-action embedding learns to tell a pair from the anchor's
segment, whose return is the anchor's, from a pair drawn anywhere in the replay.
"""

from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp

from rcrl_jax import types
from rcrl_jax.auxiliary import task
from rcrl_jax.losses import contrastive
from rcrl_jax.networks import discriminator

SAME_RETURN, DIFFERENT_RETURN = 0.0, 1.0  # the label y = I[b(R1) != b(R2)]


def make_return_contrast(
    embed: Callable[[types.Params, jax.Array, jax.Array], jax.Array],
    embedding_size: int,
    discriminator_hidden: int,
) -> task.AuxiliaryTask:
    """Makes the task for an agent.

    Args:
      embed: phi, `(agent_params, observation [N, ...], action [N]) -> [N, embedding_size]`.
      embedding_size: width of phi(s, a).
      discriminator_hidden: units of the discriminator's hidden layer.
    """
    network = discriminator.Discriminator(discriminator_hidden)

    def init(key: chex.PRNGKey) -> types.Params:
        pair = jnp.zeros((1, embedding_size))
        return network.init(key, pair, pair)

    def loss(task_params, agent_params, batch: types.Batch, key):
        del key  # the task draws nothing: its samples come from the replay
        anchor, positive, negative = (embed(agent_params, *pairs) for pairs in batch.contrast)
        w_positive = network.apply(task_params, anchor, positive)
        w_negative = network.apply(task_params, anchor, negative)
        errors = jnp.concatenate(
            [
                contrastive.squared_error(w_positive, SAME_RETURN),
                contrastive.squared_error(w_negative, DIFFERENT_RETURN),
            ]
        )
        metrics = {
            "discriminator_accuracy_positive": jnp.mean(w_positive < 0.5),
            "discriminator_accuracy_negative": jnp.mean(w_negative >= 0.5),
            "cosine_positive": jnp.mean(contrastive.cosine_similarity(anchor, positive)),
            "cosine_negative": jnp.mean(contrastive.cosine_similarity(anchor, negative)),
        }
        return jnp.mean(errors), metrics

    return task.AuxiliaryTask(init, loss)
