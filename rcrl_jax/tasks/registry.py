"""The auxiliary tasks that a configuration selects by name."""

import dataclasses
from collections.abc import Mapping

from rcrl_jax.config.base import AgentConfig
from rcrl_jax.config.choices import TASKS, load
from rcrl_jax.tasks import task


def makers(config: AgentConfig, extra: Mapping[str, task.TaskMaker]) -> dict[str, task.TaskMaker]:
    """The makers of an agent's tasks, by name: those that its configuration uses, then `extra`.

    The weight of each task is multiplied by the configuration's `auxiliary_weight`.
    """
    chosen = {name: load(TASKS[name].make) for name in config.tasks_in_use}
    return {name: _scaled(make) for name, make in (chosen | dict(extra)).items()}


def _scaled(make: task.TaskMaker) -> task.TaskMaker:
    def scaled(parts: task.AgentParts, config: AgentConfig) -> task.AuxiliaryTask:
        made, factor = make(parts, config), config.auxiliary_weight
        return dataclasses.replace(made, weight=lambda constants: factor * made.weight(constants))

    return scaled
