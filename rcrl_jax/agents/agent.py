"""What an agent is: a frozen container of pure functions for one run."""

import dataclasses
from collections.abc import Callable, Mapping

import chex
import jax
import jax.numpy as jnp

from rcrl_jax import types
from rcrl_jax.auxiliary import task
from rcrl_jax.losses import contrastive


@dataclasses.dataclass(frozen=True)
class Agent:
    """Three pure functions, written for one run; they never see the fleet axis.

    Attributes:
      init: `(run, key) -> LearnerState`.
      act: `(run, params, observation [N, *obs], key, greedy, step) -> action [N, *act]`.
        Not greedy: the training policy after `step []` agent steps. Greedy: the evaluation
        policy: noise off, with Rainbow's share of random actions. `greedy` is static.
      update: `(run, state, batch) -> (state, UpdateResult)`: one gradient step on the RL loss
        plus every auxiliary loss.
      embed: `(params, pairs) -> [N, d]`: the representation of state-action pairs that the
        head reads.
      compare: `(trainable_params, first, second) -> Comparison`: how alike pairs are, row by row.
      action: shape and type of one action.
      batches_over_runs: whether accelerators gain from batching its products over runs; not
        where they are convolutions, which turn into slow grouped ones.
      image_bytes: about what an update holds for each observation that it differentiates.
    """

    init: Callable[[types.RunSpec, chex.PRNGKey], types.LearnerState]
    act: Callable[
        [types.RunSpec, types.Params, chex.Array, chex.PRNGKey, bool, jax.Array], jax.Array
    ]
    update: Callable[
        [types.RunSpec, types.LearnerState, types.Batch],
        tuple[types.LearnerState, types.UpdateResult],
    ]
    embed: Callable[[types.Params, types.Pairs], jax.Array]
    compare: Callable[[types.TrainableParams, types.Pairs, types.Pairs], types.Comparison]
    action: jax.ShapeDtypeStruct = jax.ShapeDtypeStruct((), jnp.int32)
    batches_over_runs: bool = True
    image_bytes: int | None = None


def make_compare(
    embed: Callable[[types.Params, types.Pairs], jax.Array],
    tasks: Mapping[str, task.AuxiliaryTask],
) -> Callable[[types.TrainableParams, types.Pairs, types.Pairs], types.Comparison]:
    """Makes `Agent.compare` of an agent's embedding and its tasks."""
    contrast = tasks.get("return_contrast")

    def compare(params: types.TrainableParams, first: types.Pairs, second: types.Pairs):
        phi, other = embed(params.agent, first), embed(params.agent, second)
        logit = None
        if contrast is not None:
            logit = contrast.discriminate(params.auxiliary["return_contrast"], phi, other)
        return types.Comparison(contrastive.cosine_similarity(phi, other), logit)

    return compare
