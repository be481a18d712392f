"""What an auxiliary task is."""

import dataclasses
from collections.abc import Callable

import chex
import jax

from rcrl_jax import types


@dataclasses.dataclass(frozen=True)
class AuxiliaryTask:
    """Two pure functions, written for one run.

    Attributes:
      init: `key -> params`, the task's own parameters.
      loss: `(task_params, agent_params, batch, key) -> (scalar, metrics)`. Its gradient reaches
        both kinds of parameters.
    """

    init: Callable[[chex.PRNGKey], types.Params]
    loss: Callable[
        [types.Params, types.Params, types.Batch, chex.PRNGKey],
        tuple[jax.Array, dict[str, jax.Array]],
    ]
