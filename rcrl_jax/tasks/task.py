"""The contract of auxiliary tasks: their functions, what their losses read, how losses are added.

All agents that take tasks use the same contract. `docs/newtask.md` shows a complete task.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax

from rcrl_jax import types
from rcrl_jax.config.base import AgentConfig
from rcrl_jax.replay.settings import ContrastRule


class AgentParts(NamedTuple):
    """The parts of an agent that a task may use; `obs` is the shape that the network reads."""

    encode: Callable[[types.Params, jax.Array], jax.Array]
    """`(agent_params, observation [N, *obs]) -> psi [N, psi_size]`. With Dreamer and PlaNet: the
    world model's parameters, and a `types.Context` in place of the observation."""
    encode_target: Callable[[types.Params, jax.Array], jax.Array]
    """The same with `target_params`."""
    join: Callable[[types.Params, jax.Array, jax.Array], jax.Array]
    """`(agent_params, psi [N, psi_size], action [N, *act]) -> phi [N, phi_size]`. With Rainbow's
    `head='state'`, phi is psi, without the action."""
    augment: Callable[[chex.PRNGKey, jax.Array], jax.Array]
    """`(key, sampled observation [N, ...]) -> observation [N, *obs]`, shifted or cropped at random;
    for tasks that need whole frames."""
    psi_size: int
    phi_size: int
    contrast_rule: ContrastRule
    """How contrastive samples are drawn, as the configuration describes it."""
    batch_size: int
    """B, transitions of an update."""


class UpdateView(NamedTuple):
    """Parameters and data of one update, for the losses of tasks."""

    params: types.Params
    """The agent's online parameters; gradients reach them."""
    target_params: types.Params
    """The agent's target parameters; for Dreamer and PlaNet the online parameters."""
    psi: jax.Array
    """[B, psi_size], `encode(params, batch.transitions.observation)`; with a world model, a sample
    of the state at the last frame of each window. Gradients reach params."""
    batch: types.Batch
    """Observations as the network reads them in this update: cropped, shifted or unchanged."""
    sampled: types.Batch
    """The same batch as the replay returned it, before crops and shifts."""
    psi_of_images: tuple[jax.Array, ...] = ()
    """psi `[N, psi_size]` of each of the task's `images`; gradients reach params."""


@dataclasses.dataclass(frozen=True)
class AuxiliaryTask:
    """Pure functions, written for one run.

    Attributes:
      init: `key -> task_params`, the task's own parameters.
      loss: `(task_params, view, state, key) -> (scalar, metrics)`. Its gradient reaches
        `task_params` and `view.params`, but not `state` or target parameters.
      weight: `constants -> scalar`, the weight of the loss; `auxiliary_weight` of the configuration
        multiplies it.
      contrast_rule: how the contrastive samples in `view.batch.contrast` are drawn; None for a task
        that reads none. All tasks of an agent share the samples, so their rules must be equal.
      whole_frames: whether `view.sampled.transitions.observation` must hold whole frames, for
        `AgentParts.augment`. Else it holds what the agent's own losses read.
      encoded: how many more observations per transition the loss encodes, besides those of the RL
        loss and contrastive samples; only used to predict memory.
      images: `(batch, sampled, key) -> tuple of observations [N, *obs]`. The agent encodes the
        images of all tasks at once and passes their psi as `view.psi_of_images`. `batch` and
        `sampled` are those of the view; `key` is that of `loss`.
      constants: `game -> constants`, a pytree of numbers that depend on the run's game.
      init_state: `(task_params, agent_params) -> state`, kept from update to update and not
        trained by gradients, for example a momentum network.
      next_state: `(state, task_params, agent_params) -> state`, called after every optimiser
        step with the new parameters.
      discriminate: `(task_params, first [N, phi_size], second [N, phi_size]) -> logit [N]`, high
        if the returns are predicted to differ; None for a task without a discriminator.
      importance_weighted: whether the loss is multiplied by the batch's mean importance weight.
      in_priorities: whether the weighted loss is added to the loss from which priorities are
        computed.
    """

    init: Callable[[chex.PRNGKey], types.Params]
    loss: Callable[
        [types.Params, UpdateView, types.Params, chex.PRNGKey],
        tuple[jax.Array, dict[str, jax.Array]],
    ]
    weight: Callable[[Any], jax.Array | float] = lambda constants: 1.0
    contrast_rule: ContrastRule | None = None
    whole_frames: bool = False
    encoded: int = 0
    images: Callable[[types.Batch, types.Batch, chex.PRNGKey], tuple[jax.Array, ...]] = (
        lambda batch, sampled, key: ()
    )
    constants: Callable[[str], Any] = lambda game: ()
    init_state: Callable[[types.Params, types.Params], types.Params] = (
        lambda task_params, agent_params: None
    )
    next_state: Callable[[types.Params, types.Params, types.Params], types.Params] = (
        lambda state, task_params, agent_params: state
    )
    discriminate: Callable[[types.Params, jax.Array, jax.Array], jax.Array] | None = None
    importance_weighted: bool = False
    in_priorities: bool = False


