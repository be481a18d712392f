"""The manifest beside every score: what was run, and whether a resumed run is the same run."""

import dataclasses
import datetime
import importlib.metadata
import os
import pathlib
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import rcrl_jax
from rcrl_jax import files, words
from rcrl_jax.config import fields
from rcrl_jax.runs.paths import RunPaths

_ALGORITHM = 2
_ALGORITHMS = {
    "dreamer": 3, "dreamer_rcrl": 3, "simple": 3, "simple_small": 3, "simple_catch": 3,
}  # fmt: skip
"""Versions of presets' algorithms; `_ALGORITHM` for all others.

Raise the number of every preset whose runs compute something else than before, except by rounding.
"""

FORMAT = 2
"""Version of the format of manifests and records. Checkpoints have a version in `storage`.

Raise it when this format changes. A work directory of another format is refused.
"""

ALL = "*/*/seed_*/manifest.json"
"""Pattern of all manifests of a work directory."""

_GONE = "discriminator_norm"
"""A field of `return_contrast` that did nothing, in manifests of results/claim and results/base.

The code that `campaigns/commit` names writes it. Once its two lists, claim and base, have ended,
their manifests can be rewritten, and this constant can be deleted.
"""

NEW_EPISODES = "new_episodes_at"
"""In the section `run`: agent steps at which new episodes began, because the run was resumed and
its environment does not repeat; absent in all other runs."""

CHANGES_NO_RESULT = "replay.resumed_frames"
"""Field of a configuration that may change when a run is resumed."""

_DEPENDENCIES = (
    "jax", "jaxlib", "flax", "optax", "rlax", "numpy", "envpool", "ale_py",
    "dm_control", "mujoco",
)  # fmt: skip


class WorkdirMismatch(ValueError):
    """The work directory belongs to another configuration."""


def algorithm(preset: str) -> int:
    """Version of a preset's algorithm, in every manifest; runs with different ones never mix."""
    return _ALGORITHMS.get(preset, _ALGORITHM)


def describe_run(
    preset: str, config: Any, game: str, seed: int, steps: int, backend: str | None
) -> dict[str, Any]:
    """The section `run` of a manifest, which defines the run, as plain JSON values.

    `check_same_run` compares it. The number of steps is part of it because the importance-weight
    exponent is annealed over it: a longer run is another run from its first update on.

    Args:
        preset: name of the preset.
        config: the frozen dataclass of every hyperparameter.
        game: game or task.
        seed: the run's seed.
        steps: agent steps to train for.
        backend: name of the environment backend; None if it is not known, which fits any.

    Raises:
        TypeError: `config` is not a dataclass instance.
    """
    return files.to_json_value(
        {
            "format": FORMAT,
            "preset": preset,
            "game": game,
            "seed": seed,
            "steps": steps,
            "backend": backend,
            "algorithm": algorithm(preset),
            "config": dataclasses.asdict(config),
        }
    )


def config_values(config: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a manifest's `config` by dotted name, as `config.fields.replace` takes them."""
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in fields.flatten(config).items()
    }


def as_asked_for(run: Mapping[str, Any]) -> dict[str, Any]:
    """A section `run` as a user asks for it: without `NEW_EPISODES`."""
    return {name: value for name, value in run.items() if name != NEW_EPISODES}


def circumstances() -> dict[str, Any]:
    """Versions, device and command of this process: sections `versions`, `device`, `launch`."""
    import jax  # here, because a program that only reads manifests does not need it

    from rcrl_jax.ops import native

    devices = jax.devices()
    return {
        "versions": {
            "rcrl_jax": rcrl_jax.__version__,
            **{name: _version(name) for name in _DEPENDENCIES},
            "python": platform.python_version(),
            "git_commit": git_commit(),
        },
        "device": {
            "platform": devices[0].platform,
            "kind": devices[0].device_kind,
            "count": len(devices),
            "host_cores": os.cpu_count(),
            "xla_flags": os.environ.get("XLA_FLAGS", ""),
            **{f"cpu_{kernel}": by for kernel, by in native.describe().items()},
        },
        "launch": {
            # The interpreter's path depends on the machine, not on the run.
            "command": shlex.join(["python", *sys.orig_argv[1:]]),
            "started_utc": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        },
    }


_CIRCUMSTANCES = ("environment", "protocol", "versions", "device")
SECTIONS = ("run", *_CIRCUMSTANCES, "launch")
"""What a manifest holds; `protocol` says how scores are taken."""


