"""Builds the agent of a configuration. No other module of training tells agent families apart."""

import dataclasses
import functools
from collections import deque
from collections.abc import Callable, Mapping

import jax

from rcrl_jax import types
from rcrl_jax.agents.agent import Agent, Halves
from rcrl_jax.agents.rainbow import agent as rainbow
from rcrl_jax.agents.rainbow.config import MinAtarConfig, RainbowConfig
from rcrl_jax.agents.recurrent import dreamer, planet
from rcrl_jax.agents.recurrent.config import DreamerConfig, PlanetConfig
from rcrl_jax.agents.sac import agent as sac
from rcrl_jax.agents.sac.config import SacConfig
from rcrl_jax.agents.simple import agent as simple
from rcrl_jax.agents.simple.config import SimpleConfig
from rcrl_jax.agents.slac import agent as slac
from rcrl_jax.agents.slac.config import SlacConfig
from rcrl_jax.config.base import AgentConfig
from rcrl_jax.config.choices import TASKS, load
from rcrl_jax.config.presets import Config
from rcrl_jax.envs.protocol import EnvironmentSpec
from rcrl_jax.ops.precision import at_precision
from rcrl_jax.tasks.task import AgentParts, AuxiliaryTask, TaskMaker

_FAMILIES = {
    RainbowConfig: rainbow,
    MinAtarConfig: rainbow,
    SacConfig: sac,
    DreamerConfig: dreamer,
    PlanetConfig: planet,
    SlacConfig: slac,
    SimpleConfig: simple,
}
_NO_TASKS: Mapping[str, TaskMaker] = {}

_made: deque[tuple[Config, EnvironmentSpec, Agent]] = deque(maxlen=8)
"""The latest agents. Specifications of environments have no hash, so this is no dictionary."""


def make_agent(
    config: Config, spec: EnvironmentSpec, extra_tasks: Mapping[str, TaskMaker] = _NO_TASKS
) -> Agent:
    """The agent of a configuration for an environment.

    Equal arguments give the same agent, so that its compiled functions are shared.

    Args:
      config: of any family.
      spec: of the environment; its actions are the largest action set of the fleet.
      extra_tasks: auxiliary tasks by name, in addition to those that `config` names.

    Raises:
      Incompatible: the configuration, its tasks and the environment do not work together; or JAX
        computes in 64 bits, which compiled kernels cannot, and which would change results.
    """
    if jax.config.jax_enable_x64:
        raise types.Incompatible(
            "agents compute in 32 bits: unset JAX_ENABLE_X64, or call "
            'jax.config.update("jax_enable_x64", False) before an agent is made'
        )
    if not extra_tasks:
        for known_config, known_spec, agent in _made:
            if known_config == config and known_spec == spec:
                return agent
    named = {name: load(TASKS[name].make) for name in config.tasks_in_use}
    tasks = {name: _scaled(make) for name, make in (named | dict(extra_tasks)).items()}
    agent = _shielded(_FAMILIES[type(config)].make_agent)(config, spec, tasks)

    def ready(function):
        return at_precision(_shielded(function), config.precision)

    functions = {
        name: ready(getattr(agent, name)) for name in ("act", "update", "embed", "compare")
    }
    if agent.halves is not None:
        gradients, step, *others = agent.halves
        functions["halves"] = Halves(ready(gradients), ready(step), *others)
    agent = dataclasses.replace(agent, init=_shielded(agent.init), **functions)
    if not extra_tasks:
        _made.append((config, spec, agent))
    return agent


def _scaled(make: TaskMaker) -> TaskMaker:
    """Multiplies the task's weight by the configuration's `auxiliary_weight`."""

    def scaled(parts: AgentParts, config: AgentConfig) -> AuxiliaryTask:
        made, factor = make(parts, config), config.auxiliary_weight
        return dataclasses.replace(made, weight=lambda constants: factor * made.weight(constants))

    return scaled


def _shielded(function: Callable) -> Callable:
    """Runs `function` under JAX's default rules for types and transfers, whatever the program sets.

    optax mixes types, and every update reads the host's memory.
    """

    @functools.wraps(function)
    def shielded(*arguments, **settings):
        with jax.numpy_dtype_promotion("standard"), jax.transfer_guard("allow"):
            return function(*arguments, **settings)

    return shielded