TaskMaker = Callable[[AgentParts, AgentConfig], AuxiliaryTask]
"""Makes a task for an agent and its configuration."""


class Needs(NamedTuple):
    """What the tasks of an agent need of its replay; fields as in `AuxiliaryTask`."""

    contrast_rule: ContrastRule  # `number` is 0 if no task reads them
    whole_frames: bool
    encoded: int


def needs_of(tasks: Mapping[str, AuxiliaryTask], parts: AgentParts) -> Needs:
    """What the tasks need together.

    Raises:
      Incompatible: two tasks ask for different contrastive samples.
    """
    rules = {name: task.contrast_rule for name, task in tasks.items()}
    asked = {name: rule for name, rule in rules.items() if rule is not None}
    different = set(asked.values())
    if len(different) > 1:
        raise types.Incompatible(
            f"auxiliary: {' and '.join(asked)} ask for different contrastive samples"
        )
    # Without a task, the rule still says which returns count as equal.
    rule = different.pop() if different else parts.contrast_rule._replace(number=0)
    if asked and rule.anchors == "rl_batch":  # the anchors are the batch itself
        rule = rule._replace(number=parts.batch_size)
    return Needs(
        rule,
        whole_frames=any(task.whole_frames for task in tasks.values()),
        encoded=sum(task.encoded for task in tasks.values()),
    )


class AuxiliaryLoss(NamedTuple):
    """Sum of the tasks' losses."""

    total: jax.Array | float  # [], weighted
    in_priorities: jax.Array | float  # [], the part that enters priorities; without gradient
    metrics: dict[str, jax.Array]  # scalars


def images_of(
    tasks: Mapping[str, AuxiliaryTask],
    batch: types.Batch,
    sampled: types.Batch,
    keys: Sequence[chex.PRNGKey],
) -> tuple[tuple[jax.Array, ...], ...]:
    """The observations that each task wants encoded; `keys` as in `total_loss`."""
    return tuple(
        task.images(batch, sampled, key) for task, key in zip(tasks.values(), keys, strict=True)
    )


def total_loss(
    tasks: Mapping[str, AuxiliaryTask],
    params: Mapping[str, types.Params],
    view: UpdateView,
    psi_of_images: Sequence[tuple[jax.Array, ...]],
    states: Mapping[str, types.Params],
    constants: Mapping[str, Any],
    keys: Sequence[chex.PRNGKey],
) -> AuxiliaryLoss:
    """Adds up the losses of an agent's tasks.

    Args:
      tasks: by name.
      params: the tasks' own parameters, by name.
      view: parameters and data of the update.
      psi_of_images: psi of the observations of `images_of`, task by task.
      states: by name.
      constants: of the run, by name.
      keys: one per task, in the order of `tasks`.
    """
    total = in_priorities = 0.0
    metrics = {}
    for (name, task), psi, key in zip(tasks.items(), psi_of_images, keys, strict=True):
        own_view = view._replace(psi_of_images=psi)
        value, task_metrics = task.loss(params[name], own_view, states[name], key)
        chex.assert_rank(value, 0)
        weighted = task.weight(constants[name]) * value
        if task.in_priorities:
            in_priorities += jax.lax.stop_gradient(weighted)
        if task.importance_weighted:
            weighted *= jnp.mean(view.batch.transitions.weight)
        total += weighted
        metrics |= {f"loss_{name}": value} | task_metrics
    return AuxiliaryLoss(total, in_priorities, metrics)


def init_params(tasks: Mapping[str, AuxiliaryTask], key: chex.PRNGKey) -> dict[str, types.Params]:
    """The initial parameters of an agent's tasks, by name."""
    return {
        name: task.init(jax.random.fold_in(key, i)) for i, (name, task) in enumerate(tasks.items())
    }


def init_states(
    tasks: Mapping[str, AuxiliaryTask],
    params: Mapping[str, types.Params],
    agent_params: types.Params,
) -> dict[str, types.Params]:
    """The states of an agent's tasks at the start, by name."""
    return {name: task.init_state(params[name], agent_params) for name, task in tasks.items()}


def next_states(
    tasks: Mapping[str, AuxiliaryTask],
    states: Mapping[str, types.Params],
    params: types.TrainableParams,
) -> dict[str, types.Params]:
    """The states of an agent's tasks after an optimiser step, by name."""
    return {
        name: task.next_state(states[name], params.auxiliary[name], params.agent)
        for name, task in tasks.items()
    }


def run_constants(tasks: Mapping[str, AuxiliaryTask], game: str) -> dict[str, Any]:
    """The tasks' constants for a run on `game`, by name."""
    return {name: task.constants(game) for name, task in tasks.items()}


def cosine(first: jax.Array, second: jax.Array) -> jax.Array:
    """Cosine of the angle between vectors `[N, d]`: `[N]`; 0 for a zero vector."""
    return optax.losses.cosine_similarity(first, second, epsilon=1e-24)
