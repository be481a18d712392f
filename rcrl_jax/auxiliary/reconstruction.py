"""The reconstruction task of SAC+AE (Yarats et al.): psi(s) must tell what the images were."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from rcrl_jax import types
from rcrl_jax.auxiliary import task
from rcrl_jax.networks import sac

_LEVELS = 32  # colours are reduced to five bits, as in Glow, from which SAC+AE takes it


def make_reconstruction(
    embed: Callable[[types.Params, jax.Array], jax.Array],
    decoder: sac.Decoder,
    embedding_size: int,
    latent_penalty: float,
    weight_decay: float,
    weight: float,
) -> task.AuxiliaryTask:
    """Makes the task for an agent.

    Args:
      embed: psi, `(agent_params, observation [N, C, H, W, 3]) -> [N, embedding_size]`.
      decoder: maps psi to images.
      embedding_size: width of psi(s).
      latent_penalty: weight of |psi|^2 / 2.
      weight_decay: weight of half the squared norm of the decoder's parameters. The source
        leaves it to its optimiser, where Adam rescales it in the same way.
      weight: of the loss.
    """

    def init(key) -> types.Params:
        return decoder.init(key, jnp.zeros((1, embedding_size)))

    def loss(task_params, agent_params, state, batch: types.Batch, key):
        del state
        observation = batch.transitions.observation
        psi = embed(agent_params, observation)
        error = decoder.apply(task_params, psi) - target_image(key, observation)
        penalty = 0.5 * jnp.mean(jnp.sum(jnp.square(psi), axis=-1))
        decay = 0.5 * sum(jnp.sum(jnp.square(x)) for x in jax.tree.leaves(task_params))
        reconstruction = jnp.mean(jnp.square(error))
        total = reconstruction + latent_penalty * penalty + weight_decay * decay
        return total, {"reconstruction_error": reconstruction}

    return task.AuxiliaryTask(init, loss, weight=lambda run: weight)


def target_image(key: jax.Array, observation: jax.Array) -> jax.Array:
    """Pixels in [-0.5, 0.5), of five bits and spread evenly within their levels.

    `[N, C, H, W, 3] uint8 -> [N, H, W, 3 C] float32`.
    """
    levels = (sac.as_channels(observation) // (256 // _LEVELS)).astype(jnp.float32)
    return (levels + jax.random.uniform(key, levels.shape)) / _LEVELS - 0.5
