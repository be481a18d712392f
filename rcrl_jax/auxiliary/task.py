"""What an auxiliary task is."""

import dataclasses
from collections.abc import Callable

import chex
import jax

from rcrl_jax import types


def _no_state(task_params: types.Params, agent_params: types.Params) -> None:
    """Of a task that keeps nothing beside its parameters."""
    del task_params, agent_params


def _unchanged(state: types.Params, task_params: types.Params, agent_params: types.Params):
    del task_params, agent_params
    return state


@dataclasses.dataclass(frozen=True)
class AuxiliaryTask:
    """Pure functions, written for one run.

    Attributes:
      init: `key -> params`, the task's own parameters.
      loss: `(task_params, agent_params, state, batch, key) -> (scalar, metrics)`. Its gradient
        reaches both kinds of parameters, and no state.
      weight: `run -> scalar`, the weight of the loss; not a constant where it is the game's.
      init_state: `(task_params, agent_params) -> state`, what the task keeps beside its
        parameters, for example a slow copy of a network.
      next_state: `(state, task_params, agent_params) -> state`, called after every optimiser
        step with the new parameters.
      discriminate: `(task_params, first [N, d], second [N, d]) -> logit [N]` of two embeddings
        belonging to different classes; None where the task has no discriminator.
      importance_weighted: whether the loss is multiplied by the batch's mean importance weight.
      in_priorities: whether the loss, with its weight, is added to what priorities are made of.
    """

    init: Callable[[chex.PRNGKey], types.Params]
    loss: Callable[
        [types.Params, types.Params, types.Params, types.Batch, chex.PRNGKey],
        tuple[jax.Array, dict[str, jax.Array]],
    ]
    weight: Callable[[types.RunSpec], jax.Array | float]
    init_state: Callable[[types.Params, types.Params], types.Params] = _no_state
    next_state: Callable[[types.Params, types.Params, types.Params], types.Params] = _unchanged
    discriminate: Callable[[types.Params, jax.Array, jax.Array], jax.Array] | None = None
    importance_weighted: bool = False
    in_priorities: bool = False
