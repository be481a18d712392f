"""Reads runs: one loader for everything below `results/` and for any work directory.

    frame, problems = runs.read("results", "runs/rcrl-Pong-0")
    for line in problems:                    # one line for each run that is left out
        print(line, file=sys.stderr)
    frame.groupby(["pool", "arm", "game"]).score.mean()

A run is a directory with `manifest.json`, `scores.json` once it is finished, `evaluations.jsonl`
and `metrics.jsonl` (or its compressed form). It lies at any depth; the usual place is
`<preset>/<game>/seed_<n>`. The files are checked against each other (`records.read_result`), and
runs against each other: equal runs count once, and of runs that contradict each other, or two seeds
with the same metrics, none counts.
"""

import collections
import functools
import os
import pathlib
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from rcrl_jax import reference, words
from rcrl_jax.config import presets
from rcrl_jax.envs import minatar
from rcrl_jax.runs import records
from rcrl_jax.tables import arms, run_files

COLUMNS = (
    "directory", "family", "preset", "arm", "settings", "game", "seed", "agent_steps", "score",
    "returns", "evaluations", "diverged", "metrics", "commit", "manifest", "pool",
)  # fmt: skip
"""Columns of the data frame; every other column is a condition."""

_FILES = {"manifest.json", "scores.json", "diverged.json", "evaluations.jsonl"}
_NO_RUNS_BELOW = {"checkpoints", "tensorboard", "diverged"}
_SEED = re.compile(r"seed_\d+")
_MEASURES = ("unseen_", "cosine_", "segment_length_")
_LARGEST = 1e6
"""Larger measures are dropped as damaged."""


class Reading(NamedTuple):
    """What `read` found.

    Attributes:
        frame: one row per run, ordered by family, preset, arm, game (as in the paper) and seed.
            Columns are those of `run_files.read_run`, the run's conditions by name
            (`arms.conditions_of`), and `pool`: runs with equal conditions have one number.
        problems: one line for each run or directory that is left out, with what to do.
    """

    frame: pd.DataFrame
    problems: tuple[str, ...]


def read(*roots: str | os.PathLike, unfinished: bool = False) -> Reading:
    """Reads every run below `roots`; leaves out damaged, unfinished and contradicting ones.

    Args:
        roots: directories; a run that lies below two of them is read once.
        unfinished: whether runs without a result are read as well, with what they have so far.

    Raises:
        ValueError: a root is no directory.
    """
    problems: list[str] = []
    found = []
    for directory in _find([pathlib.Path(root) for root in roots], problems):
        try:
            run = run_files.read_run(directory)
        except ValueError as error:
            problems.append(str(error))
            continue
        if run["score"] is None and not unfinished:
            last = run["evaluations"][-1]["agent_steps"] if run["evaluations"] else 0
            problems.append(
                f"{directory} is not finished, its last evaluation is at agent step {last} of "
                f"{run['agent_steps']}; repeat its command where its checkpoints are"
            )
            continue
        found.append(run)
    _name_arms(found, problems)
    frame = _frame(found)
    frame = _without_contradictions(frame, problems)
    return Reading(frame.reset_index(drop=True), tuple(map(words.one_line, problems)))


