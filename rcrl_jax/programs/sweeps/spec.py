"""What a sweep is: its runs, their fleets, commands and results; read from a file or from flags."""

import dataclasses
import hashlib
import itertools
import os
import pathlib
import sys
import tomllib
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from rcrl_jax import files, words
from rcrl_jax.config import base, fields, presets
from rcrl_jax.config.presets import Config
from rcrl_jax.envs import protocol
from rcrl_jax.programs import command_line
from rcrl_jax.runs.paths import RunPaths
from rcrl_jax.training.environments import ENVIRONMENTS, OWN, Environment, own_games


class SweepError(ValueError):
    """A sweep that cannot be carried out, or a directory that holds other runs than the sweep."""


class Experiment(NamedTuple):
    """What a sweep must know about a training program.

    Attributes:
        module: what `python -m` runs, in any folder.
        games_flag: the flag that names games or tasks.
        environment: what it trains on.
    """

    module: str
    games_flag: str
    environment: Environment


EXPERIMENTS = {
    name: Experiment(
        f"rcrl_jax.programs.{name}", "tasks" if name == "dmc" else "games", environment
    )
    for name, environment in ENVIRONMENTS.items()
}
"""The programs that a sweep may run, on the games of a benchmark."""

TRAIN = Experiment("rcrl_jax.programs.train", "environment", OWN)
"""The program that trains on a game of one's own."""


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

    def configure(self, environment: Environment) -> Config:
        """Its configuration.

        Raises:
            ValueError: a changed field is out of range; the message names it.
        """
        return environment.configure(self.arm.preset, self.game, dict(self.arm.overrides))


class FleetPlan(NamedTuple):
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
        """A readable name, also of the work directory: fleets of other runs have other names."""
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
        runs_per_fleet: the most runs of a fleet, if the spec says it.
        games_per_fleet: the most games of a fleet, if the spec says it.
    """

    experiment: Experiment
    steps: int
    eval_episodes: int
    results: pathlib.Path
    units: tuple[Unit, ...]
    runs_per_fleet: int | None = None
    games_per_fleet: int | None = None

    def agent_steps(self, unit: Unit) -> int:
        """Agent steps of a unit."""
        return self.steps // self.experiment.environment.action_repeat(
            unit.game, self.make_config(unit)
        )

    def result_paths(self, unit: Unit) -> RunPaths:
        """Where a unit's files lie once it is finished."""
        directory = self.results / unit.arm.name if unit.arm.overrides else self.results
        return RunPaths(directory, unit.arm.preset, unit.game, unit.seed)

    def make_config(self, unit: Unit) -> Config:
        """See `Unit.configure`."""
        return unit.configure(self.experiment.environment)

    def make_command(self, fleet: FleetPlan, workdir: pathlib.Path) -> list[str]:
        """The command that trains a fleet in `workdir`, or resumes it."""
        games = fleet.games
        if self.experiment is TRAIN:
            games = tuple(map(own_games().environment_of, games))
        return [
            sys.executable, "-m", self.experiment.module,
            f"--preset={fleet.arm.preset}",
            f"--{self.experiment.games_flag}={','.join(games)}",
            f"--{'seeds' if len(fleet.seeds) > 1 else 'seed'}={','.join(map(str, fleet.seeds))}",
            f"--steps={self.steps}",
            f"--eval_episodes={self.eval_episodes}",
            f"--workdir={workdir}",
            *([f"--arm={fleet.arm.name}"] if presets.is_arm_name(fleet.arm.name) else []),
            # A tuple is written as a Python literal, which its flag accepts.
            *(f"--config.{name}={value}" for name, value in fleet.arm.overrides),
        ]  # fmt: skip


def read_spec(path: str | os.PathLike) -> Spec:
    """Reads a spec and checks all of it; `experiments.sweep` describes the format.

    Raises:
        SweepError: the spec is wrong; the message is one line and names the place.
        Damaged: it is not a regular file.
        OSError: there is no such file.
    """
    content = files.read_bytes(path)
    try:
        return make_spec(tomllib.loads(content.decode()))
    except RecursionError:
        raise SweepError(f"{path}: it is nested too deeply") from None
    except (ValueError, OverflowError) as error:
        raise SweepError(f"{path}: {words.one_line(error)}") from None


