"""One run as a record. Checks its files against their place; `records`, against each other."""

import contextlib
import hashlib
import math
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from rcrl_jax import files, reference
from rcrl_jax.config import fields
from rcrl_jax.runs import manifest, records
from rcrl_jax.tables import arms

_RESTORE = "restore the file or repeat the run"
_NOT_MEASURED = (
    "agent_steps",
    "env_steps",
    "frames",
    "returns",
    "mean",
    "episodes_cut",
    "physics_errors",
)


def read_run(directory: pathlib.Path) -> dict[str, Any]:
    """Reads one run, finished or not.

    Args:
        directory: of the run.

    Returns:
        A row of `runs.read`:

            directory    where its files lie
            family       `atari`, `dmc`, `minatar`, or `own` of a game of one's own
            preset       name that it was started with
            arm          what the agent is called, see `arms`; None where no name is kept
            settings     the agent: a preset of today, or one with the fields that differ
            game, seed   game or task, and the run's seed
            agent_steps  actions that the run is planned for
            score        mean return of the final evaluation; None if unfinished. A diverged run, of
                         Atari or MinAtar alone, has the score of random play
            returns      of each episode of the final evaluation; None if unfinished or diverged
            evaluations  by agent step, each `agent_steps`, `env_steps`, `score`, `returns` and
                         other numbers by name; NaN where nothing was measurable
            diverged     whether it diverged in every attempt and has no final evaluation
            metrics      digest of metrics.jsonl; None without that file
            commit       of the code; `unknown` if the manifest names none
            manifest     the whole manifest
            conditions   what must be equal for runs to be pooled; see `arms.conditions_of`

    Raises:
        ValueError: a file is missing, damaged or at odds with another one or with its place. The
            message names the file and says what to do.
    """
    try:
        with files.reading(directory / "manifest.json", passing=(ValueError, OSError)):
            return _read_run(directory)
    except files.Damaged as error:
        raise ValueError(f"{error}; {_RESTORE}") from None


def _read_run(directory: pathlib.Path) -> dict[str, Any]:
    path = directory / "manifest.json"
    described = _read_manifest(path)
    run = described["run"]
    preset, game, seed, steps = (run[name] for name in ("preset", "game", "seed", "steps"))
    _check_place(path, described)
    repeat = _action_repeat(described)
    score, returns, diverged = _read_result(directory, game, preset)
    try:
        source = {n: v for n, v in run.get("init_from", {}).items() if n != "sha256"}
        config = run["config"] | ({"init_from": source} if source else {})
        settings = arms.arm_of(preset, game, config, arms.kind_of(described))
    except ValueError as error:
        raise ValueError(f"{path}: {error}; {_RESTORE}") from None
    evaluations = _read_evaluations(directory / "evaluations.jsonl", steps, repeat)
    episodes = described["protocol"].get("final_episodes") if returns is None else len(returns)
    return {
        "directory": directory,
        "family": reference.family_of(game, preset),
        "arm": described["launch"].get("arm"),
        "settings": settings,
        "preset": preset,
        "game": game,
        "seed": seed,
        "agent_steps": steps,
        "score": score,
        "returns": returns,
        "evaluations": evaluations,
        "diverged": diverged,
        "metrics": _digest(directory / "metrics.jsonl"),
        "commit": arms.joined(
            str(own["versions"].get("git_commit") or "unknown") for own in arms.stretches(described)
        ),
        "manifest": described,
        "conditions": arms.conditions_of(described, steps * repeat, episodes),
    }


