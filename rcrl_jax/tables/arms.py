"""What a run's manifest says about pooling: which arm the run belongs to, under which conditions.

The arm is what a study compares, the agent. The conditions are what must be equal for two runs to
be pooled: code, budget, evaluation, environment, device. Every entry of a manifest belongs to one
of them, or to neither because it depends on the game or on the machine.

An arm is called as its sweep named it (`launch.arm` of the manifest), else by its settings: the
preset with the fields in which it differs.
"""

import dataclasses
import functools
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from rcrl_jax import reference, words
from rcrl_jax.agents.rainbow.config import RainbowConfig
from rcrl_jax.config import fields, presets
from rcrl_jax.envs import minatar
from rcrl_jax.runs import manifest

MEASURING = ("evaluation_period", "periodic_episodes", "evaluation_epsilon", "max_episode_steps")
"""Fields of a configuration that say how a run is measured: conditions, not part of the arm."""

_OF_THE_GAME = (
    "game", "task", "action_set", "action_repeat",
    "environment", "observation", "image", "repeats_exactly",  # of a game of one's own
)  # fmt: skip
_OF_THE_ARM = (
    "stack_size", "frame_stack", "stack_start", "life_loss_ends_episode", "clip_rewards",
    "frame_shape",
)  # fmt: skip
_OF_THE_MACHINE = ("renderer", "camera")
_NOT_CONDITIONS = {*_OF_THE_GAME, *_OF_THE_ARM, *_OF_THE_MACHINE, "backend"}
"""Entries of a manifest's `environment` that two runs of a pool may differ in."""


def presets_of(game: str) -> Mapping[str, presets.Config]:
    """The presets that can train on a game or task of this name; none if no benchmark has it.

    Four names are games of both Atari and MinAtar; names of one's own games have a dot.
    """
    if "." in game:
        return presets.OWN_PRESETS
    if game in reference.tasks():
        return presets.control_presets(game)
    of_atari = presets.atari_presets() if game in reference.games() else {}
    return of_atari | (presets.MINATAR_PRESETS if game in minatar.MINATAR_GAMES else {})


def arm_of(preset: str, game: str, config: Mapping[str, Any], kind: str = "image") -> str:
    """Names the agent that a manifest describes.

    Args:
        preset: name that the run was started with, one of `presets_of(game)`.
        game: its game or task.
        config: the manifest's `config`.
        kind: how observations of a game of one's own are read, which decides fields of the preset
            (`presets.fields_of_own`).

    Returns:
        The preset that has this configuration today, the run's preset first; else the run's preset
        with the fields that differ, for example `rcrl(embedding_init=uniform)`. Fields of
        measuring, and fields that the agent does not use, count as equal.

    Raises:
        ValueError: `auxiliary` is not a list of names.
    """
    candidates = _values_of_presets(game, kind)
    values = _values(candidates[preset], config)
    if not isinstance(values.get("auxiliary", ()), tuple):
        raise ValueError(f"config.auxiliary is {values['auxiliary']!r}, expected a list of names")
    own = presets_of(game)[preset]
    values = {name: value for name, value in values.items() if _is_used(name, values, own)}
    for name in dict.fromkeys((preset, *candidates)):
        if not _differences(values, candidates[name]):
            return name
    differing = ", ".join(
        f"{name}={_text(value)}" for name, value in _differences(values, candidates[preset]).items()
    )
    return words.one_line(f"{preset}({differing})", 100_000)  # a name is never cut


def are_one_agent(described: Sequence[Mapping[str, Any]]) -> bool:
    """Whether manifests, maybe of several games, are of one preset with the same changed fields."""
    usual = [_values_of_presets(own["run"]["game"], kind_of(own)) for own in described]
    presets_of_runs = [own["run"]["preset"] for own in described]
    pairs = [
        (of_game[preset], _values(of_game[preset], own["run"]["config"]))
        for of_game, preset, own in zip(usual, presets_of_runs, described, strict=True)
    ]
    changed = {name for preset, values in pairs for name in _differences(values, preset)}
    # Presets may differ between games. A field that a run changes has one value in all of them.
    found = {repr([values.get(name) for name in sorted(changed)]) for _, values in pairs}
    return len(found) == len({*presets_of_runs}) == 1


def kind_of(described: Mapping[str, Any]) -> str:
    """How the observations of a manifest's game are read, as `arm_of` takes it."""
    return described["environment"].get("observation", {}).get("read_as", "image")