def evaluations(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per evaluation: its numbers, and its run's index (`run`), arm, game and seed.

    Runs without evaluations have none. Columns that only some evaluations have are NaN elsewhere.
    """
    rows = [
        {"run": run, "arm": arm, "game": game, "seed": seed, **evaluation}
        for run, arm, game, seed, own in zip(
            frame.index, frame.arm, frame.game, frame.seed, frame.evaluations, strict=True
        )
        for evaluation in own
    ]
    columns = ["run", "arm", "game", "seed", "agent_steps", "env_steps", "score", "returns"]
    return pd.DataFrame(rows) if rows else pd.DataFrame(columns=columns)


def scores(frame: pd.DataFrame) -> pd.DataFrame:
    """The final scores of finished runs: `arm, game, seed, agent_steps, score`, one row per run."""
    finished = frame[frame.score.notna()]
    return finished[["arm", "game", "seed", "agent_steps", "score"]].reset_index(drop=True)


def matrices(frame: pd.DataFrame) -> dict[str, np.ndarray]:
    """The final scores of each arm `[runs, games]`, as the library rliable takes them.

    Games are those that all arms have, in the order of `game_order`; a row is a seed that has all
    of them.

    Raises:
        ValueError: an arm has two runs of one game and seed.
    """
    arms_games = frame.groupby("arm", sort=False).game.agg(set)
    games = sorted(set.intersection(*arms_games), key=game_order) if len(arms_games) else []
    found = {}
    for arm, own in frame.groupby("arm", sort=False):
        by_seed = own.pivot(index="seed", columns="game", values="score").reindex(columns=games)
        found[arm] = by_seed.dropna().to_numpy()
    return found


def read_measures(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """What runs measured beside their scores: `run, arm, agent_steps` and one column per measure.

    Their evaluations count, and their `metrics.jsonl` if there is one.

    Returns:
        The measures, and one line for each file that is damaged.
    """
    rows, problems = [], []
    for run in frame.itertuples():
        path, lines = run.directory / "metrics.jsonl", []
        try:
            lines = records.read_records(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            problems.append(f"{path} cannot be read: {error.strerror}; change its rights")
        except ValueError as error:
            problems.append(f"{error}; the run counts without its measures; restore the file")
        for line in [*lines, *run.evaluations]:
            step = line.get("agent_steps")
            values = {
                name: float(value)
                for name, value in line.items()
                # JSON can hold infinities, and integers beyond every float.
                if name.startswith(_MEASURES)
                and type(value) in (int, float)
                and abs(value) < _LARGEST
            }
            if values and type(step) is int and 0 <= step <= run.agent_steps:
                rows.append({"run": run.Index, "arm": run.arm, "agent_steps": step} | values)
    return pd.DataFrame(rows, columns=None if rows else ["run", "arm", "agent_steps"]), problems


def at_common_steps(points: pd.DataFrame, step: str, value: str) -> pd.DataFrame:
    """Values `[step, run]` at the steps that all runs have.

    Args:
        points: rows of several runs with columns `run`, `step` and `value`.
        step: name of the column that becomes the index, ascending.
        value: name of the column of values; a run has one at each of its steps.
    """
    return points.pivot(index=step, columns="run", values=value).dropna()


def _name_arms(found: Sequence[dict[str, Any]], problems: list[str]) -> None:
    """Calls runs by the name that they keep if it stands for one agent, else by their settings."""
    of_name = collections.defaultdict(list)
    for run in found:
        of_name[run["arm"]].append(run)
    for name, own in of_name.items():
        settings = dict.fromkeys(run["settings"] for run in own)
        keeps = name is not None and presets.is_arm_name(name)
        if keeps and len(settings) > 1:
            keeps = arms.are_one_agent([run["manifest"] for run in own])
        if not keeps and name is not None:
            which = " and ".join(settings)
            problems.append(f"{name!r} names {which}: these runs are called by their settings")
        for run in own:
            run["arm"] = name if keeps else run["settings"]


def _frame(found: Sequence[dict[str, Any]]) -> pd.DataFrame:
    rows = [
        {name: value for name, value in run.items() if name != "conditions"} | run["conditions"]
        for run in sorted(found, key=_order)
    ]
    # Conditions can be anything; as objects, integers stay integers where another run has none.
    columns = None if rows else [*COLUMNS[:-1], "algorithm", "env_steps"]
    frame = pd.DataFrame(rows, columns=columns, dtype=object)
    types = {"seed": int, "agent_steps": int, "env_steps": int, "score": float, "diverged": bool}
    frame = frame.astype(types)
    keys = ["family", *frame.columns.difference(COLUMNS, sort=False)]
    return frame.assign(pool=frame.groupby(keys, dropna=False, sort=False).ngroup())


def _order(run: dict[str, Any]) -> tuple:
    known = list(arms.presets_of(run["game"]))
    arm = run["arm"]
    # Presets of today before arms with changed fields.
    rank = known.index(arm) if arm in known else len(known)
    return (run["family"], rank, arm, game_order(run["game"]), run["seed"], str(run["directory"]))


@functools.cache
def game_order(game: str) -> tuple[int, str]:
    """What sorts games and tasks: the paper's order, then games of one's own by name."""
    known = (*reference.games(), *reference.tasks(), *minatar.MINATAR_GAMES)
    return known.index(game) if game in known else len(known), game


def _without_contradictions(frame: pd.DataFrame, problems: list[str]) -> pd.DataFrame:
    """The runs that no other one contradicts; of copies, the first."""
    dropped = []
    for (_, arm, game, seed), copies in frame.groupby(["pool", "arm", "game", "seed"], sort=False):
        # A finished run counts before the same run that is still under way.
        copies = copies.sort_values("score", key=pd.isna, kind="stable")
        first, others = copies.iloc[0], copies.iloc[1:]
        # For diverged runs both are None, which pandas would call different.
        is_other = [returns != first.returns for returns in others.returns]
        differing = others[others.score.notna() & np.array(is_other, bool)]
        if len(differing):
            problems.append(
                f"{_places([first.directory, *differing.directory])} hold the same run ({arm}, "
                f"{game}, seed {seed}) with different results; none of them counts until only one "
                "is left"
            )
            dropped += [*copies.index]
            continue
        problems += [
            f"{other} holds the same run as {first.directory}, which counts; remove one"
            for other in others.directory
        ]
        dropped += [*others.index]
    frame = frame.drop(index=dropped)
    of_metrics = collections.defaultdict(list)
    for run, digest in frame.metrics.dropna().items():
        of_metrics[digest].append(run)
    for same in of_metrics.values():
        if len(same) > 1:
            problems.append(
                f"{_places(frame.directory[same])} have the same metrics, so they are one "
                "run under several names; none of them counts until only one is left"
            )
            frame = frame.drop(index=same)
    return frame


def _places(directories: Sequence[pathlib.Path]) -> str:
    return " and ".join(map(str, directories))


def _find(roots: Sequence[pathlib.Path], problems: list[str]) -> list[pathlib.Path]:
    """The directories that hold a file of a run, or are named like a run's; in order of names.

    A directory below two roots counts once.
    """

    def report(error: OSError) -> None:
        problems.append(
            f"{error.filename} cannot be read: {error.strerror}; change its rights or move it away"
        )

    found: dict[pathlib.Path, pathlib.Path] = {}
    for root in roots:
        if not root.is_dir():
            raise ValueError(f"there is no directory {root}")
        for place, below, names in os.walk(root, onerror=report):
            # Hidden directories are copies that a campaign has begun.
            below[:] = sorted(
                name for name in below if name not in _NO_RUNS_BELOW and not name.startswith(".")
            )
            links = filter(os.path.islink, (os.path.join(place, name) for name in below))
            problems += [f"{link} is a link and is not followed" for link in links]
            if "evaluation.json" in names and _FILES.isdisjoint(names):
                continue  # what experiments.evaluate has written
            if _SEED.fullmatch(os.path.basename(place)) or not _FILES.isdisjoint(names):
                directory = pathlib.Path(place)
                found.setdefault(directory.resolve(), directory)
    return list(found.values())
