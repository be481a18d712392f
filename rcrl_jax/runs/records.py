"""Reads what a run has recorded: metrics.jsonl, evaluations.jsonl and scores.json.

The first two have one JSON object a line, appended in training.
"""

import contextlib
import hashlib
import json
import math
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from rcrl_jax import files
from rcrl_jax.runs.paths import RunPaths

WALL_CLOCK_KEYS = ("wall_s", "steps_per_s")
"""Keys of metrics.jsonl that differ between two runs of the same seed; all others are equal."""


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

    Both are 0 if there is none, or a line is damaged, which the training program names.
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


def check_finished(directory: pathlib.Path, scores: Mapping[str, Any]) -> None:
    """Checks that a finished run's records are those that its scores were written with.

    The last evaluation is the final one, so that it has the returns of the scores. Scores of older
    versions have no digests, and are not checked.

    Args:
        directory: of the run.
        scores: content of its scores.json.

    Raises:
        Damaged: a file is missing, or has been emptied, reordered, edited, or exchanged with that
            of another run; or the scores have been edited.
        OSError: a file cannot be read.
    """
    digests = scores.get("record_digests")
    if digests is None:
        return
    if not (isinstance(digests, dict) and {"metrics", "evaluations"} <= digests.keys()):
        raise files.Damaged(
            directory / "scores.json", "record_digests is not a digest of each file"
        )
    for name, read in (("metrics", read_metrics), ("evaluations", read_evaluations)):
        path, scores_file = directory / f"{name}.jsonl", directory / "scores.json"
        if not path.exists():
            raise files.Damaged(scores_file, f"{path.name}, to which it belongs, is missing")
        lines = read(path)
        if Digest(lines).value.hex() != digests[name]:
            raise files.Damaged(scores_file, f"it does not belong to the records in {path.name}")
    final = lines[-1]
    for name in ("agent_steps", "env_steps", "returns", "episodes_cut"):
        if scores.get(name) != final.get(name):
            where = f"{name} is not that of the last line of evaluations.jsonl"
            raise files.Damaged(directory / "scores.json", where)


def read_lines(
    path: pathlib.Path, check: Callable[[Any], None]
) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Yields every line, without its newline, and the record in it; not a torn last line.

    Args:
        path: the file.
        check: raises anything if a line's value is no record.

    Raises:
        Damaged: a line other than the last is not a record; the message names it.
        FileNotFoundError: there is no such file.
    """
    lines = files.read_bytes(path).split(b"\n")
    for number, line in enumerate(lines, start=1):
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