def make_spec(table: Mapping[str, Any]) -> Spec:
    """Checks the content of a spec file, or of flags that say the same.

    Raises:
        ValueError: the spec is wrong, or every fleet would refuse a run of it; the message is one
            line that begins with the place.
    """
    what = "environment" if "environment" in table else "experiment"
    required = (what, "results", "blocks")
    limits = ("runs_per_fleet", "games_per_fleet")
    optional = ("steps", "eval_episodes", "arms", "config", *limits)
    if "experiment" in table:  # first: an unknown program explains missing keys
        _one_of("experiment", table["experiment"], EXPERIMENTS)
    for key in ("presets", "games", "seeds"):
        if key in table:
            raise ValueError(f"{key}: stands in [[blocks]]")
    _check_keys("", table, required, optional=optional)
    if what == "environment":
        experiment, games = TRAIN, _read_environments(table[what])
    else:
        experiment = EXPERIMENTS[_one_of(what, table[what], EXPERIMENTS)]
        games = {game: game for game in experiment.environment.games}
    most = {"steps": fields.LARGEST_INT, "eval_episodes": command_line.MOST_EPISODES}
    numbers = {
        name: fields.value_of(name, table[name], int, fields.between(1, most[name]))
        for name in most
        if name in table
    }
    if not isinstance(table["results"], str) or not table["results"]:
        raise ValueError(f"results: expected a directory, got {table['results']!r}")
    by_name = experiment.environment.presets
    arms, shared = table.get("arms", {}), table.get("config", {})
    _check_keys("arms: ", arms, (), optional=arms)
    made = {
        name: _read_arm(f"arms.{name}: ", name, own, shared, by_name) for name, own in arms.items()
    }
    known: _Known = {
        "presets": (by_name, lambda name: _make_arms("", name, by_name[name], name, shared)),
        "arms": (made, made.__getitem__),
        "games": (games, lambda name: [games[name]]),
    }
    if not isinstance(table["blocks"], list) or not table["blocks"]:
        raise ValueError("blocks: expected [[blocks]] tables")
    units = tuple(
        unit
        for number, block in enumerate(table["blocks"], start=1)
        for unit in _read_block(
            f"block {number}: ",
            {"games": [*games], **block}
            if what == "environment" and type(block) is dict
            else block,
            known,
        )
    )
    numbers |= {
        name: fields.value_of(name, table[name], int, fields.at_least(1))
        for name in limits
        if name in table
    }
    if "steps" not in numbers:
        numbers["steps"] = _usual_steps(experiment.environment, units)
    numbers.setdefault("eval_episodes", experiment.environment.eval_episodes)
    spec = Spec(experiment, results=pathlib.Path(table["results"]), units=units, **numbers)
    _check_units(spec)
    return spec


def _usual_steps(environment: Environment, units: Iterable[Unit]) -> int:
    """What `--steps` of the program is for these units."""
    found = {environment.steps(unit.configure(environment)) for unit in units}
    if len(found) > 1:
        raise ValueError("steps is missing: these arms differ in their usual number")
    return found.pop()


def _read_environments(value: Any) -> dict[str, str]:
    """The games of a spec's `environment`, by the names of the environments."""
    named = [value] if isinstance(value, str) else value
    if not isinstance(named, list) or not named or not all(type(name) is str for name in named):
        raise ValueError(f"environment: expected gymnasium:CartPole-v1 or a list, got {value!r}")
    games = {name: own_games().name_of(name) for name in named}
    try:
        for game in games.values():
            own_games().probe(game)
    except protocol.SimulatorFailed as error:
        raise ValueError(f"environment: {error}") from None
    return games


def _read_arm(
    where: str, name: str, table: Any, shared: Any, by_name: Mapping[str, Config]
) -> list[Arm]:
    if not presets.is_arm_name(name):
        raise ValueError(f"{where}{presets.ARM_NAMES}")
    _check_keys(where, table, ("preset", "config"))
    preset = _one_of(f"{where}preset", table["preset"], by_name)
    if not isinstance(table["config"], dict) or not table["config"]:
        raise ValueError(f"{where}config: expected changed fields, got {table['config']!r}")
    return _make_arms(where, preset, by_name[preset], name, shared, table["config"])


def _make_arms(where: str, preset: str, usual: Config, name: str, *changes: Any) -> list[Arm]:
    """The arms of a preset with changed fields: one, or one for each value of a list of values.

    Args:
        where: begins the message of an error.
        preset: its name.
        usual: its configuration.
        name: of the arm; each field with several values appends its value.
        *changes: tables of fields; later tables override earlier ones.
    """
    types = {field.name: field.type for field in fields.named_fields(usual)}
    options: dict[str, list[tuple[str, Any]]] = {}
    for table in changes:
        if not isinstance(table, dict):
            raise ValueError(f"{where}config: expected changed fields, got {table!r}")
        config = fields.flatten(table)
        _check_keys(f"{where}config: ", config, (), optional=types)
        for key, value in config.items():
            options[key] = _options(f"{where}config.{key}", key, value, types[key])
    arms = []
    for chosen in itertools.product(*options.values()):
        overrides = dict(zip(options, (value for _, value in chosen), strict=True))
        try:
            fields.replace(usual, overrides)
        except ValueError as error:
            raise ValueError(f"{where}config: {error}") from None
        named = "-".join([name, *(label for label, _ in chosen if label)])
        arms.append(Arm(named, preset, tuple(overrides.items())))
    return arms


