"""The files of a sweep's runs: of unfinished fleets in its directory, of finished runs in results.

Plans the fleets that train what is missing, checks what is there, and collects finished runs.
"""

import contextlib
import os
import pathlib
import shutil
import time
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from typing import TypeVar

from rcrl_jax import files
from rcrl_jax.programs.sweeps.spec import FleetPlan, Spec, SweepError, Unit
from rcrl_jax.runs import manifest, records
from rcrl_jax.runs.paths import RunPaths

_TRASH = ".deleted."  # begins the name of a work directory that is being deleted
_PARTIAL = ".partial."  # begins the name of results that are being copied
_LOCK_WAIT_S, _LOCK_POLL_S = 60.0, 0.05  # a copy takes less than a second
_ELSEWHERE = "move it away, or choose another --results"

Name = TypeVar("Name", str, int)


def paths_of(directory: pathlib.Path, fleet: FleetPlan, unit: Unit) -> RunPaths:
    """The files of one run of a fleet that is not finished, below the sweep's `directory`."""
    return RunPaths(directory / fleet.name, unit.arm.preset, unit.game, unit.seed)


def plan(spec: Spec, directory: pathlib.Path, max_runs: int) -> list[FleetPlan]:
    """The fleets that train all runs that are not finished, in the order in which they start.

    A fleet that was begun goes on as it was, because its checkpoints belong to all of its runs:
    also to those that the sweep no longer has. The other runs are grouped anew.

    Args:
        spec: the sweep.
        directory: holds the work directories of its fleets.
        max_runs: the most runs of a new fleet.

    Raises:
        SweepError: the results or a work directory hold runs of another algorithm number or of
            another configuration, or a manifest is damaged.
    """
    _check_algorithm(spec)
    missing = [unit for unit in spec.units if not is_finished(spec, unit)]
    fleets = []
    for fleet in _begun(spec, directory):
        if not set(missing).isdisjoint(fleet.units):
            for unit in fleet.units:
                path = paths_of(directory, fleet, unit).manifest
                if path.exists():
                    _check_run(spec, unit, path)
            fleets.append(fleet)
            missing = [unit for unit in missing if unit not in fleet.units]
    fleets += group(spec, missing, max_runs)
    place = {unit: index for index, unit in enumerate(spec.units)}
    return sorted(fleets, key=lambda fleet: min(place[u] for u in fleet.units if u in place))


def _begun(spec: Spec, directory: pathlib.Path) -> Iterator[FleetPlan]:
    """Yields the fleets of the sweep's arms that have written a manifest, which lists their runs.

    Raises:
        SweepError: a manifest is damaged.
    """
    for workdir in sorted(directory.glob("[!.]*")):
        path = workdir
        try:
            path = next(iter(sorted(workdir.glob(manifest.ALL))), None)
            if path is None:
                continue
            runs = manifest.read(path)["launch"]["runs"]
            games, seeds = (tuple(dict.fromkeys(own)) for own in zip(*runs, strict=True))
        except (OSError, ValueError, TypeError, KeyError):
            if not workdir.exists():  # another sweep has collected its runs meanwhile
                continue
            raise SweepError(
                f"{path} does not list the runs of a fleet; move {workdir} away"
            ) from None
        for arm in {unit.arm for unit in spec.units}:
            fleet = FleetPlan(arm, games, seeds)
            if fleet.name == workdir.name:
                yield fleet


