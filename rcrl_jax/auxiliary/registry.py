"""The auxiliary tasks that a configuration selects by name."""

import dataclasses
import functools
from collections.abc import Callable, Mapping

from rcrl_jax.auxiliary import curl, reconstruction, task
from rcrl_jax.config.groups import tasks_in_use
from rcrl_jax.config.presets import Config
from rcrl_jax.networks import sac
from rcrl_jax.return_contrast.task import make_return_contrast


def makers(config: Config, extra: Mapping[str, task.TaskMaker]) -> dict[str, task.TaskMaker]:
    """What makes an agent's tasks, by name: those that its configuration uses, then `extra`.

    The weight of each is multiplied by the configuration's `auxiliary_weight`.
    """
    chosen = {name: functools.partial(MAKERS[name], config) for name in _named(config)}
    return {name: _scaled(make, config) for name, make in (chosen | dict(extra)).items()}


def _named(config: Config) -> tuple[str, ...]:
    return tasks_in_use(config) if hasattr(config, "auxiliary") else ()


def _scaled(make: task.TaskMaker, config: Config) -> task.TaskMaker:
    def scaled(parts: task.AgentParts) -> task.AuxiliaryTask:
        made, factor = make(parts), config.auxiliary_weight
        return dataclasses.replace(made, weight=lambda constants: factor * made.weight(constants))

    return scaled


def _make_curl(config: Config, parts: task.AgentParts) -> task.AuxiliaryTask:
    if hasattr(config, "curl"):
        return curl.make_momentum_curl(parts, config.curl)
    return curl.make_target_curl(parts)


def _make_reconstruction(config: Config, parts: task.AgentParts) -> task.AuxiliaryTask:
    return reconstruction.make_reconstruction(
        sac.Decoder(config.filters, config.crop_size, 3 * config.frame_stack),
        parts.psi_size,
        config.latent_penalty,
        config.decoder_weight_decay,
    )


MAKERS: dict[str, Callable[[Config, task.AgentParts], task.AuxiliaryTask]] = {
    "return_contrast": lambda config, parts: make_return_contrast(parts, config.return_contrast),
    "curl": _make_curl,
    "reconstruction": _make_reconstruction,
}
