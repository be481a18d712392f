"""CURL on DMControl (Srinivas et al., 2020): two crops of an observation are a positive pair."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from rcrl_jax import types
from rcrl_jax.auxiliary import task
from rcrl_jax.losses import contrastive


def make_instance_contrast(
    encode_target: Callable[[types.Params, jax.Array], jax.Array],
    crop: Callable[[jax.Array, jax.Array], jax.Array],
    psi_size: int,
    weight: float,
) -> task.AuxiliaryTask:
    """Makes the task for an agent that crops its observations; queries are the update's psi.

    Args:
      encode_target: psi of the target encoder,
        `(target_params, observation [B, *obs]) -> [B, psi_size]`.
      crop: `(key, sampled observation [B, C, H, W, 3]) -> [B, *obs]`, at random places.
      psi_size: width of psi(s).
      weight: of the loss.
    """

    def init(key) -> types.Params:
        return {"bilinear": jax.random.uniform(key, (psi_size, psi_size))}

    def loss(task_params, view: task.UpdateView, state, key):
        del state  # the agent's own target encoder makes the keys
        other_crop = crop(key, view.sampled.transitions.observation)
        keys = jax.lax.stop_gradient(encode_target(view.target_params, other_crop))
        logits = view.psi @ task_params["bilinear"] @ keys.T
        correct = jnp.argmax(logits, axis=-1) == jnp.arange(len(logits))
        metrics = {"instance_accuracy": jnp.mean(correct)}
        return contrastive.info_nce(logits), metrics

    return task.AuxiliaryTask(init, loss, weight=lambda constants: weight)
