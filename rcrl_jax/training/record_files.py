"""The files metrics.jsonl and evaluations.jsonl: one JSON object a line, appended in training."""

import json
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TextIO

from rcrl_jax import files


class LineFile:
    """A file to which JSON lines are appended."""

    def __init__(self, path: pathlib.Path, count: int) -> None:
        """Opens `path`, which holds `count` lines."""
        self.path, self.count = path, count
        self._file = self._open()

    def _open(self) -> TextIO:
        return open(self.path, "a+", buffering=1, encoding="utf-8")

    def append(self, record: Mapping[str, Any]) -> None:
        """Appends a line, which goes to the operating system at once.

        Raises:
            OSError: it cannot be written.
        """
        with files.naming(self.path):
            self._file.write(json.dumps(files.to_json_value(record), allow_nan=False) + "\n")
        self.count += 1

    def restore_deleted(self) -> bool:
        """Writes the file again if it was deleted: while it is open, its content still exists.

        Returns:
            Whether it was deleted.

        Raises:
            OSError: it cannot be written.
        """
        if os.path.lexists(self.path):
            return False
        with self._file as deleted:
            deleted.seek(0)
            content = deleted.read()
        with files.replacing(self.path) as partial:
            partial.write_text(content, encoding="utf-8")
        self._file = self._open()
        return True

    def close(self) -> None:
        """Closes the file.

        Raises:
            OSError: what was appended cannot be written.
        """
        with files.naming(self.path):
            self._file.close()


def drop_after(path: pathlib.Path, check: Callable[[dict[str, Any]], None], last_step: int) -> None:
    """Keeps the lines up to `last_step` agent steps, byte for byte; creates a missing file.

    Args:
        path: the file.
        check: as in `read_lines`.
        last_step: compared with the lines' `agent_steps`.

    Raises:
        Damaged: a line is not a record.
        OSError: the file cannot be read or written.
    """
    lines = read_lines(path, check) if path.exists() else ()
    kept = [line for line, record in lines if record["agent_steps"] <= last_step]
    with files.replacing(path) as partial:
        partial.write_bytes(b"".join(line + b"\n" for line in kept))


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
    lines = path.read_bytes().split(b"\n")
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
    returns = record.get("returns")
    if not isinstance(returns, list) or not returns or not all(map(files.is_number, returns)):
        raise ValueError("not a record: it has no returns")
    if not files.is_number(record.get("mean")):
        raise ValueError("not a record: it has no mean")


def _check_step(record: Mapping[str, Any]) -> None:
    step = record.get("agent_steps")
    if type(step) is not int or step < 0:
        raise ValueError(f"not a record: agent_steps is {step!r}")
