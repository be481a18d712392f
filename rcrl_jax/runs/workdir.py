"""What a work directory holds: its runs, their configuration, their checkpoints. Writes nothing."""

import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from rcrl_jax import files, reference
from rcrl_jax.config import fields, presets
from rcrl_jax.config.presets import Config
from rcrl_jax.runs import checkpoints, manifest, records
from rcrl_jax.runs.paths import PARAMETERS, RunId, RunPaths

_NONE_YET = "{} has no checkpoint yet: training writes one at least every 10 minutes"


class Unusable(ValueError):
    """A directory does not hold what is needed; the message is one line and says what to do."""


class Trained(NamedTuple):
    """The fleet that a work directory belongs to, finished or not; or a run with its parameters.

    Attributes:
      runs: `[R]`, in their order in the checkpoints.
      trained_with: for the directory of one run, one run of each other game of its fleet, because
        the fleet's largest action set decides the shapes of parameters; else empty.
      manifests: `[R]`.
    """

    workdir: pathlib.Path
    preset: str
    config: Config
    runs: tuple[RunId, ...]
    trained_with: tuple[RunId, ...]
    total_steps: int
    final_episodes: int
    backend: str
    manifests: tuple[Mapping[str, Any], ...]


class Kept(NamedTuple):
    """Agents on the disk: a checkpoint, or a file of one run's final parameters."""

    path: pathlib.Path
    step: int

    @property
    def is_parameters(self) -> bool:
        """Whether it is the final parameters of one run."""
        return self.path.name == PARAMETERS


def read(workdir: pathlib.Path) -> Trained:
    """Reads the manifests of a work directory, or the manifest of a run with final parameters.

    Raises:
      Unusable: it is neither, or one that this version cannot read.
      OSError: a manifest cannot be read.
    """
    if not workdir.is_dir():
        raise Unusable(f"there is no directory {workdir}")
    try:
        with files.reading(f"a manifest in {workdir}", passing=(OSError, Unusable)):
            return _read(workdir)
    except files.Damaged as error:
        raise Unusable(str(error)) from error


def _read(workdir: pathlib.Path) -> Trained:
    found = {}
    alone = (workdir / PARAMETERS).is_file()
    for path in sorted(workdir.glob("manifest.json" if alone else manifest.ALL)):
        described = manifest.read(path)
        found[RunId(described["run"]["game"], described["run"]["seed"])] = described
    if not found:
        raise Unusable(f"{workdir} is no work directory: {_near(workdir)}")
    others: Iterable[str] = ()
    if alone:
        runs = tuple(found)
        recorded = [game for game, _ in found[runs[0]]["launch"]["runs"]]
        if not all(isinstance(game, str) for game in recorded):
            raise ValueError("launch.runs holds a game that is no text")
        if runs[0].game not in reference.tasks():  # where shapes are those of the suite
            others = dict.fromkeys(game for game in recorded if game != runs[0].game)
    else:
        _check_format(workdir, found)
        runs = _in_order(workdir, found)
    manifests = tuple(found[run] for run in runs)
    run = manifests[0]["run"]
    # What differs between runs; the last one while a resumption is being recorded.
    own = {"game": "", "seed": 0, "init_from": None, manifest.NEW_EPISODES: None}
    if any(m["run"] | own != run | own for m in manifests):
        raise Unusable(f"{workdir} holds runs of several experiments: move all but one away")
    final_episodes = manifests[0]["protocol"]["final_episodes"]
    if type(final_episodes) is not int or final_episodes < 1:
        raise ValueError(f"protocol.final_episodes is {final_episodes!r}")
    scores = RunPaths(workdir, run["preset"], *runs[0]).scores
    if alone:
        scores = workdir / scores.name
    if scores.exists():  # a finished run may have been scored again, with other episodes
        final_episodes = len(records.read_scores(scores)["returns"])
    return Trained(
        workdir,
        run["preset"],
        read_config(workdir, run),
        runs,
        tuple(RunId(game, runs[0].seed) for game in others),  # the seed means nothing
        run["steps"],
        final_episodes,
        run["backend"],
        manifests,
    )


