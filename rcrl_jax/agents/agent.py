"""The contract between agents and training: pure functions of one run, and training settings.

Training uses every agent family through this container alone. `make_agent.py` makes it from a
configuration; `docs/extending.md` shows how to add a family.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax

from rcrl_jax import types
from rcrl_jax.envs.protocol import EnvironmentProtocol
from rcrl_jax.observations import ObservationFormat
from rcrl_jax.replay.settings import ReplaySettings
from rcrl_jax.tasks import task

TRAINING, EVALUATION = "training", "evaluation"
"""Names of policies, of which every agent has these two."""


class Schedule(NamedTuple):
    """When an agent learns; `simple.settings.Rounds` is another schedule.

    If several updates are due at a step, all but the last come before the action of that step. With
    `before_action` the last one does, too: agents that learn only from their newest actions need
    this.
    """

    before_action = False

    learn_start: int  # agent steps before the first update
    update_period: int  # agent steps between updates
    updates: int = 1  # updates of a step at which updates are due
    first_updates: int = 1  # updates of the first such step

    @property
    def first_step(self) -> int:
        """The agent step of the first updates."""
        return -(-self.learn_start // self.update_period) * self.update_period

    def due(self, step: int) -> int:
        """How many updates are due at agent step `step`."""
        if step < self.learn_start or step % self.update_period:
            return 0
        return self.first_updates if step == self.first_step else self.updates

    def kind(self, step: int, made: int) -> int:
        """The kind, as a number, of the next update at `step`, when `made` have been made."""
        del step, made
        return 0

    def counts(self, start: int, end: int) -> tuple[int, ...]:
        """Updates of each kind from agent step `start` to `end`, without those at `end`."""
        first, last = (-(-s // self.update_period) for s in (max(start, self.learn_start), end))
        extra = self.first_updates - self.updates if start <= self.first_step < end else 0
        return (max(last - first, 0) * self.updates + extra,)


class EvaluationSettings(NamedTuple):
    """How an agent is evaluated during training."""

    period: int  # environment steps between evaluations
    episodes: int  # of one evaluation
    protocol: Mapping[str, Any]  # how scores are taken, for the manifest
    others: tuple[str, ...] = ()  # names of further policies whose mean returns are recorded, too


class Resources(NamedTuple):
    """How an agent's functions use a machine.

    Attributes:
      batches_over_runs: whether an accelerator updates all runs at once. False if batching would
        turn convolutions into slow grouped ones (Rainbow computes most as products). Also
        False if the update of one run fills a device: each run would need gigabytes of activations.
      logs_frames: whether a run keeps its frames on disk, so that a resumed run need not render
        them again.
      activation_bytes: approximate size of the activations that one update of one run holds for
        its gradients.
    """

    batches_over_runs: bool
    logs_frames: bool
    activation_bytes: int


class Halves(NamedTuple):
    """Two functions that together make an update of one run.

    Attributes:
      gradients: `(run, state, batch) -> computed`; reads no state of an optimizer.
      step: `(state, computed) -> (state, UpdateResult)`; computes floats only in an optimizer, for
        the states of tasks, and for moving averages of targets.
      averages_targets: whether the targets are moving averages, and not copies.
    """

    gradients: Callable[..., Any]
    step: Callable[..., tuple[types.LearnerState, types.UpdateResult]]
    averages_targets: bool


@dataclasses.dataclass(frozen=True, eq=False)
class Agent:
    """An agent of one run. Its functions are pure and never see the fleet axis.

    Attributes:
      init: `(run, key, initial) -> LearnerState`; see `begin_with` for `initial`, None if left out.
      act: `(run, params, observation [N, *obs], memory, key, policy_name, step) -> (action
        [N, *act], memory)`. `policy_name` is static: `TRAINING`, `EVALUATION`, or one of
        `EvaluationSettings.others`; `step []` is the number of agent steps so far.
      update: `(run, state, batch, kind) -> (state, UpdateResult)`: one gradient step on all losses,
        auxiliary ones included; an update of SimPLe's policy takes several. `kind` is static: the
        `Schedule.kind` for which the batch was drawn.
      embed: `(params, pairs) -> phi [N, d]`: the representation of state-action pairs that the
        head reads.
      compare: `(trainable_params, first, second) -> Comparison`: similarity of pairs, row by row.
      run_constants: `game -> constants`, the field of `RunSpec` that depends on the run's game.
      action: shape and type of one action.
      observations: how frames are stored, stacked and read.
      protocol: how the agent sees its training environment.
      replay: sizes and rules of the replay.
      schedule: when the agent learns.
      evaluation: how the agent is evaluated.
      resources: how the agent's functions use a machine.
      init_memory: `N -> memory`, the memory at the start of an episode: a pytree of arrays
        `[N, ...]` that `act` carries from step to step in N environments; empty for agents that act
        on the observation alone.
      halves: two functions that together make an update, or None.
    """

    init: Callable[..., types.LearnerState]
    act: Callable[
        [types.RunSpec, types.Params, chex.Array, Any, chex.PRNGKey, str, jax.Array],
        tuple[jax.Array, Any],
    ]
    update: Callable[
        [types.RunSpec, types.LearnerState, types.Batch, int],
        tuple[types.LearnerState, types.UpdateResult],
    ]
    embed: Callable[[types.Params, types.Pairs], jax.Array]
    compare: Callable[[types.TrainableParams, types.Pairs, types.Pairs], types.Comparison]
    run_constants: Callable[[str], Any]
    action: jax.ShapeDtypeStruct
    observations: ObservationFormat
    protocol: EnvironmentProtocol
    replay: ReplaySettings
    schedule: Schedule
    evaluation: EvaluationSettings
    resources: Resources
    halves: Halves | None = None
    init_memory: Callable[[int], Any] = lambda number: ()


def begin_with(params: types.Params, initial: Mapping[str, jax.Array] | None) -> types.Params:
    """Replaces some or all agent parameters by `initial`; targets are made from the result.

    Args:
      params: as they are drawn.
      initial: by their paths, such as `params/encoder/conv1_kernel`; or None.
    """
    if initial is None:
        return params
    return jax.tree_util.tree_map_with_path(
        lambda path, x: initial.get(jax.tree_util.keystr(path, simple=True, separator="/"), x),
        params,
    )


def is_of_encoder(name: str) -> bool:
    """Whether the path of parameters names an encoder's module: 'encoder' or 'convolutions'."""
    return not {"encoder", "convolutions"}.isdisjoint(name.split("/"))


