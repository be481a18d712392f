"""Reads what a run has recorded, and checks whether a finished run's files belong together.

metrics.jsonl and evaluations.jsonl have one JSON object per line, appended in training; scores.json
is the result. A recorded run may hold metrics.jsonl.xz in place of metrics.jsonl.
"""

import contextlib
import functools
import hashlib
import json
import lzma
import math
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from rcrl_jax import files, reference
from rcrl_jax.runs import manifest
from rcrl_jax.runs.paths import RunPaths

WALL_CLOCK_KEYS = ("wall_s", "steps_per_s")
"""Keys of metrics.jsonl that differ between two runs of the same seed; all others are equal."""

ATTEMPTS = 2
"""A run that diverges this often has a result (docs/preregistration.md)."""

DIGESTS = "digests.txt"
"""Name of a file of digests of all runs below its directory; `benchmarks.digests` writes it."""

TRACKED = "wandb.json"
"""Name of the file of what was sent to W&B, which is none of a run's records."""

RECORDED = (".json", ".jsonl", ".npz", ".xz")
"""Suffixes of the files of a run that have digests."""

_SCORES, _DIVERGED = "scores.json", "diverged.json"


class RecordState(NamedTuple):
    """What metrics.jsonl and evaluations.jsonl of a fleet's runs hold at a checkpoint.

    For one run, the arrays lack the axis R.
    """

    lines: np.ndarray  # [R, 2] int64, records in metrics.jsonl and in evaluations.jsonl
    digests: np.ndarray  # [R, 2, 32] uint8, SHA-256 of these records, see `Digest`


class Digest:
    """SHA-256 of records in their order, without `WALL_CLOCK_KEYS`: equal for equal runs.

    Attributes:
        count: number of records.
    """

    def __init__(self, records: Iterable[Mapping[str, Any]] = ()) -> None:
        """Takes the records so far, as JSON values."""
        self.count, self._sha = 0, hashlib.sha256()
        for record in records:
            self.add(record)

    def add(self, record: Mapping[str, Any]) -> None:
        """Takes the next record."""
        lasting = {name: value for name, value in record.items() if name not in WALL_CLOCK_KEYS}
        self._sha.update(json.dumps(lasting).encode() + b"\n")
        self.count += 1

    @property
    def value(self) -> bytes:
        """The digest, 32 bytes."""
        return self._sha.digest()


def read_records(path: str | os.PathLike) -> list[dict[str, Any]]:
    """Reads a file of JSON lines; a last line that a killed process left torn is not returned.

    Raises:
        FileNotFoundError: there is no such file.
        Damaged: a line other than the last is not a JSON object; the message names it.
    """
    return [record for _, record in read_lines(pathlib.Path(path), check_object)]


def read_metrics(path: str | os.PathLike) -> list[dict[str, Any]]:
    """Reads metrics.jsonl, as `read_records`; every value is a number or None.

    Raises:
        FileNotFoundError: there is no such file.
        Damaged: a line is no metrics of a step.
    """
    return [record for _, record in read_lines(pathlib.Path(path), check_metrics)]


def read_evaluations(path: str | os.PathLike) -> list[dict[str, Any]]:
    """Reads evaluations.jsonl, as `read_records`; every line has returns and their mean.

    Raises:
        FileNotFoundError: there is no such file.
        Damaged: a line is no evaluation.
    """
    return [record for _, record in read_lines(pathlib.Path(path), check_evaluation)]


def read_progress(paths: RunPaths) -> tuple[int, float]:
    """Agent steps of a run, and its seconds of training, from the last whole line of its metrics.

    Both are 0 if there is none, or a line is damaged; the training program names the damage.
    """
    with contextlib.suppress(OSError, files.Damaged):
        if lines := read_metrics(paths.metrics):
            return lines[-1]["agent_steps"], lines[-1]["wall_s"]
    return 0, 0.0


def last_evaluation(paths: RunPaths) -> dict[str, Any] | None:
    """A run's last recorded evaluation; None if there is none yet.

    Raises:
        FileNotFoundError: there is no such file.
        Damaged: a line is no evaluation.
    """
    lines = read_evaluations(paths.evaluations)
    return lines[-1] if lines else None


def read_scores(path: str | os.PathLike) -> dict[str, Any]:
    """Reads scores.json, a finished run's final evaluation: it has returns and their mean.

    Raises:
        FileNotFoundError: there is no such file.
        Damaged: it is no evaluation.
    """

    def check(scores: dict[str, Any]) -> dict[str, Any]:
        check_returns(scores)
        return scores

    return files.read_json(path, check)


def has_result(directory: pathlib.Path) -> bool:
    """Whether a run has a result, valid or not; see `read_result`."""
    return any((directory / name).exists() for name in (_SCORES, _DIVERGED))


