"""What an agent is: a frozen container of pure functions for one run."""

import dataclasses
from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp

from rcrl_jax import observations, types


@dataclasses.dataclass(frozen=True)
class Agent:
    """Pure functions, written for one run; they never see the fleet axis.

    Attributes:
      init: `key -> LearnerState`.
      act: `(run, params, observation [N, *obs], key, greedy) -> action [N, *act]`. Not greedy:
        the training policy. Greedy: the evaluation policy, noise off, with the configured share
        of random actions. `greedy` is static.
      update: `(run, state, batch) -> (state, UpdateResult)`: one gradient step on the RL loss
        plus every auxiliary loss.
      act_at_random: `(run, key, N) -> action [N, *act]`, what is done before the first update;
        None where the training policy is.
      layout: how observations reach the functions above.
      action: shape and type of one action.
      batches_over_runs: whether accelerators gain from batching its products over runs; not
        where they are convolutions, which turn into slow grouped ones.
      image_bytes: about what an update holds for each observation that it differentiates.
    """

    init: Callable[[chex.PRNGKey], types.LearnerState]
    act: Callable[[types.RunSpec, types.Params, chex.Array, chex.PRNGKey, bool], jax.Array]
    update: Callable[
        [types.RunSpec, types.LearnerState, types.Batch],
        tuple[types.LearnerState, types.UpdateResult],
    ]
    act_at_random: Callable[[types.RunSpec, chex.PRNGKey, int], jax.Array] | None = None
    layout: observations.Layout = observations.PATCHES
    action: jax.ShapeDtypeStruct = jax.ShapeDtypeStruct((), jnp.int32)
    batches_over_runs: bool = True
    # Patches, and three arrays of the first layer's size, in float32.
    image_bytes: int = 4 * (observations.CELLS * 25 * 4 + 3 * observations.CELLS * 32)
