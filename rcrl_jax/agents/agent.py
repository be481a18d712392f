"""What an agent is: a frozen container of pure functions for one run."""

import dataclasses
from collections.abc import Callable

import chex
import jax

from rcrl_jax import types


@dataclasses.dataclass(frozen=True)
class Agent:
    """Three pure functions, written for one run; they never see the fleet axis.

    Attributes:
      init: `key -> LearnerState`.
      act: `(run, params, observation [N, ...] uint8, key, greedy, step) -> action [N] int32`.
        Not greedy: the training policy after `step []` agent steps. Greedy: the evaluation
        policy, noise off, with the configured share of random actions. `greedy` is static.
      update: `(run, state, batch) -> (state, UpdateResult)`: one gradient step on the RL loss
        plus every auxiliary loss.
      embed: `(params, pairs) -> [N, d]`: the representation of state-action pairs that the
        head reads.
    """

    init: Callable[[chex.PRNGKey], types.LearnerState]
    act: Callable[
        [types.RunSpec, types.Params, chex.Array, chex.PRNGKey, bool, jax.Array], jax.Array
    ]
    update: Callable[
        [types.RunSpec, types.LearnerState, types.Batch],
        tuple[types.LearnerState, types.UpdateResult],
    ]
    embed: Callable[[types.Params, types.Pairs], jax.Array]