def read_result(directory: pathlib.Path) -> dict[str, Any] | None:
    """Reads the result of a finished run, once all its records are checked against each other.

    Resumption, sweeps and tables all call this, so that none counts a run that another refuses.
    The scores agree with the manifest and have the returns of the last evaluation. Metrics,
    evaluations and manifest have the digests in the scores; scores of older versions have none, or
    none of the manifest. All files have the digests in `digests.txt`, if that lists the run.

    Args:
        directory: of the run.

    Returns:
        Content of its scores.json; None if the run has diverged for good.

    Raises:
        FileNotFoundError: it has no result.
        Damaged: a file is missing, or has been emptied, reordered, edited, or exchanged with that
            of another run.
        OSError: a file cannot be read.
    """
    path, diverged = directory / _SCORES, directory / _DIVERGED
    check_digests(directory)
    described, run = _read_run(directory)
    if diverged.exists():
        if path.exists():
            raise files.Damaged(directory, f"it holds both {_SCORES} and {_DIVERGED}; remove one")
        # Where there is no score of random play, as on DMControl, the file is refused.
        attempts, _ = files.read_json(
            diverged,
            lambda o: (o.get("attempts"), reference.random_play(run["game"], run["preset"])),
        )
        if attempts != ATTEMPTS:
            raise files.Damaged(diverged, f"attempts is {attempts!r}, expected {ATTEMPTS}")
        return None
    scores = read_scores(path)
    for name, value in run.items():
        if scores.get(name) != value:
            planned = "steps" if name == "agent_steps" else name
            why = f"{name} is {scores.get(name)!r}, but {planned} is {value!r} in manifest.json"
            raise files.Damaged(path, why)
    episodes, count = scores.get("episodes"), len(scores["returns"])
    if episodes != count:
        raise files.Damaged(path, f"episodes is {episodes!r}, but it holds {count} returns")
    _check_records(directory, scores, described)
    return scores


