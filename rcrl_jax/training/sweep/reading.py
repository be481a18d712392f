"""Reads which runs a sweep has, from a TOML file or from names and seeds, and checks all of it."""

import difflib
import os
import pathlib
import re
import tomllib
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from rcrl_jax.config import fields
from rcrl_jax.config.presets import Config
from rcrl_jax.training import seeds
from rcrl_jax.training.sweep.spec import Arm, Experiment, Spec, SweepError, Unit


def read_spec(path: str | os.PathLike, experiments: Mapping[str, Experiment]) -> Spec:
    """Reads a spec and checks all of it; `experiments.campaign` describes the format.

    Args:
        path: a TOML file.
        experiments: the programs that a spec may name.

    Raises:
        SweepError: the spec is wrong; the message is one line and names the place.
        OSError: there is no such file.
    """
    try:
        with open(path, "rb") as file:
            table = tomllib.load(file)
        return make_spec(table, experiments)
    except ValueError as error:
        raise SweepError(f"{path}: {error}") from error


def make_spec(table: Mapping[str, Any], experiments: Mapping[str, Experiment]) -> Spec:
    """Checks the content of a spec file, or of flags that say the same.

    Args:
        table: as TOML gives it; `experiments.campaign` describes the format.
        experiments: the programs that a spec may name.

    Raises:
        ValueError: the spec is wrong; the message is one line that begins with the place.
    """
    required = ("experiment", "steps", "eval_episodes", "results", "blocks")
    _check_keys("", table, required, optional=("arms",))
    experiment = experiments[_one_of("experiment", table["experiment"], experiments)]
    presets = experiment.presets_of(experiment.games[0])
    arms = {
        name: _read_arm(name, arm, presets)
        for name, arm in _table("arms", table.get("arms", {})).items()
    }
    if not isinstance(table["results"], str) or not table["results"]:
        raise ValueError(f"results: expected a directory, got {table['results']!r}")
    blocks = table["blocks"]
    if not isinstance(blocks, list) or not blocks:
        raise ValueError("blocks: expected [[blocks]] tables")
    spec = Spec(
        experiment=experiment,
        steps=_at_least_one("steps", table["steps"]),
        eval_episodes=_at_least_one("eval_episodes", table["eval_episodes"]),
        results=pathlib.Path(table["results"]),
        units=tuple(
            unit
            for number, block in enumerate(blocks, start=1)
            for unit in _read_block(f"block {number}: ", block, experiment, presets, arms)
        ),
    )
    _check_units(spec)
    return spec


def _read_arm(name: str, table: Any, presets: Mapping[str, Config]) -> Arm:
    where = f"arms.{name}: "
    if not re.fullmatch(r"\w[\w.-]*", name, re.ASCII) or name in presets:
        raise ValueError(f"{where}not a name for an arm: a preset's, or it has odd characters")
    _check_keys(where, _table(where, table), ("preset", "config"))
    preset = _one_of(f"{where}preset", table["preset"], presets)
    known = {field.name: field for field in fields.named_fields(presets[preset])}
    overrides = []
    for key, value in fields.flatten(_table(f"{where}config", table["config"])).items():
        field = known[_one_of(f"{where}config", key, known)]
        overrides.append((key, _field_value(f"{where}config.{key}", value, field.type)))
    if not overrides:
        raise ValueError(f"{where}changes no field: name its preset under presets")
    return Arm(name, preset, tuple(overrides))


def _field_value(where: str, value: Any, kind: Any) -> Any:
    """Converts a TOML value to the type `kind` of a field."""
    if kind is float and type(value) is int:
        return float(value)
    if typing.get_origin(kind) is tuple and isinstance(value, list):
        if all(isinstance(item, str) for item in value):
            return tuple(value)
    elif type(value) is kind:
        return value
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}
    raise ValueError(f"{where}: expected {words.get(kind, 'a list of strings')}, got {value!r}")


def _read_block(
    where: str,
    block: Any,
    experiment: Experiment,
    presets: Mapping[str, Config],
    named_arms: Mapping[str, Arm],
) -> Iterable[Unit]:
    keys = ("games", "seeds")
    _check_keys(where, _table(where, block), keys, optional=("presets", "arms"))
    arms = [Arm(name, name) for name in _names(where, block, "presets", presets)]
    arms += [named_arms[name] for name in _names(where, block, "arms", named_arms)]
    if not arms:
        raise ValueError(f"{where}presets or arms are missing")
    games = _names(where, block, "games", experiment.games)
    try:
        block_seeds = seeds.parse(block["seeds"])
    except ValueError as error:
        raise ValueError(f"{where}seeds: {error}") from None
    # The arms of a pair are adjacent, so that arms have about equally many runs at any time.
    return [Unit(arm, game, seed) for seed in block_seeds for game in games for arm in arms]


def _check_units(spec: Spec) -> None:
    """Checks that every unit can be made, and that no two are the same run."""
    seen: dict[Any, str] = {}
    for unit in spec.units:
        config = spec.make_config(unit)
        if spec.agent_steps(unit.game) < 1:
            raise ValueError(f"steps: fewer than one agent step of {unit.game}")
        identity = (config, unit.arm.preset, unit.game, unit.seed)
        if identity in seen:
            same = "twice" if seen[identity] == unit.name else f"and {seen[identity]}, one run"
            raise ValueError(f"the sweep holds {unit.name} {same}")
        seen[identity] = unit.name


def _table(where: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where.removesuffix(': ')}: expected a table, got {value!r}")
    return value


def _check_keys(where: str, table: Mapping, required: Iterable[str], optional: Iterable = ()):
    for key in table:
        _one_of(f"{where}keys", key, (*required, *optional))
    for key in required:
        if key not in table:
            raise ValueError(f"{where}{key} is missing")


def _names(where: str, block: Mapping, key: str, known: Iterable[str]) -> list[str]:
    """The list of names under `key`; empty if the key is missing."""
    names = block.get(key, [])
    if not isinstance(names, list) or (key in block and not names):
        raise ValueError(f"{where}{key}: expected a list of names, got {names!r}")
    return [_one_of(f"{where}{key}", name, known) for name in names]


def _one_of(where: str, name: Any, known: Iterable[str]) -> str:
    known = list(known)
    if not isinstance(name, str) or name not in known:
        near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(known)}"
        raise ValueError(f"{where}: unknown {name!r}: {hint}")
    return name


def _at_least_one(where: str, value: Any) -> int:
    if type(value) is not int or value < 1:
        raise ValueError(f"{where}: expected a whole number of at least 1, got {value!r}")
    return value
