"""Our runs as the score files that other projects' statistics and plots read.

    rliable     a dict of arrays [runs, games], one an arm; github.com/google-research/rliable
    marl-eval   nested JSON of every evaluation; github.com/instadeepai/marl-eval, README
    DreamerV3   a list of curves, one a run; github.com/danijar/dreamerv3, `scores/` and `plot.py`

The first two are rectangular: every run on every game. A run that has no counterpart is left out,
and a line says so. The third takes any runs.
"""

import gzip
import json
import pathlib
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from benchmarks.tables.runs import COLUMNS
from rcrl_jax import files, reference

_FRAME_SKIP = 4
"""Frames of an agent step on Atari; DreamerV3's files count frames there."""


class Matrices(NamedTuple):
    """Final scores as rliable takes them.

    Attributes:
        raw: arm -> scores, seeds as rows and games as columns.
        normalised: the same, 0 for random play and 1 for the human tester on Atari, and divided by
            the largest return on DMControl.
        left_out: one line for each seed that lacks runs.
    """

    raw: dict[str, pd.DataFrame]
    normalised: dict[str, pd.DataFrame]
    left_out: tuple[str, ...]


def make_matrices(frame: pd.DataFrame, games: Sequence[str]) -> Matrices:
    """Arranges the scores of every arm; keeps the seeds that it has on all games.

    Args:
        frame: finished runs of one pool.
        games: the columns.
    """
    raw, left_out = {}, []
    for arm, own in frame.groupby("arm", sort=False):
        scores = own.pivot(index="seed", columns="game", values="score").reindex(columns=games)
        if len(complete := scores.dropna()):
            raw[arm] = complete
        left_out += [
            f"{arm}, seed {seed}, is left out: it has no run on {_names(missing.index[missing])}"
            for seed, missing in scores.isna().iterrows()
            if missing.any()
        ]
    normalised = {
        arm: scores.apply(lambda of_game: reference.normalised(of_game.name, of_game))
        for arm, scores in raw.items()
    }
    return Matrices(raw, normalised, tuple(left_out))


def make_marl_eval(frame: pd.DataFrame, games: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """All evaluations in marl-eval's nesting: environment, task, algorithm, run, step.

    marl-eval needs the same runs and the same steps everywhere. Kept are the runs with the most
    frequent steps, and of them the seeds that every arm has on every game.

    Args:
        frame: finished runs of one pool.
        games: the tasks.

    Returns:
        The data, empty if no seed is left, and one line for each thing that is left out. Counts
        are environment steps; the metric is `return`; the absolute metric is the final evaluation.
    """
    frame = frame[frame.game.isin(games)]
    steps = frame.evaluations.map(lambda own: tuple(e["env_steps"] for e in own))
    counts = steps.value_counts()
    # Of equally frequent steps, those of the run with more evaluations.
    usual = max(counts.index, key=lambda own: (counts[own], len(own)), default=())
    is_kept = (steps == usual) & (steps.map(len) > 0) & frame.returns.notna()
    kept = frame[is_kept]
    left_out = [
        f"{directory} is left out: it lacks evaluations that others have"
        for directory in frame.directory[~is_kept]
    ]
    cells = [
        set(kept.seed[(kept.arm == arm) & (kept.game == game)])
        for arm in kept.arm.unique()
        for game in games
    ]
    common = set.intersection(*cells) if cells else set()
    if rest := sorted(set(kept.seed) - common):
        left_out.append(f"seeds {_names(rest)} are left out: an arm has no such run on a game")
    kept = kept[kept.seed.isin(common)].sort_values("seed", kind="stable")
    tasks: dict[str, dict[str, dict[str, Any]]] = {}
    for game in games:
        for run in kept[kept.game == game].itertuples():
            of_arm = tasks.setdefault(_snake(game), {}).setdefault(run.arm, {})
            of_arm[f"seed_{run.seed}"] = _marl_eval_run(run.evaluations, run.returns)
    return {frame.family.iloc[0]: tasks} if tasks else {}, left_out


def make_curves(frame: pd.DataFrame) -> list[dict[str, Any]]:
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
            "xs": [
                e["env_steps"] * (_FRAME_SKIP if run.family == "atari" else 1)
                for e in run.evaluations
            ],
            "ys": [e["score"] for e in run.evaluations],
        }
        for run in frame.itertuples()
        if run.evaluations
    ]


def write(
    frame: pd.DataFrame, games: Sequence[str], output: pathlib.Path
) -> tuple[list[pathlib.Path], list[str]]:
    """Writes every format below `output`; replaces files of an earlier export.

    Args:
        frame: finished runs of one pool.
        games: the columns of the matrices.
        output: directory, made if missing.

    Returns:
        The files, and one line for each thing that a format leaves out.

    Raises:
        OSError: a file cannot be written.
    """
    first = frame.iloc[0]
    (output / "dreamerv3").mkdir(parents=True, exist_ok=True)
    written = []

    matrices = make_matrices(frame, games)
    left_out = [f"rliable: {line}" for line in matrices.left_out]
    if matrices.raw:
        for kind, scores in (("raw", matrices.raw), ("normalised", matrices.normalised)):
            path = output / f"rliable_{first.family}_{kind}.npz"
            with files.replacing(path) as partial:
                np.savez(partial, **{arm: own.to_numpy() for arm, own in scores.items()})
            written.append(path)
        conditions = first[frame.columns.difference([*COLUMNS], sort=False)].dropna()
        description = {
            "games": list(games),
            "seeds": {arm: own.index.tolist() for arm, own in matrices.raw.items()},
            "conditions": json.loads(conditions.to_json()),
        }
        path = output / f"rliable_{first.family}.json"
        files.write_json_atomically(path, description)
        written.append(path)

    data, lines = make_marl_eval(frame, games)
    left_out += [f"marl-eval: {line}" for line in lines]
    if data:
        path = output / f"marl_eval_{first.family}.json"
        files.write_json_atomically(path, data)
        written.append(path)

    of_names: dict[str, list[dict[str, Any]]] = {}
    for curve in make_curves(frame):
        name = re.sub(r"[^\w.+]+", "_", curve["method"]).strip("_")
        of_names.setdefault(name, []).append(curve)
    for name, curves in of_names.items():
        path = output / "dreamerv3" / f"{first.family}-{name}.json.gz"
        with files.replacing(path) as partial:
            # Without a time, equal runs give equal files.
            partial.write_bytes(gzip.compress(json.dumps(curves).encode(), mtime=0))
        written.append(path)
    return written, left_out


def _marl_eval_run(
    evaluations: Sequence[dict[str, Any]], returns: Sequence[float]
) -> dict[str, Any]:
    steps = {
        f"step_{number}": {
            "step_count": evaluation["env_steps"],
            "return": list(evaluation["returns"]),
        }
        for number, evaluation in enumerate(evaluations)
    }
    return {**steps, "absolute_metrics": {"return": list(returns)}}


def _snake(game: str) -> str:
    """`RoadRunner` -> `road_runner`; tasks of DMControl are in this form."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", game).lower()


def _names(values: Sequence[Any]) -> str:
    """The first three of them, and how many more."""
    more = len(values) - 3
    return ", ".join(map(str, values[:3])) + (f" and {more} more" if more > 0 else "")
