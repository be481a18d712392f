"""Our runs as the score files that other projects' statistics and plots read.

    rliable     a dict of arrays [runs, games], one an arm; github.com/google-research/rliable
    marl-eval   nested JSON of every evaluation; github.com/instadeepai/marl-eval, README
    DreamerV3   a list of curves, one a run; github.com/danijar/dreamerv3, `scores/` and `plot.py`

The first two are rectangular: every run on every game. A run that has no counterpart is left out,
and a line says so. The third takes any runs.
"""

import collections
import gzip
import json
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rcrl_jax import files, reference
from rcrl_jax.results.runs import Run

_FRAME_SKIP = 4
"""Frames of an agent step on Atari; DreamerV3's files count frames there."""


class Matrices(NamedTuple):
    """Final scores as rliable takes them.

    Attributes:
        games: the columns.
        seeds: arm -> its rows.
        raw: arm -> scores `[runs, games]`.
        normalised: the same, 0 for random play and 1 for the human tester on Atari, and divided by
            the largest return on DMControl.
        left_out: one line for each arm that lacks runs.
    """

    games: tuple[str, ...]
    seeds: Mapping[str, tuple[int, ...]]
    raw: Mapping[str, np.ndarray]
    normalised: Mapping[str, np.ndarray]
    left_out: tuple[str, ...]


def make_matrices(runs: Iterable[Run], games: Sequence[str]) -> Matrices:
    """Arranges the scores of every arm; keeps the seeds that it has on all games.

    Args:
        runs: of one family and one protocol; unfinished ones are passed over.
        games: the columns.
    """
    scores = {(run.arm, run.game, run.seed): run.score for run in _finished(runs)}
    raw, seeds, left_out = {}, {}, []
    for arm in dict.fromkeys(arm for arm, _, _ in scores):
        missing = {
            seed: [game for game in games if (arm, game, seed) not in scores]
            for seed in sorted({seed for other, _, seed in scores if other == arm})
        }
        complete = tuple(seed for seed in missing if not missing[seed])
        if complete:
            seeds[arm] = complete
            raw[arm] = np.array(
                [[scores[arm, game, seed] for game in games] for seed in complete], np.float64
            )
        left_out += [
            f"{arm}, seed {seed}, is left out: it has no run on {_names(lacking)}"
            for seed, lacking in missing.items()
            if lacking
        ]
    normalised = {arm: _normalise(games, matrix) for arm, matrix in raw.items()}
    return Matrices(tuple(games), seeds, raw, normalised, tuple(left_out))


