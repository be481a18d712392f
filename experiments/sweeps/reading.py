"""Reads which runs a sweep has, from a TOML file or from flags, and checks all of it."""

import difflib
import os
import pathlib
import re
import tomllib
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from experiments import command_line
from experiments.sweeps.spec import EXPERIMENTS, Arm, Spec, SweepError, Unit
from rcrl_jax.config import fields, groups
from rcrl_jax.config.presets import Config


def read_spec(path: str | os.PathLike) -> Spec:
    """Reads a spec and checks all of it; `experiments.sweep` describes the format.

    Raises:
        SweepError: the spec is wrong; the message is one line and names the place.
        OSError: there is no such file.
    """
    try:
        with open(path, "rb") as file:
            return make_spec(tomllib.load(file))
    except ValueError as error:
        raise SweepError(f"{path}: {error}") from error


def make_spec(table: Mapping[str, Any]) -> Spec:
    """Checks the content of a spec file, or of flags that say the same.

    Raises:
        ValueError: the spec is wrong; the message is one line that begins with the place.
    """
    required = ("experiment", "steps", "eval_episodes", "results", "blocks")
    _check_keys("", table, required, optional=("arms",))
    experiment = EXPERIMENTS[_one_of("experiment", table["experiment"], EXPERIMENTS)]
    for name in ("steps", "eval_episodes"):
        if type(table[name]) is not int or table[name] < 1:
            raise ValueError(f"{name}: expected a whole number of at least 1, got {table[name]!r}")
    if not isinstance(table["results"], str) or not table["results"]:
        raise ValueError(f"results: expected a directory, got {table['results']!r}")
    presets = experiment.presets_of(experiment.games[0])
    arms = table.get("arms", {})
    _check_keys("arms: ", arms, (), optional=arms)
    known = {
        "presets": {name: Arm(name, name) for name in presets},
        "arms": {name: _read_arm(f"arms.{name}: ", name, arms[name], presets) for name in arms},
        "games": {game: game for game in experiment.games},
    }
    if not isinstance(table["blocks"], list) or not table["blocks"]:
        raise ValueError("blocks: expected [[blocks]] tables")
    units = tuple(
        unit
        for number, block in enumerate(table["blocks"], start=1)
        for unit in _read_block(f"block {number}: ", block, known)
    )
    results = pathlib.Path(table["results"])
    spec = Spec(experiment, table["steps"], table["eval_episodes"], results, units)
    _check_units(spec)
    return spec


def _read_arm(where: str, name: str, table: Any, presets: Mapping[str, Config]) -> Arm:
    if not re.fullmatch(r"\w[\w.-]*", name, re.ASCII) or name in presets:
        raise ValueError(f"{where}not a name for an arm: a preset's, or it has odd characters")
    _check_keys(where, table, ("preset", "config"))
    preset = _one_of(f"{where}preset", table["preset"], presets)
    types = {field.name: field.type for field in fields.named_fields(presets[preset])}
    if not isinstance(table["config"], dict) or not table["config"]:
        raise ValueError(f"{where}config: expected changed fields, got {table['config']!r}")
    config = fields.flatten(table["config"])
    _check_keys(f"{where}config: ", config, (), optional=types)
    overrides = {
        key: _field_value(f"{where}config.{key}", value, types[key])
        for key, value in config.items()
    }
    return Arm(name, preset, tuple(overrides.items()))


def _field_value(where: str, value: Any, kind: Any) -> Any:
    """Converts a TOML value to the type `kind` of a field."""
    if kind is float and type(value) is int:
        value = float(value)
    elif isinstance(value, list):
        value = tuple(value)
    kind = typing.get_origin(kind) or kind
    if type(value) is not kind:
        names = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}
        raise ValueError(f"{where}: expected {names.get(kind, 'a list')}, got {value!r}")
    return value


def _read_block(where: str, block: Any, known: Mapping[str, Mapping[str, Any]]) -> Iterable[Unit]:
    _check_keys(where, block, ("games", "seeds"), optional=("presets", "arms"))
    named: dict[str, list[Any]] = {}
    for key in known:
        names = block.get(key, [])
        if not isinstance(names, list) or (key in block and not names):
            raise ValueError(f"{where}{key}: expected a list of names, got {names!r}")
        named[key] = [known[key][_one_of(f"{where}{key}", name, known[key])] for name in names]
    arms = named["presets"] + named["arms"]
    if not arms:
        raise ValueError(f"{where}presets or arms are missing")
    block_seeds = command_line.parse_seeds(block["seeds"], f"{where}seeds")
    # The arms of a pair are adjacent, so that arms have about equally many runs at any time.
    return [
        Unit(arm, game, seed) for seed in block_seeds for game in named["games"] for arm in arms
    ]


def _check_units(spec: Spec) -> None:
    """Checks that every unit can be trained, and that no two are the same run."""
    seen: dict[Any, str] = {}
    for unit in spec.units:
        config, steps = spec.make_config(unit), spec.agent_steps(unit.game)
        identity = (config, unit.arm.preset, unit.game, unit.seed)
        if identity in seen:
            same = "twice" if seen[identity] == unit.name else f"and {seen[identity]}, one run"
            raise ValueError(f"the sweep holds {unit.name} {same}")
        seen[identity] = unit.name
        try:
            groups.check_steps(config.learn_start, config.update_period, steps)
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
        near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(known)}"
        raise ValueError(f"{where}: unknown {name!r}: {hint}")
    return name
