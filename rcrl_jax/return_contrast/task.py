"""The return-contrastive task (RCRL, section 4.3).

A discriminator on the agent's state-action embedding learns whether two pairs have equal returns.
The positive counts as having the anchor's return: by default it comes from the anchor's segment.
The negative is drawn from the whole replay.
"""

import chex
import jax
import jax.numpy as jnp
import optax

from rcrl_jax import types
from rcrl_jax.config.base import AgentConfig
from rcrl_jax.return_contrast import discriminator
from rcrl_jax.tasks import task

SAME_RETURN, DIFFERENT_RETURN = 0.0, 1.0  # the label y = I[b(R1) != b(R2)]


def make_return_contrast(parts: task.AgentParts, config: AgentConfig) -> task.AuxiliaryTask:
    """Makes the task for an agent.

    Args:
      parts: of the agent; the loss trains phi on the samples that `parts.contrast_rule` describes.
      config: of the agent, with discriminator and loss in `return_contrast`.
    """
    contrast = config.return_contrast
    network = discriminator.Discriminator(
        contrast.discriminator_hidden,
        contrast.discriminator_input,
        contrast.discriminator_layers,
    )
    # Accelerators fuse operations, which leaves a rounding error where two components are equal. On
    # the CPU the difference is exactly 0 (tested), so the CPU keeps the plain derivative, and
    # finished runs keep their bits.
    network_on_device = network.clone(rounds_ties=True)
    error = _ERRORS[contrast.loss]

    def init(key: chex.PRNGKey) -> types.Params:
        pair = jnp.zeros((1, parts.phi_size))
        return network.init(key, pair, pair)

    # On an accelerator, one large kernel is faster than several small ones; on the CPU it would
    # only add a copy.
    def join_one_by_one(agent_params, psi, actions):
        return tuple(parts.join(agent_params, *pair) for pair in zip(psi, actions, strict=True))

    def join_together(agent_params, psi, actions):
        phi = parts.join(agent_params, jnp.concatenate(psi), jnp.concatenate(actions))
        return tuple(jnp.split(phi, len(psi)))

    def judge_one_by_one(task_params, anchor, positive, negative):
        return tuple(network.apply(task_params, anchor, x) for x in (positive, negative))

    def judge_together(task_params, anchor, positive, negative):
        both = jnp.concatenate([positive, negative])
        anchors = jnp.concatenate([anchor, anchor])
        logits = network_on_device.apply(task_params, anchors, both)
        return tuple(jnp.split(logits, 2))

    def loss(task_params, view: task.UpdateView, state, key):
        del state, key  # no state and no random numbers: the samples come from the replay
        actions = tuple(pairs.action for pairs in view.batch.contrast)
        anchor, positive, negative = jax.lax.platform_dependent(
            view.params, view.psi_of_images, actions, cpu=join_one_by_one, default=join_together
        )
        logit_positive, logit_negative = jax.lax.platform_dependent(
            task_params, anchor, positive, negative, cpu=judge_one_by_one, default=judge_together
        )
        w_positive, w_negative = jax.nn.sigmoid(logit_positive), jax.nn.sigmoid(logit_negative)
        errors = jnp.concatenate(
            [
                error(logit_positive, w_positive, SAME_RETURN),
                error(logit_negative, w_negative, DIFFERENT_RETURN),
            ]
        )
        return jnp.mean(errors), {
            "discriminator_accuracy_positive": jnp.mean(w_positive < 0.5),
            "discriminator_accuracy_negative": jnp.mean(w_negative >= 0.5),
            "cosine_positive": jnp.mean(task.cosine(anchor, positive)),
            "cosine_negative": jnp.mean(task.cosine(anchor, negative)),
        }

    return task.AuxiliaryTask(
        init,
        loss,
        images=lambda batch, sampled, key: tuple(pairs.observation for pairs in batch.contrast),
        contrast_rule=parts.contrast_rule,
        discriminate=network.apply,
    )


_ERRORS = {
    # The summand of the Z-learning loss (equation 1).
    "squared_error": lambda logit, w, label: jnp.square(w - label),
    # From the logit, since the logarithm of a saturated w would be infinite.
    "cross_entropy": lambda logit, w, label: optax.sigmoid_binary_cross_entropy(logit, label),
}
