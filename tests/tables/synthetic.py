"""Writes runs as training writes them, with scores of one's choice."""

import json
import pathlib
import zlib
from collections.abc import Sequence
from typing import Any

from rcrl_jax import reference
from rcrl_jax.config import fields
from rcrl_jax.runs import manifest
from rcrl_jax.tables import arms

ACTION_REPEAT = {"cartpole_swingup": 8, "cheetah_run": 4}


def write_run(
    root: pathlib.Path,
    preset: str = "rcrl",
    game: str = "Pong",
    seed: int = 0,
    score: float | None = 10.0,
    *,
    steps: int = 1000,
    episodes: int = 10,
    changes: dict[str, Any] | None = None,
    arm: str | None = None,
    **run: Any,
) -> pathlib.Path:
    """Writes a run with evaluations at half and at all of its steps; returns its directory.

    Args:
        root: of the results.
        preset: of today.
        game: game or task.
        seed: its seed.
        score: mean of its final returns; None for a run that stopped halfway.
        steps: agent steps.
        episodes: how many final returns there are, an even number.
        changes: fields of the preset that the run changes.
        arm: the name that its sweep gave it.
        run: entries of the manifest's section `run` that the run changes.
    """
    directory = root / preset / game / f"seed_{seed}"
    directory.mkdir(parents=True)
    repeat = ACTION_REPEAT.get(game, 1)
    config = fields.replace(arms.presets_of(game)[preset], changes or {})
    described = manifest.describe_run(preset, config, game, seed, steps, "envpool") | run
    write_json(
        directory / "manifest.json",
        {
            "run": described,
            "environment": {"game": game, "action_repeat": repeat, "sticky_actions": 0.0},
            "protocol": {"final_episodes": episodes, "periodic_episodes": 2},
            "versions": {"git_commit": "0123456789"},
            "device": {"platform": "cpu"},
            "launch": {"arm": arm} if arm else {},
        },
    )
    final = [score - 1.0, score + 1.0] * (episodes // 2) if score is not None else None
    evaluations = [(steps // 2, [1.0, 3.0]), (steps, final)]
    write_lines(
        directory / "evaluations.jsonl",
        [evaluation(step, repeat, returns) for step, returns in evaluations if returns is not None],
    )
    # No two runs have the same metrics, wherever they lie.
    write_lines(
        directory / "metrics.jsonl",
        [{"agent_steps": 1, "wall_s": 0.0, "loss": zlib.crc32(bytes(directory))}],
    )
    if final is not None:
        place = {"preset": preset, "game": game, "seed": seed}
        counters = {"agent_steps": steps, "env_steps": steps * repeat, "frames": steps * 4}
        scores = {**place, **counters, "mean": score, "episodes": episodes, "episodes_cut": 0}
        scores["returns"] = final
        write_json(directory / "scores.json", scores)
    return directory


def score_at(game: str, level: float) -> float:
    """The score of a game whose human-normalised score is `level`."""
    random, human = (reference.published(game, name) for name in ("Random", "Human"))
    return float(random + level * (human - random))


def evaluation(step: int, repeat: int, returns: Sequence[float]) -> dict[str, Any]:
    """A line of evaluations.jsonl."""
    return {
        "agent_steps": step,
        "env_steps": step * repeat,
        "frames": step * 4,
        "returns": list(returns),
        "mean": sum(returns) / len(returns),
        "episodes_cut": 0,
        "unseen_auc": 0.75,
        "unseen_auc_equal_return": None,
    }


def write_lines(path: pathlib.Path, lines: Sequence[Any]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_json(path: pathlib.Path, value: Any) -> None:
    path.write_text(json.dumps(value))


def edit(path: pathlib.Path, section: str | None = None, **changes: Any) -> None:
    """Changes entries of a JSON file, or of one of its sections; None removes one."""
    value = json.loads(path.read_text())
    target = value[section] if section else value
    target |= changes
    for name, change in changes.items():
        if change is None:
            del target[name]
    path.write_text(json.dumps(value))