def _options(where: str, key: str, value: Any, kind: Any) -> list[tuple[str, Any]]:
    """The values of a field, each with its part of the arm's name: '' for a single value.

    A list holds several values; for a field whose values are lists, a list of lists does.
    """
    is_list = (typing.get_origin(kind) or kind) is tuple
    several = isinstance(value, list) and (not is_list or any(isinstance(x, list) for x in value))
    if not several:
        return [("", fields.value_of(where, value, kind))]
    if not value:
        raise ValueError(f"{where}: the list of values is empty")
    found = [fields.value_of(where, one, kind) for one in value]
    texts = ["+".join(map(str, one)) if is_list else str(one) for one in found]
    return [(f"{key}={text}", one) for text, one in zip(texts, found, strict=True)]


_Known = Mapping[str, tuple[Iterable[str], Callable[[str], list[Any]]]]
"""Key of a block -> the names that it may hold, and what each stands for."""


def _read_block(where: str, block: Any, known: _Known) -> Iterable[Unit]:
    _check_keys(where, block, ("games", "seeds"), optional=("presets", "arms"))
    named: dict[str, list[Any]] = {}
    for key, (allowed, meant) in known.items():
        names = block.get(key, [])
        if not isinstance(names, list) or (key in block and not names):
            raise ValueError(f"{where}{key}: expected a list of names, got {names!r}")
        named[key] = [
            one for name in names for one in meant(_one_of(f"{where}{key}", name, allowed))
        ]
    arms = named["presets"] + named["arms"]
    if not arms:
        raise ValueError(f"{where}presets or arms are missing")
    seeds = command_line.parse_seeds(block["seeds"], f"{where}seeds")
    # The arms of a pair are adjacent, so that arms have about equally many runs at any time.
    return [Unit(arm, game, seed) for seed in seeds for game in named["games"] for arm in arms]


_LONGEST_NAME = 200
"""Letters; files of a unit add some to its name, and Linux allows 255."""


def _check_units(spec: Spec) -> None:
    """Checks that every unit can be trained, and that no two are the same run."""
    seen: dict[Any, str] = {}
    arm_of: dict[str, Arm] = {}
    for unit in spec.units:
        if arm_of.setdefault(unit.arm.name, unit.arm) != unit.arm:
            raise ValueError(f"two arms are named {unit.arm.name}: rename one")
        config, steps = spec.make_config(unit), spec.agent_steps(unit)
        identity = (config, unit.arm.preset, unit.game, unit.seed)
        if identity in seen:
            same = "twice" if seen[identity] == unit.name else f"and {seen[identity]}, one run"
            raise ValueError(f"the sweep holds {unit.name} {same}")
        seen[identity] = unit.name
        if len(unit.name) > _LONGEST_NAME:
            raise ValueError(f"{unit.arm.name}: the name is too long: list fewer fields")
        try:
            played = spec.experiment.environment
            played.check(config, unit.game, played.backends[0])
            repeat = played.action_repeat(unit.game, config)
            base.check_run(config, steps, played.games, repeat)
            unused = fields.without_effect(config)
            vain = [name for name, _ in unit.arm.overrides if name in unused]
            if vain and not spec.result_paths(unit).manifest.exists():
                raise ValueError(f"config.{vain[0]}: has no effect unless {unused[vain[0]]}")
        except ValueError as error:
            raise ValueError(f"{unit.arm.name} on {unit.game}: {error}") from None


def _check_keys(where: str, table: Any, required: Iterable[str], optional: Iterable = ()) -> None:
    if not isinstance(table, dict):
        raise ValueError(f"{where}expected a table, got {table!r}")
    for key in table:
        _one_of(f"{where}keys", key, (*required, *optional))
    for key in required:
        if key not in table:
            raise ValueError(f"{where}{key} is missing")


def _one_of(where: str, name: Any, known: Iterable[str]) -> str:
    known = list(known)
    if not isinstance(name, str) or name not in known:
        offers = {one: {*other.games, *other.presets} for one, other in ENVIRONMENTS.items()}
        if any(names.intersection(known) for names in offers.values()):  # these are no keys
            for program, names in offers.items():
                if name in names and not names.intersection(known):
                    raise ValueError(f"{where}: {name!r} is of experiment {program}")
        raise ValueError(f"{where}: unknown {name!r}: {protocol.nearest(str(name), known)}")
    return name
