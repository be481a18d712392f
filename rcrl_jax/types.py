"""The typed containers that modules exchange.

Shapes are those of one run. The fleet adds a leading run axis `R` to every array. `obs` is the
shape of an observation in the agent's layout (observations.py): `225, C, 25`, `C, 7056` or
`C, 84, 84` for Rainbow, `C, H, W, 3` or `C, D` for SAC. `act` is the shape of an action: `()` for
discrete actions, `A` for vectors.
"""

from typing import Any, NamedTuple

import chex
import jax
import numpy as np
import optax

Params = Any  # a pytree of parameters, as Flax makes them


class Incompatible(ValueError):
    """A configuration, its auxiliary tasks and its environment do not work together."""


class RunSpec(NamedTuple):
    """What differs between the runs of a fleet and stays fixed during a run."""

    num_valid_actions: chex.Array  # [] int32, valid discrete actions, or components of a vector
    constants: Any = ()  # a pytree of arrays that depend on the run's game; `Agent.run_constants`


class Context(NamedTuple):
    """The newest C frames of episodes with the actions between them, for agents that filter."""

    frames: chex.Array  # [N, C, *frame], newest last; zeros before the start of the episode
    action: chex.Array  # [N, C, *act], which led to each frame; zero where none did
    exists: chex.Array  # [N, C] bool, False before the start of the episode


class Pairs(NamedTuple):
    """State-action pairs x = (s, a)."""

    # [N, *obs], or a context if `ObservationFormat.with_actions`
    observation: chex.Array | Context
    action: chex.Array  # [N, *act]


class ContrastBatch(NamedTuple):
    """Samples of the return-contrastive task; rows i of the three form one sample."""

    anchor: Pairs
    positive: Pairs  # counts as having the anchor's return; by default from its segment
    negative: Pairs  # from anywhere in the run's replay


class TransitionBatch(NamedTuple):
    """n-step transitions for the RL loss; observations as `ObservationFormat` says."""

    observation: chex.Array  # [B, *obs]
    action: chex.Array  # [B, *act]
    reward: chex.Array  # [B] float32, discounted sum over the window
    discount: chex.Array  # [B] float32, gamma^k of a window of k steps; 0 if it terminated
    next_observation: chex.Array  # [B, *obs], the state at the window's end
    weight: chex.Array  # [B] float32, importance weights, at most 1


class SequenceBatch(NamedTuple):
    """Windows of L consecutive frames, for agents that learn from sequences.

    A frame comes with the action and reward that led to it, or with those that followed it. The
    rule of the windows decides which; `replay/sequences.py` shows both.
    """

    observation: chex.Array  # [B, L, *frame]
    action: chex.Array  # [B, L, *act]; zero where there is none
    reward: chex.Array  # [B, L] float32; likewise
    discount: chex.Array  # [B, L] float32; 0 where the step terminated; always 1 with 'leads'
    is_first: chex.Array  # [B, L] bool, of its episode


class Batch(NamedTuple):
    """Everything one update reads."""

    transitions: TransitionBatch | SequenceBatch
    contrast: ContrastBatch | None  # None when no auxiliary task reads it


class TrainableParams(NamedTuple):
    """All parameters that are trained by gradients."""

    agent: Params
    auxiliary: dict[str, Params]  # by task name


class LearnerState(NamedTuple):
    """All that learning changes; a pytree that an update takes and returns."""

    params: TrainableParams
    target_params: Params  # copies of those agent parameters that have targets
    opt_state: optax.OptState
    key: jax.Array  # raw uint32 key data, because typed keys do not survive every checkpoint
    updates: jax.Array  # [] int32
    task_state: dict[str, Params]  # by task name; not trained by gradients, e.g. a momentum network


class Comparison(NamedTuple):
    """Similarity of state-action pairs x1 and x2, row by row."""

    cosine: jax.Array  # [N], of phi(x1) and phi(x2)
    logit: jax.Array | None  # [N], high if the discriminator predicts different returns


class UpdateResult(NamedTuple):
    """What an update reports."""

    # [B], from which the replay computes priorities. A uniform replay does not read it: SLAC
    # gives zeros while only its model learns, and SimPLe gives ones.
    transition_loss: jax.Array
    metrics: dict[str, jax.Array]  # scalars, by the name they are logged under


class Update(NamedTuple):
    """An update of a fleet and the indices of what it learned from."""

    index: np.ndarray  # [R, B] int64
    result: UpdateResult  # leading axis R' (see `Fleet`); on the devices, maybe not computed yet
    positive_is_anchor: np.ndarray  # [R], share of positives that are their own anchor


class Memory(NamedTuple):
    """What an agent remembers while it acts, for N environments of each run of a fleet."""

    state: Any  # a pytree of arrays [R, N, ...]; () of agents without a memory
    is_first: chex.Array  # [R, N] bool, whether an episode starts, so that nothing is remembered


class HistoryState(NamedTuple):
    """A checkpoint's part of the log of actions."""

    actions: np.ndarray  # [R, total_steps, *act]; zero after the last step taken
    checksum: np.ndarray  # [R] uint64, of the frames that followed them