def first_state(
    tasks: Mapping[str, task.AuxiliaryTask],
    params: types.TrainableParams,
    target_params: types.Params,
    opt_state: optax.OptState,
    key: chex.PRNGKey,
) -> types.LearnerState:
    """The learner before its first update; all updates draw from `key`."""
    return types.LearnerState(
        params,
        target_params,
        opt_state,
        jax.random.key_data(key),
        updates=jnp.zeros((), jnp.int32),
        task_state=task.init_states(tasks, params.auxiliary, params.agent),
    )


def next_state(
    tasks: Mapping[str, task.AuxiliaryTask],
    state: types.LearnerState,
    params: types.TrainableParams,
    opt_state: optax.OptState,
    key: chex.PRNGKey,
) -> types.LearnerState:
    """The learner after an update of `state`, with unchanged target parameters.

    Args:
      tasks: of the agent.
      state: before the update.
      params: after the update.
      opt_state: after the update.
      key: of further updates.
    """
    return types.LearnerState(
        params,
        state.target_params,
        opt_state,
        jax.random.key_data(key),
        updates=state.updates + 1,
        task_state=task.next_states(tasks, state.task_state, params),
    )


def bind(
    parts: Any,
    tasks: Mapping[str, task.AuxiliaryTask],
    *,
    init: Callable,
    act: Callable,
    update: Callable,
    embed: Callable,
) -> dict[str, Callable]:
    """The functions of `Agent`, except `init_memory` and `halves`, from those of a module.

    Args:
      parts: first argument of each function.
      tasks: of the agent.
      init: takes `parts`, then the arguments that `Agent` describes.
      act: likewise.
      update: likewise.
      embed: likewise.
    """
    phi = functools.partial(embed, parts)
    return {
        "init": functools.partial(init, parts),
        "act": functools.partial(act, parts),
        "update": functools.partial(update, parts),
        "embed": phi,
        "compare": make_compare(phi, tasks),
        "run_constants": functools.partial(task.run_constants, tasks),
    }


def make_compare(
    embed: Callable[[types.Params, types.Pairs], jax.Array],
    tasks: Mapping[str, task.AuxiliaryTask],
) -> Callable[[types.TrainableParams, types.Pairs, types.Pairs], types.Comparison]:
    """Makes `Agent.compare` from an agent's embedding and its first task with a discriminator."""
    with_logit = next((name for name, t in tasks.items() if t.discriminate is not None), None)

    def compare(params: types.TrainableParams, first: types.Pairs, second: types.Pairs):
        phi, other = embed(params.agent, first), embed(params.agent, second)
        logit = None
        if with_logit is not None:
            logit = tasks[with_logit].discriminate(params.auxiliary[with_logit], phi, other)
        return types.Comparison(task.cosine(phi, other), logit)

    return compare
