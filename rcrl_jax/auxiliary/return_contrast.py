"""The return-contrastive task (RCRL, sections 4.2 and 4.3).

A discriminator on the agent's own state-action embedding learns to tell a pair whose return is the
anchor's, by default one of its segment, from a pair drawn anywhere in the replay.
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
    discriminator_layers: int = 1,
    discriminator_norm: str = "none",
    loss_form: str = "squared_error",
    weight: float = 1.0,
) -> task.AuxiliaryTask:
    """Makes the task for an agent.

    Args:
      embed: phi, `(agent_params, observation [N, ...], action [N]) -> [N, embedding_size]`.
      embedding_size: width of phi(s, a).
      discriminator_hidden: units of each of the discriminator's hidden layers.
      discriminator_input: how the discriminator reads two embeddings, see `Discriminator`.
      discriminator_layers: number of its hidden layers.
      discriminator_norm: how it normalises the embeddings, see `Discriminator`.
      loss_form: 'squared_error' or 'cross_entropy'.
      weight: of the loss.
    """
    network = discriminator.Discriminator(
        discriminator_hidden, discriminator_input, discriminator_layers, discriminator_norm
    )
    error = _ERRORS[loss_form]

    def init(key: chex.PRNGKey) -> types.Params:
        pair = jnp.zeros((1, embedding_size))
        return network.init(key, pair, pair)

    def loss(task_params, agent_params, state, batch: types.Batch, key):
        del state, key  # the task keeps and draws nothing: its samples come from the replay
        anchor, positive, negative = (embed(agent_params, *pairs) for pairs in batch.contrast)
        logit_positive = network.apply(task_params, anchor, positive)
        w_positive = jax.nn.sigmoid(logit_positive)
        logit_negative = network.apply(task_params, anchor, negative)
        w_negative = jax.nn.sigmoid(logit_negative)
        errors = jnp.concatenate(
            [
                error(logit_positive, w_positive, SAME_RETURN),
                error(logit_negative, w_negative, DIFFERENT_RETURN),
            ]
        )
        metrics = {
            "discriminator_accuracy_positive": jnp.mean(w_positive < 0.5),
            "discriminator_accuracy_negative": jnp.mean(w_negative >= 0.5),
            "cosine_positive": jnp.mean(contrastive.cosine_similarity(anchor, positive)),
            "cosine_negative": jnp.mean(contrastive.cosine_similarity(anchor, negative)),
        }
        return jnp.mean(errors), metrics

    return task.AuxiliaryTask(
        init, loss, weight=lambda run: weight, discriminate=network.apply
    )


_ERRORS = {
    "squared_error": lambda logit, w, label: contrastive.squared_error(w, label),
    # From the logit, since the logarithm of a saturated w would be infinite.
    "cross_entropy": lambda logit, w, label: contrastive.binary_cross_entropy(logit, label),
}