def notes(frame: pd.DataFrame) -> list[str]:
    """For each arm with a name of its own, the settings that it stands for, in a sentence."""
    named = frame[frame.arm != frame.settings].groupby("arm", sort=False).settings.unique()
    return [f"{arm}: {' or '.join(settings)}." for arm, settings in named.items()]


def preset_of(settings: str) -> str:
    """The preset of settings, whatever fields differ: `rcrl` of `rcrl(n_step=5)`."""
    return settings.partition("(")[0]


def changes_of(settings: str) -> str:
    """The fields in which settings differ from their preset: `(n_step=5)`, or nothing."""
    return settings.removeprefix(preset_of(settings))


def stretches(described: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """A manifest as it was at the start of a run, and at each resumption elsewhere."""
    later = described["launch"].get("resumed", ())
    return [described, *({**described, **changed} for changed in later)]


def joined(values: Iterable[Any]) -> Any:
    """The value of all stretches; if they differ, text: `cpu then gpu`."""
    first, *others = dict.fromkeys(values)
    return " then ".join(map(str, (first, *others))) if others else first


def conditions_of(
    described: Mapping[str, Any], env_steps: int, final_episodes: int | None
) -> dict[str, Any]:
    """What must be equal for runs to be pooled; the first names matter most.

    The format of the files is no condition: newer formats add records and change no score.

    Args:
        described: a manifest.
        env_steps: environment steps that the run is planned for, as the benchmark counts them.
        final_episodes: episodes of the final evaluation.

    Returns:
        Scalars by name; lists as JSON. What changed at a resumption is `joined`.
    """
    each = [_conditions_of(own, env_steps, final_episodes) for own in stretches(described)]
    names = dict.fromkeys(itertools.chain(*each))
    return {name: joined(own.get(name) for own in each) for name in names}


def _conditions_of(
    described: Mapping[str, Any], env_steps: int, final_episodes: int | None
) -> dict[str, Any]:
    run, config = described["run"], described["run"]["config"]
    conditions = {
        "algorithm": run["algorithm"],
        "env_steps": env_steps,
        "final_episodes": final_episodes,
        "backend": run.get("backend"),
        "evaluation_period": config.get("evaluation_period"),
        "device.platform": described["device"].get("platform"),
    }
    protocol = fields.flatten(described["protocol"], "protocol.")
    protocol.pop("protocol.final_episodes", None)  # A repeated command can ask for another number.
    environment = {
        name: value
        for name, value in described["environment"].items()
        if name not in _NOT_CONDITIONS
    }
    conditions |= protocol | fields.flatten(environment, "environment.")
    return {
        name: json.dumps(value) if isinstance(value, list | tuple | dict) else value
        for name, value in conditions.items()
    }


def _is_used(name: str, values: Mapping[str, Any], preset: presets.Config) -> bool:
    """Whether the training of an agent with these values depends on the field."""
    if name in (*MEASURING, manifest.CHANGES_NO_RESULT):
        return False
    known, group = _conditions(type(preset)), name.partition(".")[0]
    # A removed field acted like the field of another family, or like its group.
    conditions = known.get(name, _conditions(RainbowConfig).get(name, known.get(group, ())))
    return all(condition.test(values) for condition in conditions)


@functools.cache
def _conditions(family: type[presets.Config]) -> dict[str, tuple[fields.UsedIf, ...]]:
    """When each field of a family, and each group of fields, acts."""
    groups = {field.name: field.metadata.get("used_if") for field in dataclasses.fields(family)}
    of_groups = {name: (used_if,) for name, used_if in groups.items() if used_if is not None}
    return of_groups | {field.name: field.conditions for field in fields.named_fields(family())}


def _values(preset: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest's `config` by dotted name.

    A field that it lacks is newer than the run, and its default changed nothing.
    """
    return {**preset, **manifest.config_values(config)}


def _differences(values: Mapping[str, Any], today: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value for name, value in values.items() if name not in today or today[name] != value
    }


@functools.cache
def _values_of_presets(game: str, kind: str) -> dict[str, dict[str, Any]]:
    """Every preset's fields by dotted name; kept, because thousands of runs ask for them."""
    of_kind = presets.fields_of_own if "." in game else lambda preset, kind: {}
    return {
        name: fields.values(preset) | of_kind(preset, kind)
        for name, preset in presets_of(game).items()
    }


def _text(value: Any) -> str:
    return "+".join(map(str, value)) or "none" if isinstance(value, tuple) else str(value)
