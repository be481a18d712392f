"""The reconstruction task of SAC+AE (Yarats et al.): a decoder predicts the images from psi(s)."""

import jax
import jax.numpy as jnp

from rcrl_jax import types
from rcrl_jax.agents.sac import network as sac
from rcrl_jax.agents.sac.config import SacConfig
from rcrl_jax.observations import quantise
from rcrl_jax.tasks import task


def make_reconstruction(parts: task.AgentParts, config: SacConfig) -> task.AuxiliaryTask:
    """Makes the task for an agent.

    The source's Adam optimiser decays the decoder's weights. We add half the squared norm of the
    decoder's parameters to the loss instead, which gives the same gradient.
    """
    decoder = sac.Decoder(config.filters, config.crop_size, 3 * config.frame_stack)

    def init(key) -> types.Params:
        return decoder.init(key, jnp.zeros((1, parts.psi_size)))

    def loss(task_params, view: task.UpdateView, state, key):
        del state
        image = quantise(sac.as_channels(view.batch.transitions.observation), key)
        error = decoder.apply(task_params, view.psi) - image
        penalty = 0.5 * jnp.mean(jnp.sum(jnp.square(view.psi), axis=-1))
        decay = 0.5 * sum(jnp.sum(jnp.square(x)) for x in jax.tree.leaves(task_params))
        reconstruction = jnp.mean(jnp.square(error))
        total = reconstruction + config.latent_penalty * penalty
        total += config.decoder_weight_decay * decay
        return total, {"reconstruction_error": reconstruction}

    return task.AuxiliaryTask(init, loss)