def _read_manifest(path: pathlib.Path) -> dict[str, Any]:
    with _reading(path):
        described = manifest.read(path)
    run = described["run"]
    preset, game = run.get("preset"), run.get("game")
    if not isinstance(game, str) or not arms.presets_of(game):
        raise ValueError(
            f"{path}: game is {game!r}, none of Atari-100k or MinAtar and no task of DMControl; "
            "move the run away"
        )
    if not isinstance(preset, str) or preset not in arms.presets_of(game):
        raise ValueError(
            f"{path}: preset is {preset!r}, none of config/presets.py for {game}; read it with the "
            "code that has this preset, or move the run away"
        )
    arm = described["launch"].get("arm")
    if not isinstance(arm, str | None):
        raise ValueError(f"{path}: launch.arm is {arm!r}, expected a name; {_RESTORE}")
    resumed = described["launch"].get("resumed", [])
    if not isinstance(resumed, list) or not all(
        isinstance(own, Mapping)
        and all(isinstance(own.get(name, {}), Mapping) for name in manifest.SECTIONS)
        for own in resumed
    ):
        raise ValueError(f"{path}: launch.resumed is no list of circumstances; {_RESTORE}")
    numbers = {"seed": (run.get("seed"), 0), "steps": (run.get("steps"), 1)}
    numbers |= {name: (run.get(name), 0) for name in ("algorithm", "format")}
    numbers["action_repeat"] = (_action_repeat(described), 1)
    for name, (value, least) in numbers.items():
        if type(value) is not int or not least <= value <= fields.LARGEST_INT:
            raise ValueError(
                f"{path}: {name} is {value!r}, expected a whole number from {least} on; {_RESTORE}"
            )
    return described


def _action_repeat(described: Mapping[str, Any]) -> Any:
    """Environment steps of an agent step; a manifest of Atari does not state it."""
    return described["environment"].get("action_repeat", 1)


def _read_result(
    directory: pathlib.Path, game: str, preset: str
) -> tuple[float | None, tuple[float, ...] | None, bool]:
    """Score, returns, and whether the run diverged; (None, None, False) without a result."""
    with _reading(directory):
        if not records.has_result(directory):
            records.check_digests(directory)
            return None, None, False
        scores = records.read_result(directory)
    if scores is None:
        return reference.random_play(game, preset), None, True
    return float(scores["mean"]), tuple(map(float, scores["returns"])), False


def _read_evaluations(path: pathlib.Path, steps: int, repeat: int) -> list[dict[str, Any]]:
    """The evaluations of a file, none if it is missing; of two at a step, the later one counts.

    `steps` are those of the whole run, `repeat` the environment steps of one of them.
    """
    if not path.exists():
        return []
    with _reading(path):
        lines = records.read_evaluations(path)
    found = {}
    for line in lines:
        step = line["agent_steps"]
        if step > steps:
            raise ValueError(f"{path}: agent_steps is {step}, expected one of {steps}; {_RESTORE}")
        measures = {
            name: math.nan if value is None else float(value)
            for name, value in line.items()
            if name not in _NOT_MEASURED
            and (value is None or type(value) is float or files.is_number(value))
        }
        found[step] = {
            **measures,
            "agent_steps": step,
            "env_steps": step * repeat,
            "score": float(line["mean"]),
            "returns": tuple(map(float, line["returns"])),
        }
    return [found[step] for step in sorted(found)]


def _digest(path: pathlib.Path) -> str | None:
    """A digest that tells runs apart; None before the first record, when all new runs are equal."""
    with _reading(path):
        try:
            content = records.read_content(path)
        except FileNotFoundError:
            return None
    return hashlib.sha256(content).hexdigest() if content else None


def _check_place(path: pathlib.Path, described: Mapping[str, Any]) -> None:
    """Raises ValueError if a run lies in a place with another run's name, or played another game.

    A directory `seed_<n>` lies below `<preset>/<game>`, or below `<game>/<preset>` as the
    representation experiment writes it. A directory of another name says nothing.
    """
    preset, game, seed = (described["run"][name] for name in ("preset", "game", "seed"))
    environment = described["environment"]
    played = environment.get("game", environment.get("task", game))
    if played != game:
        raise ValueError(f"{path}: game is {game!r}, but environment has {played!r}; {_RESTORE}")
    *_, first, second, own = (*"  ", *path.absolute().parent.parts)
    if own.startswith("seed_") and ({first, second} != {preset, game} or own != f"seed_{seed}"):
        raise ValueError(
            f"{path}: preset is {preset!r}, game is {game!r}, seed is {seed}, but it lies in "
            f"{first}/{second}/{own}; move the directory to its place"
        )


@contextlib.contextmanager
def _reading(path: pathlib.Path) -> Iterator[None]:
    """Turns what is wrong with a file into one line that says what to do."""
    try:
        yield
    except FileNotFoundError:
        raise ValueError(f"{path} is missing; {_RESTORE}") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}; change its rights") from None
    except files.Damaged as error:
        raise ValueError(f"{error}; {_RESTORE}") from None
