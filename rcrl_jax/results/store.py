"""Reads runs: one loader for everything below `results/` and for any work directory.

    reading = store.read_runs("results", "runs/rcrl-Pong-0")
    for line in reading.problems:            # one line for each run that is left out
        print(line, file=sys.stderr)
    for run in reading.runs:                 # one record a run
        print(run.arm, run.game, run.seed, run.score)

A run is a directory with `manifest.json`, `scores.json` once it is finished, and
`evaluations.jsonl`. It lies at any depth; the usual place is `<preset>/<game>/seed_<n>`. Every file
is checked against the others (`runs.read_run`). `metrics.jsonl` is large and is not read here:
`records.read_records(run.directory / "metrics.jsonl")` reads it.

Runs of different conditions, for example of two algorithm numbers, come back together.
`pools.of_one_protocol` separates them, before their scores become one number.
"""

import os
import pathlib
import re
from collections.abc import Sequence
from typing import NamedTuple

from rcrl_jax import reference
from rcrl_jax.results import arms, pools, runs
from rcrl_jax.results.runs import Run

_FILES = {"manifest.json", "scores.json", "diverged.json", "evaluations.jsonl"}
_NO_RUNS_BELOW = {"checkpoints", "tensorboard", "diverged"}
_SEED = re.compile(r"seed_\d+")


class Reading(NamedTuple):
    """What `read_runs` found.

    Attributes:
        runs: ordered by family, preset, arm, game (as in the paper) and seed.
        problems: one line for each run or directory that is left out, with what to do.
    """

    runs: tuple[Run, ...]
    problems: tuple[str, ...]


def read_runs(*roots: str | os.PathLike, unfinished: bool = False) -> Reading:
    """Reads every run below `roots`; leaves out damaged, unfinished and duplicate ones.

    Of runs with the same conditions, arm, game and seed, one counts if all have the same result,
    and none if the results differ.

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
            run = runs.read_run(directory)
        except ValueError as error:
            problems.append(str(error))
            continue
        if run.score is None and not unfinished:
            last = run.evaluations[-1].agent_steps if run.evaluations else 0
            problems.append(
                f"{directory} is not finished, its last evaluation is at agent step {last} of "
                f"{run.agent_steps}; repeat its command to resume it"
            )
            continue
        found.append(run)
    kept = sorted(_without_duplicates(found, problems), key=_order)
    return Reading(tuple(kept), tuple(map(arms.one_line, problems)))


def _find(roots: Sequence[pathlib.Path], problems: list[str]) -> list[pathlib.Path]:
    """The directories that hold a file of a run, or are named like a run's; in order of names.

    Follows links, and enters every directory once.
    """
    for root in roots:
        if not root.is_dir():
            raise ValueError(f"there is no directory {root}")
    found, seen = [], set()
    pending = list(reversed(roots))  # a stack: trees can be deeper than Python's recursion
    links: list[pathlib.Path] = []
    while pending or links:
        # Links last, so that a run is read by its own path and not by a link to it.
        is_link = not pending
        directory = links.pop(0) if is_link else pending.pop()
        try:
            status = directory.stat()
            if (status.st_dev, status.st_ino) in seen:
                if is_link:
                    problems.append(f"{directory} links to a directory that is read already")
                continue
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(directory) as entries:
                entries = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            problems.append(
                f"{directory} cannot be read: {error.strerror}; change its rights or move it away"
            )
            continue
        below = [entry for entry in entries if _may_hold_runs(entry, problems)]
        links += [pathlib.Path(entry.path) for entry in below if entry.is_symlink()]
        pending += [pathlib.Path(entry.path) for entry in reversed(below) if not entry.is_symlink()]
        if _SEED.fullmatch(directory.name) or any(entry.name in _FILES for entry in entries):
            found.append(directory)
    return found


def _may_hold_runs(entry: os.DirEntry, problems: list[str]) -> bool:
    # Hidden directories are copies that a campaign has begun.
    if entry.name in _NO_RUNS_BELOW or entry.name.startswith("."):
        return False
    try:
        return entry.is_dir()
    except OSError as error:
        problems.append(f"{entry.path} cannot be read: {error.strerror}; remove it")
        return False


def _without_duplicates(found: Sequence[Run], problems: list[str]) -> list[Run]:
    """The runs that no other one contradicts; of copies, the first."""
    same: dict[tuple, list[Run]] = {}
    for run in found:
        key = (pools.conditions_key(run), run.arm, run.game, run.seed)
        same.setdefault(key, []).append(run)
    kept = []
    for copies in same.values():
        # A finished run counts before the same run that is still under way.
        copies.sort(key=lambda run: run.score is None)
        first, others = copies[0], copies[1:]
        differing = [
            run for run in others if run.score is not None and run.returns != first.returns
        ]
        if differing:
            places = " and ".join(str(run.directory) for run in (first, *differing))
            problems.append(
                f"{places} hold the same run ({first.arm}, {first.game}, seed {first.seed}) with "
                "different results; none of them counts until only one is left"
            )
            continue
        kept.append(first)
        problems += [
            f"{run.directory} holds the same run as {first.directory}, which counts; remove one"
            for run in others
        ]
    return kept


def _order(run: Run) -> tuple:
    games = reference.games() if run.family == "atari" else reference.tasks()
    presets = list(arms.presets_of(run.game))
    # Presets of today before arms with changed fields.
    rank = presets.index(run.arm) if run.arm in presets else len(presets)
    place = (rank, run.arm, games.index(run.game), run.seed)
    return (run.family, *place, str(run.directory))