def read(path: str | os.PathLike, *, as_written: bool = False) -> dict[str, Any]:
    """Reads a manifest: its `SECTIONS`, each a dictionary.

    Args:
        path: the manifest.
        as_written: whether to keep the removed field `_GONE`, as digests need it.

    Raises:
        Damaged: it is not a manifest of this program.
        OSError: it cannot be read.
    """

    def check(described: dict[str, Any]) -> dict[str, Any]:
        for name in SECTIONS:
            if not isinstance(described[name], dict):
                raise ValueError(f"its section {name!r} is no object")
        if not isinstance(described["run"].get("config"), dict):
            raise ValueError("its section 'run' has no configuration")
        contrast = described["run"]["config"].get("return_contrast")
        if not as_written and isinstance(contrast, dict) and contrast.get(_GONE) == "none":
            del contrast[_GONE]
        return described

    return files.read_json(path, check)


def how_computed(described: Mapping[str, Any]) -> dict[str, Any]:
    """What a manifest says of how a run was computed.

    That is all but its commands, their times, its fleet, and `CHANGES_NO_RESULT`.

    It is equal for equal runs under equal circumstances, interrupted or not.

    Args:
        described: as it was written.
    """
    resumed = described["launch"].get("resumed", [])
    config = fields.flatten(described["run"]["config"])
    config.pop(CHANGES_NO_RESULT, None)
    return {
        **{name: described[name] for name in SECTIONS if name != "launch"},
        "run": {**described["run"], "config": config},
        "resumed": [{name: own.get(name) for name in _CIRCUMSTANCES} for own in resumed],
    }


def check(
    paths: Sequence[RunPaths], manifests: Sequence[Mapping[str, Any]], arm: str | None = None
) -> list[str]:
    """Checks that the manifests of a work directory, if there are some, are of the same runs.

    A work directory's checkpoints belong to one fleet, so all of its runs are there, or none. Every
    manifest lists the runs in their order in the checkpoints.

    Args:
        paths: `[R]`, files of the runs, all in one work directory.
        manifests: `[R]`, what is about to run: the section `run`, and others to be compared.
        arm: what these runs are to be called; None admits every name.

    Returns:
        What has changed since the runs began, a line for each change; see `check_same_run`.

    Raises:
        WorkdirMismatch: the work directory belongs to other runs, or its runs have another arm's
            name, or a manifest is damaged.
    """
    workdir = paths[0].workdir
    others = set(workdir.glob(ALL)) - {own.manifest for own in paths}
    missing = {own.manifest for own in paths if not own.manifest.exists()}
    deleted = {path for path in missing if path.with_name("metrics.jsonl").exists()}
    if deleted:
        raise WorkdirMismatch(
            f"{min(deleted)} is gone, so nothing says what was run there: restore it, or choose "
            "another --workdir"
        )
    if others or (missing and paths[0].checkpoints.exists()):
        run = min(others or missing).parent.relative_to(workdir)
        belongs = f"to {run} as well" if others else f"to other runs than {run}"
        raise WorkdirMismatch(
            f"{workdir} belongs {belongs}; choose another --workdir or repeat the old command"
        )
    changes = []
    for own, described in zip(paths, manifests, strict=True):
        changes.append(check_same_run(own.manifest, described))
        if not own.manifest.exists():
            continue
        launch = read(own.manifest)["launch"]
        if launch.get("runs") != _order(paths):
            raise WorkdirMismatch(
                f"{workdir} holds these runs in another order: repeat the old command"
            )
        if arm and (known := launch.get("arm")) != arm:
            raise WorkdirMismatch(
                f"{workdir} holds runs {f'of the arm {known}' if known else 'without an arm'}: "
                f"repeat their command, or choose another --workdir for --arm={arm}"
            )
    return [change for change in dict.fromkeys(changes) if change]


def claim(paths: Sequence[RunPaths], manifests: Sequence[dict[str, Any]]) -> list[str]:
    """Checks a work directory, and writes the manifests that are not there.

    Arguments, result and errors are those of `check`; manifests have all `SECTIONS`, as plain JSON
    values.

    Raises:
        OSError: a manifest cannot be written.
    """
    changes = check(paths, manifests)
    for own, described in zip(paths, manifests, strict=True):
        if not own.manifest.exists():
            own.directory.mkdir(parents=True, exist_ok=True)
            launch = described["launch"] | {"runs": _order(paths)}
            files.write_json_atomically(own.manifest, {**described, "launch": launch})
    return changes


def _order(paths: Sequence[RunPaths]) -> list[list[Any]]:
    """The runs in their order in the checkpoints, as `launch.runs` of each manifest."""
    return [[own.game, own.seed] for own in paths]


