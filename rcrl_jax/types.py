"""The typed containers that modules exchange.

Shapes are those of one run. The fleet adds a leading run axis `R` to every array. `obs` is the
shape of an observation in the agent's layout (observations.py): `225, C, 25` for Rainbow,
`C, H, W, 3` or `C, D` for SAC. `act` is the shape of an action: `()` for discrete actions, `A` for
vectors.
"""

from typing import Any, NamedTuple

import chex
import jax
import optax

Params = Any  # a pytree of parameters, as Flax makes them


class RunSpec(NamedTuple):
    """What differs between the runs of a fleet and stays fixed during a run."""

    num_valid_actions: chex.Array  # [] int32, valid discrete actions, or components of a vector
    constants: Any = ()  # a pytree of arrays: what the game or task of the run fixes for the agent


class Pairs(NamedTuple):
    """State-action pairs x = (s, a)."""

    observation: chex.Array  # [N, *obs]
    action: chex.Array  # [N, *act]


class ContrastBatch(NamedTuple):
    """Samples of the return-contrastive task; row i of the three belongs together."""

    anchor: Pairs
    positive: Pairs  # counts as having the anchor's return: of its segment, by default
    negative: Pairs  # from anywhere in the run's replay


class TransitionBatch(NamedTuple):
    """n-step transitions for the RL loss; observations as `ObservationFormat` says."""

    observation: chex.Array  # [B, *obs]
    action: chex.Array  # [B, *act]
    reward: chex.Array  # [B] float32, discounted sum over the window
    discount: chex.Array  # [B] float32, gamma^k times the window's discounts; 0 if it terminated
    next_observation: chex.Array  # [B, *obs], the state at the window's end
    weight: chex.Array  # [B] float32, importance weights, at most 1


class Batch(NamedTuple):
    """Everything one update reads."""

    transitions: TransitionBatch
    contrast: ContrastBatch | None  # None when no auxiliary task reads it


class TrainableParams(NamedTuple):
    """All parameters that gradients move."""

    agent: Params
    auxiliary: dict[str, Params]  # by task name


class LearnerState(NamedTuple):
    """All that learning changes; a pytree that an update takes and returns."""

    params: TrainableParams
    target_params: Params  # of the agent alone, as much as it has targets for
    opt_state: optax.OptState
    key: jax.Array  # raw uint32 key data, because typed keys do not survive every checkpoint
    updates: jax.Array  # [] int32
    task_state: dict[str, Params]  # by task name, what no gradient moves: a momentum network


class Comparison(NamedTuple):
    """How alike state-action pairs x1 and x2 are, row by row."""

    cosine: jax.Array  # [N], of phi(x1) and phi(x2)
    logit: jax.Array | None  # [N], of the discriminator: high where the returns should differ


class UpdateResult(NamedTuple):
    """What an update tells the outside."""

    transition_loss: jax.Array  # [B], what priorities are made from
    metrics: dict[str, jax.Array]  # scalars, by the name they are logged under
