"""The reconstruction task of SAC+AE (Yarats et al.): a decoder predicts the images from psi(s)."""

import jax
import jax.numpy as jnp

from rcrl_jax import types
from rcrl_jax.augmentation import quantise
from rcrl_jax.auxiliary import task
from rcrl_jax.networks import sac


def make_reconstruction(
    decoder: sac.Decoder,
    psi_size: int,
    latent_penalty: float,
    weight_decay: float,
) -> task.AuxiliaryTask:
    """Makes the task for an agent.

    Args:
      decoder: maps psi to images.
      psi_size: width of psi(s).
      latent_penalty: weight of |psi|^2 / 2.
      weight_decay: weight of half the squared norm of the decoder's parameters. The source uses
        the weight decay of its Adam optimiser, which adds the same term to the gradient.
    """

    def init(key) -> types.Params:
        return decoder.init(key, jnp.zeros((1, psi_size)))

    def loss(task_params, view: task.UpdateView, state, key):
        del state
        image = quantise(sac.as_channels(view.batch.transitions.observation), key)
        error = decoder.apply(task_params, view.psi) - image
        penalty = 0.5 * jnp.mean(jnp.sum(jnp.square(view.psi), axis=-1))
        decay = 0.5 * sum(jnp.sum(jnp.square(x)) for x in jax.tree.leaves(task_params))
        reconstruction = jnp.mean(jnp.square(error))
        total = reconstruction + latent_penalty * penalty + weight_decay * decay
        return total, {"reconstruction_error": reconstruction}

    return task.AuxiliaryTask(init, loss)
