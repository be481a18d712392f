"""Atomic replacement of files, and conversion of values to JSON."""

import contextlib
import json
import math
import os
import pathlib
import re
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[pathlib.Path]:
    """Yields a path to write to; replaces `path` by that file once the block succeeds.

    Readers see the complete old file or the complete new one, even if this process is killed. The
    temporary file is in the same directory, so replacing it is one rename in one file system. It
    keeps the suffix, by which some writers choose a format. Its name holds the process id, so that
    several processes can replace one file; the last one wins. If the block raises, `path` is
    untouched. Temporary files of processes that were killed are deleted.

    Args:
        path: file to replace; its directory exists.

    Raises:
        OSError: the file cannot be written, for example because no space is left.
    """
    path = pathlib.Path(path)
    _delete_leftovers(path)
    partial = path.with_name(f".partial.{os.getpid()}.{path.name}")
    try:
        yield partial
        # Without this the rename may reach the disk before the bytes do.
        with open(partial, "rb") as file:
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _delete_leftovers(path: pathlib.Path) -> None:
    """Deletes temporary files of `path` whose processes have ended, as far as that is possible."""
    pattern = re.compile(rf"\.partial\.(\d{{1,9}})\.{re.escape(path.name)}")
    with contextlib.suppress(OSError):
        for name in os.listdir(path.parent):
            match = pattern.fullmatch(name)
            if match and not _is_running(int(match[1])):
                path.with_name(name).unlink(missing_ok=True)


def _is_running(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)  # signal 0 only checks
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it runs, as another user
    return True


def make_writable(directory: str | os.PathLike) -> None:
    """Makes a directory, with its parents, and checks that files can be written to it.

    Raises:
        OSError: they cannot, for example because the path is a file.
    """
    os.makedirs(directory, exist_ok=True)
    with tempfile.TemporaryFile(dir=directory):
        pass


def to_json_value(value: Any) -> Any:
    """Converts NumPy and JAX values, paths and tuples to what JSON can hold.

    NaN and the infinities become None: JSON cannot express them, and most parsers reject them.

    Raises:
        TypeError: a value has no counterpart in JSON.
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): to_json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_value(item) for item in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "__array__"):
        return to_json_value(np.asarray(value).tolist())
    raise TypeError(f"{type(value).__name__} {value!r} cannot be written as JSON")


def write_json_atomically(path: str | os.PathLike, value: Any) -> None:
    """Writes `value` as indented JSON, atomically: `path` holds the complete old or new file.

    Args:
        path: file to write; its directory exists.
        value: anything that `to_json_value` accepts.

    Raises:
        TypeError: a value has no counterpart in JSON; the old file stays.
        OSError: the file cannot be written; the old file stays.
    """
    text = json.dumps(to_json_value(value), indent=2, allow_nan=False)
    with replacing(path) as partial:
        partial.write_text(text + "\n", encoding="utf-8")
