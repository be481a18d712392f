"""The auxiliary tasks that a configuration selects by name."""

import dataclasses
from collections.abc import Callable, Mapping

from rcrl_jax.auxiliary import curl, reconstruction, task
from rcrl_jax.config.groups import tasks_in_use
from rcrl_jax.config.presets import Config
from rcrl_jax.networks import sac
from rcrl_jax.return_contrast.task import make_return_contrast


def make_tasks(
    config: Config, parts: task.AgentParts, extra: Mapping[str, task.TaskMaker]
) -> dict[str, task.AuxiliaryTask]:
    """The tasks of an agent by name: those that its configuration uses, then `extra`.

    The weight of each is multiplied by the configuration's `auxiliary_weight`.
    """
    tasks = {name: MAKERS[name](config, parts) for name in tasks_in_use(config)}
    tasks |= {name: make(parts) for name, make in extra.items()}
    return {name: _scaled(made, config.auxiliary_weight) for name, made in tasks.items()}


def _scaled(made: task.AuxiliaryTask, factor: float) -> task.AuxiliaryTask:
    return dataclasses.replace(made, weight=lambda constants: factor * made.weight(constants))


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