def _read_run(directory: pathlib.Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a run's manifest says of how it was computed, and what its scores must therefore say."""
    path = directory / "manifest.json"
    try:
        described = manifest.read(path, as_written=True)
    except FileNotFoundError:
        raise files.Damaged(directory, f"{path.name} is missing") from None
    with files.reading(path):
        run = described["run"]
        wanted = {name: run[name] for name in ("preset", "game", "seed")}
        wanted["agent_steps"] = run["steps"]
        if "action_repeat" in described["environment"]:  # some environments lack it
            wanted["env_steps"] = run["steps"] * described["environment"]["action_repeat"]
        return manifest.how_computed(described), wanted


def _check_records(
    directory: pathlib.Path, scores: Mapping[str, Any], described: Mapping[str, Any]
) -> None:
    """Raises Damaged unless a run's records and manifest are those that its scores belong to.

    The last evaluation is the final one, so its returns are those of the scores.
    """
    path = directory / _SCORES
    digests = scores.get("record_digests", {})
    if "record_digests" in scores and not (
        isinstance(digests, dict) and {"metrics", "evaluations"} <= digests.keys()
    ):
        raise files.Damaged(path, "record_digests is not a digest of each file")
    for name, read in (("metrics", read_metrics), ("evaluations", read_evaluations)):
        records = directory / f"{name}.jsonl"
        try:
            lines = read(records)
        except FileNotFoundError:
            why = f"{records.name}, to which it belongs, is missing"
            raise files.Damaged(path, why) from None
        if name in digests and Digest(lines).value.hex() != digests[name]:
            raise files.Damaged(path, f"it does not belong to the records in {records.name}")
    if "manifest" in digests and Digest([described]).value.hex() != digests["manifest"]:
        raise files.Damaged(path, "it does not belong to manifest.json, which has changed")
    if not lines:
        raise files.Damaged(records, "it holds no evaluation, but the run is finished")
    for name in ("agent_steps", "env_steps", "returns", "episodes_cut"):
        if scores.get(name) != lines[-1].get(name):
            why = f"{name} is not that of the last line of {records.name}"
            raise files.Damaged(path, why)


def digest_of(path: pathlib.Path) -> str:
    """SHA-256 of a file, in hexadecimal digits.

    Raises:
        Damaged: it is not a regular file.
        OSError: it cannot be read.
    """
    return hashlib.sha256(files.read_bytes(path)).hexdigest()


def recorded_files(directory: pathlib.Path) -> list[str]:
    """Names of a run's files that have digests: all that hold numbers, not pictures; in order."""
    return sorted(
        path.name
        for path in directory.iterdir()
        if path.suffix in RECORDED and path.is_file() and path.name != TRACKED
    )


def read_digests(path: pathlib.Path) -> dict[str, str]:
    """Reads a file of digests as `sha256sum` writes it; lines that begin with # are comments.

    Returns:
        Path relative to that of the file -> SHA-256 in hexadecimal digits.

    Raises:
        Damaged: a line is no digest, or a path stands twice.
        OSError: the file cannot be read.
    """
    return dict(_parse_digests(path, files.read_bytes(path)))


@functools.lru_cache(maxsize=1)  # a report checks hundreds of runs of one list
def _parse_digests(path: pathlib.Path, content: bytes) -> Mapping[str, str]:
    found: dict[str, str] = {}
    with files.reading(path):
        for number, line in enumerate(content.decode().splitlines(), start=1):
            if line.startswith("#"):
                continue
            match = re.fullmatch(r"([0-9a-f]{64})  (\S+)", line)
            if not match or match[2] in found:
                raise ValueError(f"line {number} is no digest of a further file")
            found[match[2]] = match[1]
    return found


def check_digests(directory: pathlib.Path) -> None:
    """Compares the files of a run with `digests.txt` of the nearest directory above that has one.

    A run that has no digest there is newer than the file, and is not compared.

    Raises:
        Damaged: a file has changed, is missing, or has no digest while others of the run have one.
        OSError: a file cannot be read.
    """
    place = directory.absolute()
    for above in place.parents:
        if (above / DIGESTS).exists():
            break
    else:
        return
    prefix = f"{place.relative_to(above).as_posix()}/"
    wanted = {
        path.removeprefix(prefix): digest
        for path, digest in read_digests(above / DIGESTS).items()
        if path.startswith(prefix)
    }
    if not wanted:
        return
    for name in sorted(wanted.keys() | {*recorded_files(directory)}):
        path = directory / name
        if name not in wanted:
            raise files.Damaged(path, f"it is not among the run's files in {above / DIGESTS}")
        if not path.exists():
            raise files.Damaged(directory, f"{name} is missing, of which {DIGESTS} has a digest")
        if digest_of(path) != wanted[name]:
            raise files.Damaged(path, f"it has changed: {above / DIGESTS} has another digest")


def packed(path: pathlib.Path) -> pathlib.Path:
    """Where the compressed form of a file of records lies."""
    return path.with_name(f"{path.name}.xz")


def read_content(path: pathlib.Path) -> bytes:
    """The content of a file of records; of its compressed form if that alone is there.

    Raises:
        FileNotFoundError: there is neither.
        Damaged: it is no regular file, no xz, or larger than `files.read_bytes` reads.
        OSError: it cannot be read.
    """
    if path.exists() or not packed(path).exists():
        return files.read_bytes(path)
    compressed = files.read_bytes(packed(path))
    with files.reading(packed(path)):
        decompressor = lzma.LZMADecompressor()
        content = decompressor.decompress(compressed, files.MOST_BYTES)
        if not decompressor.eof or decompressor.unused_data:
            raise ValueError("it does not end where its xz stream ends")
        return content


def read_lines(
    path: pathlib.Path, check: Callable[[Any], None], skip: int = 0
) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Yields every line, without its newline, and the record in it; not a torn last line.

    Args:
        path: the file.
        check: raises anything if a line's value is no record.
        skip: how many lines are left out, unread.

    Raises:
        Damaged: a line other than the last is not a record; the message names it.
        FileNotFoundError: there is no such file.
    """
    lines = read_content(path).split(b"\n")
    for number, line in enumerate(lines[skip:], start=skip + 1):
        try:
            with files.reading(f"{path}, line {number}"):
                record = json.loads(line)
                check(record)
        except files.Damaged:
            # Whole lines end with a newline, so what follows the last one is torn, or empty.
            if number == len(lines):
                return
            raise
        yield line, record


def check_object(record: Any) -> None:
    """Raises ValueError unless `record` is a JSON object."""
    if not isinstance(record, dict):
        raise ValueError("not a record: not an object")


def check_metrics(record: Any) -> None:
    """Raises ValueError unless `record` may be a line of metrics.jsonl: numbers by name."""
    check_object(record)
    _check_step(record)
    for name, value in record.items():
        if not (files.is_number(value) or (value is None and name != "wall_s")):
            raise ValueError(f"not a record: {name} is {value!r}")
    if "wall_s" not in record:
        raise ValueError("not a record: there is no wall_s")


def check_evaluation(record: Any) -> None:
    """Raises ValueError unless `record` may be a line of evaluations.jsonl."""
    check_object(record)
    _check_step(record)
    check_returns(record)


def check_returns(record: Mapping[str, Any]) -> None:
    """Raises ValueError unless `record` has the returns of episodes and their mean."""
    returns, mean = record.get("returns"), record.get("mean")
    if not isinstance(returns, list) or not all(map(files.is_number, [*returns, mean])):
        raise ValueError("it has a return that is not a number")
    if not returns:
        raise ValueError("it has no returns")
    own = math.fsum(returns) / len(returns)
    if not math.isclose(own, mean, rel_tol=1e-9, abs_tol=1e-9):
        raise ValueError(f"the mean is {mean}, but its returns give {own}")


def _check_step(record: Mapping[str, Any]) -> None:
    step = record.get("agent_steps")
    if type(step) is not int or step < 0:
        raise ValueError(f"not a record: agent_steps is {step!r}")
