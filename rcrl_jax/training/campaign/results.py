"""The files of a campaign's runs: of unfinished runs in its directory, of others in the results."""

import json
import os
import pathlib
import shutil
from typing import Any

from rcrl_jax.training import manifest
from rcrl_jax.training.campaign.spec import CampaignError, Spec, Unit
from rcrl_jax.training.run_paths import RunPaths


def is_finished(spec: Spec, unit: Unit) -> bool:
    """Whether the results hold the unit's finished run.

    Raises:
        CampaignError: they hold another run in its place.
    """
    paths = spec.result_paths(unit)
    if not paths.directory.exists():
        return False
    _check_finished(spec, unit, paths)
    return True


def check_same_runs(spec: Spec, directory: pathlib.Path) -> None:
    """Checks that all runs so far, finished or not, belong to the spec and to this code.

    Args:
        spec: the campaign.
        directory: holds the work directories of its units.

    Raises:
        CampaignError: a run below the results is of another algorithm number, a unit's place is
            taken by another run, or a work directory was begun with another configuration.
    """
    for path in sorted(spec.results.rglob("manifest.json")):
        if not any(part.startswith(".partial.") for part in path.parts):
            _check_algorithm(path)
    for unit in spec.units:
        is_finished(spec, unit)
        begun = work_paths(directory, unit).manifest
        if begun.exists():
            _check_algorithm(begun)
            _check_run(spec, unit, begun)


def work_paths(directory: pathlib.Path, unit: Unit) -> RunPaths:
    """The files of a unit that is not finished, below the campaign's `directory`."""
    return RunPaths(directory / unit.name, unit.arm.preset, unit.game, unit.seed)


def collect(spec: Spec, unit: Unit, directory: pathlib.Path) -> None:
    """Copies a finished run's files to the results, then deletes its work directory.

    If the process is killed, the results hold all of the run's files or none, and the work
    directory stays until they hold all. The same call then does the rest.

    Args:
        spec: the campaign.
        unit: which run.
        directory: holds the work directories of the campaign's units.

    Raises:
        CampaignError: the run is not the unit's, or not finished.
        OSError: a file is missing or cannot be written.
    """
    work = work_paths(directory, unit)
    if not is_finished(spec, unit):
        _check_finished(spec, unit, work)
        target = spec.result_paths(unit).directory
        partial = target.with_name(f".partial.{target.name}")
        shutil.rmtree(partial, ignore_errors=True)  # left by a killed process
        partial.mkdir(parents=True)
        for path in (work.scores, work.evaluations, work.metrics, work.manifest, work.curve):
            shutil.copyfile(path, partial / path.name)
            _write_through(partial / path.name)
        os.rename(partial, target)
        # The deletion below must not reach the disk before the rename does.
        _write_through(target.parent)
    if work.workdir.exists():
        shutil.rmtree(work.workdir)


def _write_through(path: pathlib.Path) -> None:
    """Waits until a file or a directory's entries are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check_algorithm(path: pathlib.Path) -> None:
    number = _read_manifest(path).get("algorithm", "none")
    if number != manifest.ALGORITHM:
        raise CampaignError(
            f"{path.parent} has algorithm number {number}, this code {manifest.ALGORITHM}: "
            "the two are not mixed; move that run away or use the code that it began with"
        )


def _check_finished(spec: Spec, unit: Unit, paths: RunPaths) -> None:
    _check_run(spec, unit, paths.manifest)
    try:
        episodes = len(json.loads(paths.scores.read_text(encoding="utf-8"))["returns"])
    except (OSError, ValueError, TypeError, KeyError):
        raise CampaignError(f"{paths.scores} does not hold the scores of a finished run") from None
    if episodes != spec.eval_episodes:
        raise CampaignError(
            f"{paths.scores} holds {episodes} final episodes, the spec says {spec.eval_episodes}"
        )


def _check_run(spec: Spec, unit: Unit, path: pathlib.Path) -> None:
    found = _read_manifest(path)
    wanted = manifest.describe_run(
        unit.arm.preset,
        spec.make_config(unit),
        unit.game,
        unit.seed,
        spec.agent_steps(unit),
        found.get("backend"),  # not in the spec: the training program chooses it
    )
    differences = manifest.describe_differences(found, wanted)
    if differences:
        raise CampaignError(f"{path.parent} holds another run than {unit.name}: {differences}")


def _read_manifest(path: pathlib.Path) -> dict[str, Any]:
    try:
        run = json.loads(path.read_text(encoding="utf-8"))["run"]
    except (OSError, ValueError, TypeError, KeyError):
        run = None
    if not isinstance(run, dict):
        raise CampaignError(f"{path} is not a manifest of this program")
    return run