def make_marl_eval(runs: Iterable[Run], games: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """All evaluations in marl-eval's nesting: environment, task, algorithm, run, step.

    marl-eval needs the same runs and the same steps everywhere. Kept are the runs with the most
    frequent steps, and of them the seeds that every arm has on every game.

    Args:
        runs: of one family and one protocol; unfinished ones are passed over.
        games: the tasks.

    Returns:
        The data, empty if no seed is left, and one line for each thing that is left out. Counts
        are environment steps; the metric is `return`; the absolute metric is the final evaluation.
    """
    runs = [run for run in _finished(runs) if run.game in games]
    steps, left_out = collections.Counter(map(_steps, runs)), []
    usual = max(steps, key=lambda own: (steps[own], len(own)), default=())
    kept = {}
    for run in runs:
        if usual and _steps(run) == usual and run.returns:
            kept[run.arm, run.game, run.seed] = run
        else:
            left_out.append(f"{run.directory} is left out: it lacks evaluations that others have")
    arms = list(dict.fromkeys(arm for arm, _, _ in kept))
    of_cells = [
        {seed for arm, game, seed in kept if (arm, game) == cell}
        for cell in ((arm, game) for arm in arms for game in games)
    ]
    common = sorted(set.intersection(*of_cells)) if of_cells else []
    rest = sorted({seed for _, _, seed in kept} - set(common))
    if rest:
        left_out.append(f"seeds {_names(rest)} are left out: an arm has no such run on a game")
    if not common:
        return {}, left_out
    tasks = {
        _snake(game): {
            arm: {f"seed_{seed}": _marl_eval_run(kept[arm, game, seed]) for seed in common}
            for arm in arms
        }
        for game in games
    }
    return {runs[0].family: tasks}, left_out


def make_curves(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """The evaluations of all runs as DreamerV3's score files hold curves.

    Returns:
        One entry a run with `task`, `method`, `seed`, `xs` (frames on Atari, environment steps on
        DMControl) and `ys` (mean return of an evaluation). Runs without evaluations have none.
    """
    return [
        {
            "task": f"{run.family}_{_snake(run.game)}",
            "method": run.arm,
            "seed": run.seed,
            "xs": [_frames(run, evaluation.env_steps) for evaluation in run.evaluations],
            "ys": [evaluation.score for evaluation in run.evaluations],
        }
        for run in runs
        if run.evaluations
    ]


def write(
    runs: Sequence[Run], games: Sequence[str], output: pathlib.Path
) -> tuple[list[pathlib.Path], list[str]]:
    """Writes every format below `output`; replaces files of an earlier export.

    Args:
        runs: finished runs of one family and one protocol.
        games: the columns of the matrices.
        output: directory, made if missing.

    Returns:
        The files, and one line for each thing that a format leaves out.

    Raises:
        OSError: a file cannot be written.
    """
    family = runs[0].family
    (output / "dreamerv3").mkdir(parents=True, exist_ok=True)
    written, left_out = [], []

    matrices = make_matrices(runs, games)
    left_out += [f"rliable: {line}" for line in matrices.left_out]
    for kind, arrays in (("raw", matrices.raw), ("normalised", matrices.normalised)):
        if arrays:
            with files.replacing(output / f"rliable_{family}_{kind}.npz") as partial:
                np.savez(partial, **arrays)
            written.append(output / f"rliable_{family}_{kind}.npz")
    if matrices.raw:
        description = {
            "games": matrices.games,
            "seeds": matrices.seeds,
            "conditions": runs[0].conditions,
        }
        files.write_json_atomically(output / f"rliable_{family}.json", description)
        written.append(output / f"rliable_{family}.json")

    data, lines = make_marl_eval(runs, games)
    left_out += [f"marl-eval: {line}" for line in lines]
    if data:
        files.write_json_atomically(output / f"marl_eval_{family}.json", data)
        written.append(output / f"marl_eval_{family}.json")

    of_names: dict[str, list[dict[str, Any]]] = {}
    for curve in make_curves(runs):
        name = re.sub(r"[^\w.+]+", "_", curve["method"]).strip("_")
        of_names.setdefault(name, []).append(curve)
    for name, curves in of_names.items():
        path = output / "dreamerv3" / f"{family}-{name}.json.gz"
        with files.replacing(path) as partial:
            # Without a time, equal runs give equal files.
            partial.write_bytes(gzip.compress(json.dumps(curves).encode(), mtime=0))
        written.append(path)
    return written, left_out


def _finished(runs: Iterable[Run]) -> list[Run]:
    return [run for run in runs if run.score is not None]


def _normalise(games: Sequence[str], matrix: np.ndarray) -> np.ndarray:
    """Scores `[runs, games]` on a scale that is comparable between games."""
    columns = [
        reference.normalised(game, column) for game, column in zip(games, matrix.T, strict=True)
    ]
    return np.stack(columns, axis=1)


def _marl_eval_run(run: Run) -> dict[str, Any]:
    steps = {
        f"step_{number}": {
            "step_count": evaluation.env_steps,
            "return": list(evaluation.returns),
        }
        for number, evaluation in enumerate(run.evaluations)
    }
    return {**steps, "absolute_metrics": {"return": list(run.returns)}}


def _steps(run: Run) -> tuple[int, ...]:
    return tuple(evaluation.env_steps for evaluation in run.evaluations)


def _frames(run: Run, env_steps: int) -> int:
    return env_steps * _FRAME_SKIP if run.family == "atari" else env_steps


def _snake(game: str) -> str:
    """`RoadRunner` -> `road_runner`; tasks of DMControl are in this form."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", game).lower()


def _names(values: Sequence[Any]) -> str:
    """The first three of them, and how many more."""
    more = len(values) - 3
    return ", ".join(map(str, values[:3])) + (f" and {more} more" if more > 0 else "")
