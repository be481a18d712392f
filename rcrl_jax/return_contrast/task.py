"""The return-contrastive task (RCRL, section 4.3).

A discriminator on the agent's state-action embedding learns whether two pairs have equal returns.
The positive has the anchor's return: by default it comes from the anchor's segment. The negative is
drawn from the whole replay.
"""

from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp
import optax

from rcrl_jax import types
from rcrl_jax.auxiliary import task
from rcrl_jax.config.groups import ReturnContrastConfig
from rcrl_jax.return_contrast import discriminator

SAME_RETURN, DIFFERENT_RETURN = 0.0, 1.0  # the label y = I[b(R1) != b(R2)]


def make_return_contrast(
    parts: task.AgentParts, config: ReturnContrastConfig
) -> task.AuxiliaryTask:
    """Makes the task for an agent.

    Args:
      parts: of the agent; the task trains what makes phi, on `parts.samples`.
      config: discriminator and loss.
    """
    network = discriminator.Discriminator(
        config.discriminator_hidden,
        config.discriminator_input,
        config.discriminator_layers,
    )
    error = _ERRORS[config.loss]

    def init(key: chex.PRNGKey) -> types.Params:
        pair = jnp.zeros((1, parts.phi_size))
        return network.init(key, pair, pair)

    def loss(task_params, view: task.UpdateView, state, key):
        del state, key  # no state and no random numbers: the samples come from the replay
        actions = [pairs.action for pairs in view.batch.contrast]
        states_and_actions = zip(view.psi_of_images, actions, strict=True)
        anchor, positive, negative = _of_each(parts.join, view.params, *states_and_actions)
        logit_positive, logit_negative = _of_each(
            network.apply, task_params, (anchor, positive), (anchor, negative)
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
            "cosine_positive": jnp.mean(cosine(anchor, positive)),
            "cosine_negative": jnp.mean(cosine(anchor, negative)),
        }

    return task.AuxiliaryTask(
        init,
        loss,
        images=lambda batch, sampled, key: tuple(pairs.observation for pairs in batch.contrast),
        samples=parts.samples,
        discriminate=network.apply,
    )


def _of_each(
    function: Callable[..., jax.Array], params: types.Params, *batches: tuple[jax.Array, ...]
) -> tuple[jax.Array, ...]:
    """`function(params, *batch)` of several batches of equal size.

    On an accelerator, one large kernel is faster than several small ones; on the CPU it would only
    add a copy.
    """

    def one_by_one(params, *batches):
        return tuple(function(params, *batch) for batch in batches)

    def together(params, *batches):
        joined = map(jnp.concatenate, zip(*batches, strict=True))
        return tuple(jnp.split(function(params, *joined), len(batches)))

    return jax.lax.platform_dependent(params, *batches, cpu=one_by_one, default=together)


_ERRORS = {
    # The summand of the Z-learning loss (equation 1).
    "squared_error": lambda logit, w, label: jnp.square(w - label),
    # From the logit, since the logarithm of a saturated w would be infinite.
    "cross_entropy": lambda logit, w, label: optax.sigmoid_binary_cross_entropy(logit, label),
}


def cosine(first: jax.Array, second: jax.Array) -> jax.Array:
    """Cosine of the angle between vectors `[N, d]`, 0 for a zero vector: `[N]` (section 5.2)."""
    return optax.losses.cosine_similarity(first, second, epsilon=1e-24)