def group(spec: Spec, units: Sequence[Unit], max_runs: int) -> list[FleetPlan]:
    """Splits `units` into fleets: each unit is in one of them, and every fleet is a whole grid.

    No fleet has more than `max_runs` runs, or more games than the spec's `games_per_fleet`.
    Runs share a fleet only if they have the same arm, the same preset values and the same number
    of agent steps: tasks of DMControl differ in both. All games of one seed come before the next
    seed, so that a sweep that is stopped early has every game.
    """
    seeds_of: dict[Hashable, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for unit in units:
        kind = unit.arm, spec.make_config(unit), spec.agent_steps(unit)
        seeds_of[kind][unit.game].append(unit.seed)
    known = len(spec.experiment.environment.games)  # 0: games of one's own, one in a fleet
    fleets, most_games = [], (spec.games_per_fleet or known) if known else 1
    for (arm, *_), seeds_by_game in seeds_of.items():
        games_of: dict[tuple[int, ...], list[str]] = defaultdict(list)
        for game, seeds in seeds_by_game.items():
            games_of[tuple(seeds)].append(game)
        for seeds, games in games_of.items():
            fleets += [
                FleetPlan(arm, own_games, own_seeds)
                for own_seeds in _parts(seeds, max(max_runs // min(len(games), most_games), 1))
                for own_games in _parts(games, min(max_runs, most_games))
            ]
    return fleets


def _parts(names: Sequence[Name], most: int) -> list[tuple[Name, ...]]:
    """As few parts of at most `most` names as possible, of nearly equal size."""
    count = -(-len(names) // most)
    ends = [len(names) * index // count for index in range(count + 1)]
    return [tuple(names[first:end]) for first, end in zip(ends, ends[1:], strict=False)]


def is_finished(spec: Spec, unit: Unit) -> bool:
    """Whether the results hold the unit's finished run, or say that it has diverged for good.

    Raises:
        SweepError: they hold another run in its place, or files that do not belong together.
    """
    paths = spec.result_paths(unit)
    if not paths.directory.exists():
        return False
    _check_finished(spec, unit, paths)
    return True


def collect(spec: Spec, fleet: FleetPlan, directory: pathlib.Path) -> None:
    """Copies the files of a fleet's finished runs to the results, then deletes its work directory.

    If the process is killed, the results hold all of a run's files or none, and the work directory
    stays until they hold all runs. The same call then does the rest. Other sweeps may collect the
    same runs to the same results at the same time.

    Raises:
        SweepError: a run is not the fleet's, or not finished, or its copy is not there.
        InUse: another sweep has held the results' lock for a minute.
        Damaged: a file is not a regular one.
        OSError: a file is missing or cannot be written.
    """
    for unit in fleet.units:
        with _locked(spec.results):
            if not is_finished(spec, unit):
                work = paths_of(directory, fleet, unit)
                _check_finished(spec, unit, work)
                _copy(work, spec.result_paths(unit).directory, spec.results)
    for unit in fleet.units:  # nothing is deleted before all of it was read back
        if not is_finished(spec, unit):
            raise SweepError(f"{spec.result_paths(unit).directory} is gone, right after its copy")
    if (directory / fleet.name).exists():
        # All is in the results; what cannot be deleted now, the next `tidy` deletes.
        with contextlib.suppress(OSError):
            _delete(directory / fleet.name)


@contextlib.contextmanager
def _locked(results: pathlib.Path) -> Iterator[None]:
    """Locks the results while something is moved into them; waits for other sweeps.

    Raises:
        InUse: another sweep holds the lock for a minute; that sweep may be suspended.
    """
    deadline = time.monotonic() + _LOCK_WAIT_S
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(files.locked(results, "sweep", ".lock"))
                break
            except files.InUse:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_LOCK_POLL_S)
        yield


def _copy(work: RunPaths, target: pathlib.Path, results: pathlib.Path) -> None:
    """Copies the files of a finished run to a new directory below the results, and compares them.

    Raises:
        SweepError: a copy differs.
    """
    partial = target.with_name(f"{_PARTIAL}{target.name}")
    shutil.rmtree(partial, ignore_errors=True)  # left by a killed process
    partial.mkdir(parents=True)
    copied = {}
    for path in (
        work.scores, work.evaluations, work.metrics, work.manifest, work.curve, work.parameters
    ):  # fmt: skip
        copied[path.name] = files.read_bytes(path)
        (partial / path.name).write_bytes(copied[path.name])
        _write_through(partial / path.name)
    _write_through(partial)
    os.rename(partial, target)
    # The rename and the directories above it must reach the disk before a deletion does.
    for above in target.relative_to(results).parents:
        _write_through(results / above)
    for name, content in copied.items():
        if files.read_bytes(target / name) != content:
            raise SweepError(f"{target / name} is not what was copied there; {_ELSEWHERE}")


def tidy(spec: Spec, directory: pathlib.Path) -> None:
    """Deletes the work directories that a killed sweep left although their runs are finished.

    Raises:
        SweepError: the results or a work directory hold another run in a unit's place.
        OSError: a file cannot be deleted.
    """
    for path in directory.glob(f"{_TRASH}*"):
        shutil.rmtree(path, ignore_errors=True)
    for fleet in tuple(_begun(spec, directory)):
        # Another sweep of this name may have begun the fleet, and not finished it.
        own = [paths_of(directory, fleet, unit) for unit in fleet.units]
        has_scores = all(paths.scores.exists() for paths in own)
        if has_scores and all(is_finished(spec, unit) for unit in fleet.units):
            for unit, paths in zip(fleet.units, own, strict=True):
                _check_run(spec, unit, paths.manifest)
            _delete(directory / fleet.name)


def _delete(workdir: pathlib.Path) -> None:
    trash = workdir.with_name(f"{_TRASH}{workdir.name}")
    if trash.exists():
        shutil.rmtree(trash)
    os.rename(workdir, trash)  # half a work directory would look like a fleet that was begun
    shutil.rmtree(trash)


def _write_through(path: pathlib.Path) -> None:
    """Waits until a file or a directory's entries are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    with files.naming(path):
        os.fsync(descriptor)
    os.close(descriptor)


def _check_algorithm(spec: Spec) -> None:
    """Raises SweepError unless all runs below the results have this code's algorithm number."""
    for place, folders, names in os.walk(spec.results):  # another sweep may delete some meanwhile
        folders[:] = sorted(name for name in folders if not name.startswith(_PARTIAL))
        if "manifest.json" not in names:
            continue
        path = pathlib.Path(place, "manifest.json")
        run = _read_run(path)
        number, ours = run.get("algorithm", "none"), manifest.algorithm(run.get("preset"))
        if number != ours:
            raise SweepError(
                f"{path.parent} has algorithm number {number}, this code {ours}: "
                "the two are not mixed; move that run away or use the code that it began with"
            )


def _check_run(spec: Spec, unit: Unit, path: pathlib.Path) -> None:
    """Raises SweepError unless a manifest is that of the unit's run, begun with this code."""
    found = _read_run(path)
    wanted = manifest.describe_run(
        unit.arm.preset,
        spec.make_config(unit),
        unit.game,
        unit.seed,
        spec.agent_steps(unit),
        found.get("backend"),  # not in the spec: the training program chooses it
    )
    if differences := manifest.describe_other_run(found, wanted):
        raise SweepError(
            f"{path.parent} holds another run than {unit.name}: {differences}; {_ELSEWHERE}"
        )


def _check_finished(spec: Spec, unit: Unit, paths: RunPaths) -> None:
    _check_run(spec, unit, paths.manifest)
    try:
        scores = records.read_result(paths.directory)
    except FileNotFoundError:
        raise SweepError(
            f"{paths.directory} does not hold the scores of a finished run; {_ELSEWHERE}"
        ) from None
    except (OSError, files.Damaged) as error:
        raise SweepError(f"{error}; {_ELSEWHERE}") from None
    if scores is not None and (episodes := len(scores["returns"])) != spec.eval_episodes:
        raise SweepError(
            f"{paths.scores} holds {episodes} final episodes, the sweep asks for "
            f"{spec.eval_episodes}; {_ELSEWHERE}"
        )


def _read_run(path: pathlib.Path) -> dict:
    """The section `run` of a manifest."""
    try:
        return manifest.read(path)["run"]
    except (OSError, files.Damaged):
        raise SweepError(f"{path} is not a manifest of this program; {_ELSEWHERE}") from None
