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
    *,
    discriminator_input: str = "concatenation",
    loss_form: str = "squared_error",
    weight: float = 1.0,
) -> task.AuxiliaryTask:
    """Makes the task for an agent.

    Args:
      embed: phi, `(agent_params, observation [N, ...], action [N]) -> [N, embedding_size]`.
      embedding_size: width of phi(s, a).
      discriminator_hidden: units of the discriminator's hidden layer.
      discriminator_input: how the discriminator reads two embeddings, see `Discriminator`.
      loss_form: 'squared_error' or 'cross_entropy'.
      weight: of the loss.
    """
    network = discriminator.Discriminator(discriminator_hidden, discriminator_input)
    error = _ERRORS[loss_form]

    def init(key: chex.PRNGKey) -> types.Params:
        pair = jnp.zeros((1, embedding_size))
        return network.init(key, pair, pair)

    def loss(task_params, agent_params, state, batch: types.Batch, key):
        del state, key  # the task keeps and draws nothing: its samples come from the replay
        anchor, positive, negative = (embed(agent_params, *pairs) for pairs in batch.contrast)
        logit_positive = network.apply(task_params, anchor, positive)
        logit_negative = network.apply(task_params, anchor, negative)
        errors = jnp.concatenate(
            [error(logit_positive, SAME_RETURN), error(logit_negative, DIFFERENT_RETURN)]
        )
        metrics = {
            "discriminator_accuracy_positive": jnp.mean(logit_positive < 0.0),
            "discriminator_accuracy_negative": jnp.mean(logit_negative >= 0.0),
            "cosine_positive": jnp.mean(contrastive.cosine_similarity(anchor, positive)),
            "cosine_negative": jnp.mean(contrastive.cosine_similarity(anchor, negative)),
        }
        return jnp.mean(errors), metrics

    return task.AuxiliaryTask(init, loss, weight=lambda run: weight)


_ERRORS = {
    "squared_error": lambda logit, label: contrastive.squared_error(jax.nn.sigmoid(logit), label),
    "cross_entropy": contrastive.binary_cross_entropy,
}