def record_resumption(paths: Sequence[RunPaths], manifests: Sequence[dict[str, Any]]) -> None:
    """Appends the circumstances of a resumption to `launch.resumed`, if they have changed.

    Args:
        paths: `[R]`, files of the runs, whose manifests exist.
        manifests: `[R]`, what is about to run, as in `claim`.

    Raises:
        OSError: a manifest cannot be written.
    """
    for own, described in zip(paths, manifests, strict=True):
        old = read(own.manifest)
        resumed = old["launch"].get("resumed", [])
        now, before = {name: described[name] for name in _CIRCUMSTANCES}, [old, *resumed][-1]
        if any(before.get(name) != now[name] for name in _CIRCUMSTANCES):
            launch = {**old["launch"], "resumed": [*resumed, {**described["launch"], **now}]}
            files.write_json_atomically(own.manifest, {**old, "launch": launch})


def repeats_exactly(paths: RunPaths) -> bool:
    """Whether a run's environments repeated exactly when the run began.

    Raises:
        Damaged, OSError: as of `read`.
    """
    return read(paths.manifest)["environment"].get("repeats_exactly", True)


def record_new_episodes(paths: Sequence[RunPaths], step: int) -> None:
    """Adds a step to `NEW_EPISODES`, and removes later steps.

    Raises:
        OSError: a manifest cannot be written.
    """
    for own in paths:
        old = read(own.manifest)
        steps = [before for before in old["run"].get(NEW_EPISODES, []) if before < step]
        run = {**old["run"], NEW_EPISODES: [*steps, step]}
        files.write_json_atomically(own.manifest, {**old, "run": run})


def check_same_run(path: str | os.PathLike, manifest: Mapping[str, Any]) -> str | None:
    """Checks that the manifest at `path`, if there is one, describes the same run as `manifest`.

    Args:
        path: the manifest of the work directory.
        manifest: what is about to run, as in `check`.

    Returns:
        None if `path` does not exist or nothing relevant differs. Else one line that names the
        differences that do not make it another run: versions, device, the environment's
        description, the evaluation protocol.

    Raises:
        WorkdirMismatch: `path` describes another run, or is not a manifest. The message is one
            line and names up to three of the fields that differ.
    """
    path = pathlib.Path(path)
    if not path.exists():
        return None
    try:
        old = read(path)
    except files.Damaged as error:
        raise WorkdirMismatch(f"{error}; restore it, or choose another --workdir") from error
    if differing := describe_other_run(old["run"], manifest["run"]):
        raise WorkdirMismatch(
            f"{path.parent} belongs to another configuration: {differing}; "
            "choose another --workdir or repeat the old command"
        )
    changed = [
        difference
        for section in _CIRCUMSTANCES
        if section in manifest
        for difference in _differences(old.get(section), manifest[section], section)
    ]
    return f"resumed under other circumstances: {_first_three(changed)}" if changed else None


def describe_other_run(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """How the section `run` of a manifest describes another run than `new`; '' if it does not."""
    may_differ = [f"config.{CHANGES_NO_RESULT} "] + ["backend "] * (new["backend"] is None)
    differences = _differences(as_asked_for(old), files.to_json_value(new))
    return _first_three([x for x in differences if not x.startswith(tuple(may_differ))])


def _differences(old: Any, new: Any, name: str = "") -> Iterator[str]:
    """Yields `field old -> new` for every leaf that differs or is on one side only."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in dict.fromkeys([*new, *old]):
            inner = f"{name}.{key}" if name else key
            yield from _differences(old.get(key, "absent"), new.get(key, "absent"), inner)
    elif old != new:
        yield f"{name} {old} -> {new}"


def describe_differences(old: Any, new: Any) -> str:
    """Up to three `field old -> new` of the leaves that differ and how many more do; or ''."""
    return _first_three(list(_differences(old, new)))


def _first_three(differences: list[str]) -> str:
    more = len(differences) - 3
    first = [words.one_line(difference, 200) for difference in differences[:3]]
    return ", ".join(first) + (f" and {more} more" if more > 0 else "")


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def git_commit() -> str | None:
    """Returns the commit of this source tree, with `-dirty` if it was edited, or None.

    Edits below `results` do not count: a benchmark that writes there does not change the code.

    Also None for an installed copy inside another repository, for example in a virtual environment:
    that repository's commit does not describe this code.
    """
    here = pathlib.Path(__file__).resolve()

    def git(*arguments: str) -> str:
        return subprocess.run(
            # This code runs already, so the owner of its repository is trusted.
            ["git", "--no-optional-locks", "-c", "safe.directory=*", "-C", str(here.parent),
             *arguments],
            check=True, capture_output=True, text=True, timeout=10,
        ).stdout.strip()  # fmt: skip

    try:
        git("ls-files", "--error-unmatch", here.name)
        outside_results = ("--", ":/", ":(top,exclude)results")
        edited = git("status", "--porcelain", "--untracked-files=no", *outside_results)
        return git("rev-parse", "HEAD") + ("-dirty" if edited else "")
    except (OSError, subprocess.SubprocessError):
        return None
