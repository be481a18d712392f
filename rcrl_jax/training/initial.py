"""Starts agents from the parameters of other runs: `init_from` of `rcrl_jax.train`."""

import hashlib
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rcrl_jax import files, types
from rcrl_jax.agents import agent
from rcrl_jax.config.presets import Config
from rcrl_jax.runs import checkpoints, manifest, parameters, workdir
from rcrl_jax.runs.paths import RunId
from rcrl_jax.runs.workdir import Kept

PARTS = ("all", "encoder")


class Source(NamedTuple):
    """Whose parameters the runs of a plan start from."""

    directory: pathlib.Path  # as `workdir.read` takes it
    part: str  # one of `PARTS`: all parameters of the agent, or those of its encoder


class Origin(NamedTuple):
    """Where in a source the parameters of each run lie."""

    kept: Kept
    rows: list[int]  # [R], places of the source's runs
    num_runs: int  # of the source


def find(source: Source, config: Config, runs: Sequence[RunId]) -> Origin:
    """Finds the newest agents of a source.

    If the source has one run, all runs start from it. Otherwise each run starts from the source's
    run with its seed, and with its game if the source has several games.

    Raises:
      Incompatible: there are none, or none for a run, or they are of another family.
    """
    place = f"init_from: {source.directory}"
    if not source.directory.is_dir():
        raise types.Incompatible(f"init_from: there is no directory {source.directory}")
    try:
        found = workdir.read(source.directory)
        kept = workdir.find_checkpoint(found, None)
    except (workdir.Unusable, OSError) as error:
        raise types.Incompatible(f"init_from: {error}") from None
    if found.config.family != config.family:
        raise types.Incompatible(
            f"{place} holds agents of the family {found.config.family}, not {config.family}"
        )
    if len(found.runs) == 1:
        return Origin(kept, [0] * len(runs), 1)
    one_game = len({run.game for run in found.runs}) == 1
    wanted = [RunId(found.runs[0].game if one_game else run.game, run.seed) for run in runs]
    for run in wanted:
        if run not in found.runs:
            raise types.Incompatible(f"{place} has no run of {run.game} with seed {run.seed}")
    return Origin(kept, [found.runs.index(run) for run in wanted], len(found.runs))


def read(
    source: Source, config: Config, runs: Sequence[RunId], like: types.Params
) -> dict[str, np.ndarray]:
    """The parameters that runs start from, by their paths, leading axis R.

    Args:
      source: whose they are.
      config: of the runs.
      runs: of the fleet.
      like: the fleet's agent parameters, or their shapes; the length of the leading axis is free.

    Raises:
      Incompatible: as in `find`; or the parameters have other shapes, or are not finite.
      MemoryError: there is too little memory for them.
    """
    kept, rows, num_runs = find(source, config, runs)
    try:
        there = checkpoints.read_agents(kept.path, num_runs)
    except (files.Damaged, OSError) as error:
        raise types.Incompatible(f"init_from: {error}") from None
    wanted = parameters.by_name(like)
    if source.part == "encoder":
        there, wanted = (
            {name: array for name, array in of.items() if agent.is_of_encoder(name)}
            for of in (there, wanted)
        )
        if not wanted:
            raise types.Incompatible(f"init_from: an agent of {config.family} has no encoder here")
    try:
        chosen = parameters.fit(there, rows, wanted)
    except ValueError as error:
        raise types.Incompatible(f"init_from: {source.directory}: {error}") from None
    if not all(np.isfinite(array).all() for array in chosen.values()):
        raise types.Incompatible(f"init_from: an agent in {kept.path} has diverged")
    return chosen


def describe(
    source: Source, initial: Mapping[str, np.ndarray] | None, row: int, path: pathlib.Path
) -> dict[str, Any]:
    """What a manifest says of a run's source.

    Args:
      source: whose parameters the run starts from.
      initial: as `read` returns it; None for a resumed run, whose source need not exist.
      row: of the run in `initial`.
      path: the run's manifest, which then says what it started from.
    """
    digest = None
    if initial is not None:
        digest = _digest({name: array[row] for name, array in initial.items()})
    elif path.exists():
        with files.reading(path):
            digest = manifest.read(path)["run"].get("init_from", {}).get("sha256")
    return {"source": str(source.directory), "part": source.part, "sha256": digest}


def _digest(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of arrays with their names, types and shapes."""
    sha = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        sha.update(f"{name} {array.dtype} {array.shape}\n".encode() + array.tobytes())
    return sha.hexdigest()
