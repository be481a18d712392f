"""What a sweep is: its runs, the fleets that train them, their commands and their results."""

import dataclasses
import hashlib
import pathlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from experiments.returns import arms
from rcrl_jax.config import fields, presets
from rcrl_jax.config.presets import Config
from rcrl_jax.envs import atari, dmc
from rcrl_jax.runs.paths import RunPaths


class SweepError(ValueError):
    """A sweep that cannot be carried out, or a directory that holds other runs than the sweep."""


class Experiment(NamedTuple):
    """What a sweep must know about a training program.

    Attributes:
        module: what `python -m` runs.
        games_flag: the flag that names games or tasks.
        games: its valid values.
        presets_of: game -> its presets by name.
        action_repeat: game -> how much of `--steps` one agent step counts.
        steps, eval_episodes: the program's defaults.
    """

    module: str
    games_flag: str
    games: tuple[str, ...]
    presets_of: Callable[[str], Mapping[str, Config]]
    action_repeat: Callable[[str], int]
    steps: int
    eval_episodes: int


_ATARI = Experiment(
    "experiments.atari100k",
    games_flag="games",
    games=atari.ATARI_GAMES,
    presets_of=lambda game: presets.ATARI_PRESETS,
    action_repeat=lambda game: 1,
    steps=100_000,
    eval_episodes=100,
)
EXPERIMENTS = {
    "atari100k": _ATARI,
    "dmc": Experiment(
        "experiments.dmc",
        games_flag="tasks",
        games=tuple(dmc.DMC_TASKS),
        presets_of=presets.dmc_presets_of,
        action_repeat=lambda task: dmc.DMC_TASKS[task].action_repeat,
        steps=500_000,
        eval_episodes=10,
    ),
    "returns": _ATARI._replace(
        module="experiments.returns.train", presets_of=lambda game: arms.PRESETS
    ),
}
"""The programs that a sweep may run."""


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
        if len(self.units) == 1:
            return self.units[0].name
        digest = hashlib.sha256(repr((self.games, self.seeds)).encode()).hexdigest()[:8]
        return f"{self.arm.name}-{len(self.games)}games-{len(self.seeds)}seeds-{digest}"


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
        return [
            sys.executable, "-m", self.experiment.module,
            f"--preset={fleet.arm.preset}",
            f"--{self.experiment.games_flag}={','.join(fleet.games)}",
            f"--seeds={','.join(map(str, fleet.seeds))}",
            f"--steps={self.steps}",
            f"--eval_episodes={self.eval_episodes}",
            f"--workdir={workdir}",
            # A tuple is written as a Python literal, as its flag expects.
            *(f"--config.{name}={value}" for name, value in fleet.arm.overrides),
        ]  # fmt: skip
