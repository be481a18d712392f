"""Plans the fleets that train the unfinished runs of a sweep."""

import pathlib
import shutil
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, TypeVar

from experiments.sweeps import collection
from experiments.sweeps.spec import Fleet, Spec, SweepError, Unit
from rcrl_jax import files

_RECORD = "fleet.json"

Name = TypeVar("Name", str, int)


def plan(spec: Spec, directory: pathlib.Path, max_runs: int) -> list[Fleet]:
    """The fleets that train all runs that are not finished, in the order in which they start.

    A fleet that was begun goes on as it was, because its checkpoints belong to all of its runs:
    also to those that the sweep no longer has. The other runs are grouped anew.

    Args:
        spec: the sweep.
        directory: holds the work directories of its fleets.
        max_runs: the most runs of a new fleet.

    Raises:
        SweepError: the results or a work directory hold runs of another algorithm number or of
            another configuration, or the record of a fleet is damaged.
    """
    collection.check_algorithm(spec)
    missing = [unit for unit in spec.units if not collection.is_finished(spec, unit)]
    fleets = []
    for fleet in _recorded(spec, directory):
        begun = _manifests(directory, fleet)
        if begun and not set(missing).isdisjoint(fleet.units):
            for unit, path in begun.items():
                collection.check_run(spec, unit, path)
            fleets.append(fleet)
            missing = [unit for unit in missing if unit not in fleet.units]
    fleets += group(spec, missing, max_runs)
    place = {unit: index for index, unit in enumerate(spec.units)}
    return sorted(fleets, key=lambda fleet: min(place[u] for u in fleet.units if u in place))


def group(spec: Spec, units: Sequence[Unit], max_runs: int) -> list[Fleet]:
    """Splits `units` into fleets: each unit is in one of them, and every fleet is a whole grid.

    Runs share a fleet only if they have the same arm, the same preset values and the same number
    of agent steps: tasks of DMControl differ in both. All games of one seed come before the next
    seed, so that a sweep that is stopped early has every game.
    """
    seeds_of: dict[Hashable, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for unit in units:
        kind = unit.arm, spec.make_config(unit), spec.agent_steps(unit.game)
        seeds_of[kind][unit.game].append(unit.seed)
    fleets = []
    for (arm, *_), seeds_by_game in seeds_of.items():
        games_of: dict[tuple[int, ...], list[str]] = defaultdict(list)
        for game, seeds in seeds_by_game.items():
            games_of[tuple(seeds)].append(game)
        for seeds, games in games_of.items():
            if len(games) <= max_runs:
                parts = _parts(seeds, max_runs // len(games))
                fleets += [Fleet(arm, tuple(games), part) for part in parts]
            else:
                parts = _parts(games, max_runs)
                fleets += [Fleet(arm, part, (seed,)) for seed in seeds for part in parts]
    return fleets


def _parts(names: Sequence[Name], most: int) -> list[tuple[Name, ...]]:
    """As few parts of at most `most` names as possible, of nearly equal size."""
    count = -(-len(names) // most)
    ends = [len(names) * index // count for index in range(count + 1)]
    return [tuple(names[first:end]) for first, end in zip(ends, ends[1:], strict=False)]


def begin(directory: pathlib.Path, fleet: Fleet) -> pathlib.Path:
    """Returns the work directory of a fleet that is about to start; records its runs there.

    Raises:
        OSError: the directory cannot be written.
    """
    workdir = directory / fleet.name
    workdir.mkdir(parents=True, exist_ok=True)
    record = {"arm": fleet.arm.name, "games": fleet.games, "seeds": fleet.seeds}
    files.write_json_atomically(workdir / _RECORD, record)
    return workdir


def tidy(spec: Spec, directory: pathlib.Path) -> None:
    """Deletes what a killed sweep left: work of finished runs, and of fleets that never began.

    Raises:
        SweepError: the results hold another run in a unit's place.
        OSError: a file cannot be deleted.
    """
    for path in directory.glob(f"{collection.TRASH}*"):
        shutil.rmtree(path)
    for fleet in tuple(_recorded(spec, directory)):
        finished = (collection.is_finished(spec, unit) for unit in fleet.units)
        if not _manifests(directory, fleet) or all(finished):
            collection.delete(directory / fleet.name)


def _manifests(directory: pathlib.Path, fleet: Fleet) -> dict[Unit, pathlib.Path]:
    """Those that a fleet has written, which it does as soon as it has begun."""
    paths = {u: collection.work_paths(directory, fleet, u).manifest for u in fleet.units}
    return {unit: path for unit, path in paths.items() if path.exists()}


def _recorded(spec: Spec, directory: pathlib.Path) -> Iterator[Fleet]:
    """Yields the fleets of the sweep's arms that have a work directory."""
    arms = {unit.arm.name: unit.arm for unit in spec.units}

    def fleet_of(record: dict[str, Any]) -> Fleet | None:
        if record["arm"] not in arms:
            return None
        fleet = Fleet(arms[record["arm"]], tuple(record["games"]), tuple(record["seeds"]))
        if fleet.name != path.parent.name:
            raise ValueError("another name than that of its directory")
        return fleet

    for path in sorted(directory.glob(f"[!.]*/{_RECORD}")):
        try:
            fleet = files.read_json(path, fleet_of)
        except (OSError, files.Damaged):
            raise SweepError(
                f"{path} is not the record of a fleet; move {path.parent} away"
            ) from None
        if fleet is not None:
            yield fleet
