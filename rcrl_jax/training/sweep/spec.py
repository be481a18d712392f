"""What a sweep is: its runs, the fleets that train them, their commands and their results."""

import dataclasses
import hashlib
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rcrl_jax.config import fields
from rcrl_jax.config.presets import Config
from rcrl_jax.training.run_paths import RunPaths

_MOST_NAMES = 3  # named one by one in the name of a fleet


class SweepError(ValueError):
    """A sweep that cannot be carried out, or a directory that holds other runs than the sweep."""


class Experiment(NamedTuple):
    """What a sweep must know about a training program.

    Attributes:
        module: what `python -m` runs.
        game_flag: the flag that names the game or task; with an s, the one that names several.
        games: the valid values of that flag.
        presets_of: game -> its presets by name.
        action_repeat: game -> how much of `--steps` one agent step counts.
    """

    module: str
    game_flag: str
    games: tuple[str, ...]
    presets_of: Callable[[str], Mapping[str, Config]]
    action_repeat: Callable[[str], int]


@dataclasses.dataclass(frozen=True)
class Arm:
    """One arm of a comparison: a preset, or a preset with changed fields and its own name.

    Attributes:
        name: the preset's name if nothing is changed.
        preset: the preset.
        overrides: (field, value) of the changed fields, those of groups with dotted names.
    """

    name: str
    preset: str
    overrides: tuple[tuple[str, Any], ...] = ()


class Unit(NamedTuple):
    """One run of a sweep."""

    arm: Arm
    game: str
    seed: int

    @property
    def name(self) -> str:
        """A readable name."""
        return f"{self.arm.name}-{self.game}-{self.seed}"


class Fleet(NamedTuple):
    """The runs of one arm that one process trains: every game with every seed."""

    arm: Arm
    games: tuple[str, ...]
    seeds: tuple[int, ...]

    @property
    def units(self) -> tuple[Unit, ...]:
        """The runs."""
        return tuple(Unit(self.arm, game, seed) for game in self.games for seed in self.seeds)

    @property
    def name(self) -> str:
        """A readable name, also that of the work directory: fleets of other runs have others."""
        if len(self.games) == len(self.seeds) == 1:
            return self.units[0].name
        runs = repr((self.games, self.seeds)).encode()
        return "-".join(
            (
                self.arm.name,
                _short("games", self.games),
                _short("seeds", self.seeds),
                hashlib.sha256(runs).hexdigest()[:8],
            )
        )


def _short(what: str, names: Sequence[object]) -> str:
    return "+".join(map(str, names)) if len(names) <= _MOST_NAMES else f"{len(names)}{what}"


@dataclasses.dataclass(frozen=True)
class Spec:
    """The complete description of a sweep.

    Attributes:
        experiment: the program that trains.
        steps: its `--steps`.
        eval_episodes: episodes of the final evaluation.
        results: directory of the finished runs.
        units: the runs, in the order in which they start.
    """

    experiment: Experiment
    steps: int
    eval_episodes: int
    results: pathlib.Path
    units: tuple[Unit, ...]

    def agent_steps(self, game: str) -> int:
        """Agent steps of a run on `game`."""
        return self.steps // self.experiment.action_repeat(game)

    def result_paths(self, unit: Unit) -> RunPaths:
        """Where a unit's files lie once it is finished."""
        directory = self.results / unit.arm.name if unit.arm.overrides else self.results
        return RunPaths(directory, unit.arm.preset, unit.game, unit.seed)

    def make_config(self, unit: Unit) -> Config:
        """The configuration of a unit.

        Raises:
            ValueError: a changed field is out of range; the message names it.
        """
        preset = self.experiment.presets_of(unit.game)[unit.arm.preset]
        return fields.replace(preset, dict(unit.arm.overrides))

    def make_command(self, fleet: Fleet, workdir: pathlib.Path) -> list[str]:
        """The command that trains a fleet in `workdir`, or resumes it."""
        flag = self.experiment.game_flag
        if len(fleet.units) == 1:
            runs = [f"--{flag}={fleet.games[0]}", f"--seed={fleet.seeds[0]}"]
        else:
            seeds = ",".join(map(str, fleet.seeds))
            runs = [f"--{flag}s={','.join(fleet.games)}", f"--seeds={seeds}"]
        return [
            sys.executable, "-m", self.experiment.module,
            f"--preset={fleet.arm.preset}",
            *runs,
            f"--steps={self.steps}",
            f"--eval_episodes={self.eval_episodes}",
            f"--workdir={workdir}",
            # A tuple is written as a Python literal, as its flag expects.
            *(f"--config.{name}={value}" for name, value in fleet.arm.overrides),
        ]  # fmt: skip
