"""The files of a sweep's runs: of unfinished runs in its directory, of others in the results."""

import os
import pathlib
import shutil

from experiments.sweeps.spec import Fleet, Spec, SweepError, Unit
from rcrl_jax import files
from rcrl_jax.runs import manifest, records
from rcrl_jax.runs.paths import RunPaths

TRASH = ".deleted."


def work_paths(directory: pathlib.Path, fleet: Fleet, unit: Unit) -> RunPaths:
    """The files of one run of a fleet that is not finished, below the sweep's `directory`."""
    return RunPaths(directory / fleet.name, unit.arm.preset, unit.game, unit.seed)


def is_finished(spec: Spec, unit: Unit) -> bool:
    """Whether the results hold the unit's finished run.

    Raises:
        SweepError: they hold another run in its place.
    """
    paths = spec.result_paths(unit)
    if not paths.directory.exists():
        return False
    _check_finished(spec, unit, paths)
    return True


def check_algorithm(spec: Spec) -> None:
    """Checks that every run below the results has this code's algorithm number.

    Raises:
        SweepError: one has another number, or no manifest of this program.
    """
    for path in sorted(spec.results.rglob("manifest.json")):
        if any(part.startswith(".partial.") for part in path.parts):
            continue
        number = _read_run(path).get("algorithm", "none")
        if number != manifest.ALGORITHM:
            raise SweepError(
                f"{path.parent} has algorithm number {number}, this code {manifest.ALGORITHM}: "
                "the two are not mixed; move that run away or use the code that it began with"
            )


def check_run(spec: Spec, unit: Unit, path: pathlib.Path) -> None:
    """Checks that a manifest is that of the unit's run, begun with this code.

    Raises:
        SweepError: it has another algorithm number or configuration.
    """
    found = _read_run(path)
    wanted = manifest.describe_run(
        unit.arm.preset,
        spec.make_config(unit),
        unit.game,
        unit.seed,
        spec.agent_steps(unit.game),
        found.get("backend"),  # not in the spec: the training program chooses it
    )
    if differences := manifest.describe_differences(found, wanted):
        raise SweepError(f"{path.parent} holds another run than {unit.name}: {differences}")


def collect(spec: Spec, fleet: Fleet, directory: pathlib.Path) -> None:
    """Copies the files of a fleet's finished runs to the results, then deletes its work directory.

    If the process is killed, the results hold all of a run's files or none, and the work directory
    stays until they hold all runs. The same call then does the rest.

    Args:
        spec: the sweep.
        fleet: whose runs.
        directory: holds the work directories of the sweep's fleets.

    Raises:
        SweepError: a run is not the fleet's, or not finished.
        OSError: a file is missing or cannot be written.
    """
    for unit in fleet.units:
        if is_finished(spec, unit):
            continue
        work = work_paths(directory, fleet, unit)
        _check_finished(spec, unit, work)
        target = spec.result_paths(unit).directory
        partial = target.with_name(f".partial.{target.name}")
        shutil.rmtree(partial, ignore_errors=True)  # left by a killed process
        partial.mkdir(parents=True)
        copied = [work.scores, work.evaluations, work.metrics, work.manifest, work.curve]
        if work.parameters.exists():  # large networks have none
            copied.append(work.parameters)
        for path in copied:
            shutil.copyfile(path, partial / path.name)
            _write_through(partial / path.name)
        os.rename(partial, target)
        # The deletion below must not reach the disk before the rename does.
        _write_through(target.parent)
    if (directory / fleet.name).exists():
        delete(directory / fleet.name)


def delete(workdir: pathlib.Path) -> None:
    """Deletes a work directory. If the process is killed, what is left is in one named `TRASH*`.

    Raises:
        OSError: a file cannot be deleted.
    """
    trash = workdir.with_name(f"{TRASH}{workdir.name}")
    if trash.exists():
        shutil.rmtree(trash)
    os.rename(workdir, trash)  # half a work directory would look like one that was begun
    shutil.rmtree(trash)


def _write_through(path: pathlib.Path) -> None:
    """Waits until a file or a directory's entries are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check_finished(spec: Spec, unit: Unit, paths: RunPaths) -> None:
    check_run(spec, unit, paths.manifest)
    try:
        episodes = len(records.read_scores(paths.scores)["returns"])
    except (OSError, files.Damaged):
        raise SweepError(f"{paths.scores} does not hold the scores of a finished run") from None
    if episodes != spec.eval_episodes:
        raise SweepError(
            f"{paths.scores} holds {episodes} final episodes, the sweep asks for "
            f"{spec.eval_episodes}"
        )


def _read_run(path: pathlib.Path) -> dict:
    """The section `run` of a manifest."""
    try:
        return manifest.read(path, required=("run",))["run"]
    except (OSError, files.Damaged):
        raise SweepError(f"{path} is not a manifest of this program") from None