def find_checkpoint(trained: Trained, step: int | None) -> Kept:
    """A checkpoint of a work directory, the state of a fleet that diverged, or final parameters.

    Args:
      trained: what the directory belongs to.
      step: agent steps of the checkpoint; None means the newest, and the state of a fleet that
        diverged only if there is no other.

    Raises:
      Unusable: there is none; the message lists the others.
    """
    workdir = trained.workdir
    regular = RunPaths(workdir, trained.preset, *trained.runs[0]).checkpoints
    kept = {n: Kept(checkpoints.path_of(place, n), n) for place in (workdir / "diverged", regular)
            for n in checkpoints.kept_steps(place)}  # fmt: skip
    if (workdir / PARAMETERS).is_file():
        kept[trained.total_steps] = Kept(workdir / PARAMETERS, trained.total_steps)
    if not kept:
        if not any(workdir.glob("*/*/seed_*/scores.json")):
            raise Unusable(_NONE_YET.format(workdir))
        for run in trained.runs:
            agent = RunPaths(workdir, trained.preset, *run).parameters
            if agent.is_file():
                raise Unusable(
                    f"{workdir} has no checkpoints: to play one run, name {agent.parent}"
                )
        command = trained.manifests[0]["launch"]["command"]
        raise Unusable(
            f"{workdir} holds results without checkpoints, so there is no agent to play: train "
            f"again (the command was: {command})"
        )
    if step is None:
        return max(kept.values(), key=lambda one: (one.path.parent == regular, one.step))
    if step not in kept:
        diverged = workdir / "diverged"
        those = ", ".join(
            f"{n} (diverged)" if kept[n].path.parent == diverged else f"{n}" for n in sorted(kept)
        )
        raise Unusable(f"--step: {workdir} has no checkpoint {step}; there are: {those}")
    return kept[step]


def _check_format(workdir: pathlib.Path, found: Mapping[RunId, Mapping[str, Any]]) -> None:
    """Raises Unusable unless the work directory is of this format."""
    described = next(iter(found.values()))
    written = described["run"].get("format")
    if written != manifest.FORMAT:
        raise Unusable(
            f"{workdir} was written in format {written} by another version of this program, which "
            f"reads format {manifest.FORMAT}: train again"
        )


def _in_order(workdir: pathlib.Path, found: Mapping[RunId, Mapping[str, Any]]) -> tuple[RunId, ...]:
    """The runs in their order in the checkpoints."""
    runs = tuple(RunId(*run) for run in next(iter(found.values()))["launch"]["runs"])
    if set(runs) != set(found):
        if not (workdir / "checkpoints").is_dir():
            raise Unusable(
                f"{workdir} holds results of several trainings: name the folder of one run that "
                f"has {PARAMETERS}"
            )
        other = min(set(runs) ^ set(found))
        raise Unusable(
            f"{workdir} holds other runs than its checkpoints: {other.game}, seed {other.seed} "
            "is missing in one of them: bring its folder back"
        )
    return runs


def read_config(where: str | os.PathLike, run: Mapping[str, Any]) -> Config:
    """The configuration of a manifest's section `run`; `where` begins the message of an error.

    Raises:
      Unusable: it has fields that this version does not know.
    """
    values, known = manifest.config_values(run["config"]), presets.all_presets()
    own = [known[run["preset"]]] if run["preset"] in known else []
    for base in (*own, *known.values()):
        # A field that the manifest lacks is newer than the run, and its default changed nothing.
        if values.keys() <= fields.values(base).keys():
            return fields.replace(base, values)
    raise Unusable(
        f"{where} has other hyperparameters than this version of the program: play it at the "
        "commit in its manifest.json"
    )


def _near(workdir: pathlib.Path) -> str:
    """What a work directory looks like, and where one is near `workdir`."""
    own = workdir.absolute()
    if own.match("*/*/seed_*") and (own / "manifest.json").exists():
        if (own.parents[2] / "checkpoints").is_dir():
            return f"it is one run of {own.parents[2]}: name that directory"
        return f"it is one run, without its agent: there is no {PARAMETERS}"
    below = next(iter(sorted(workdir.glob(f"*/{manifest.ALL}"))), None)
    if below is not None:
        return f"did you mean {below.parents[3]}?"
    return "there is no <preset>/<game>/seed_<n>/manifest.json in it"
