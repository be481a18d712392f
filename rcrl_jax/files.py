"""Files that survive a killed program: atomic replacement, checked reading, locks."""

import contextlib
import errno
import fcntl
import json
import math
import os
import pathlib
import re
import shlex
import shutil
import socket
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from rcrl_jax import words

Checked = TypeVar("Checked")

_UNABLE = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL}
MOST_BYTES = 2**28
"""Largest file that is read whole; a run's files have megabytes."""


class Damaged(ValueError):
    """A file does not hold what it should; the message is one line and names the file."""

    def __init__(self, path: str | os.PathLike, why: object) -> None:
        """Describes the damage.

        Args:
            path: the file or directory.
            why: what is wrong with it; an exception stands for its message.
        """
        super().__init__(f"{path} is damaged: {words.one_line(why)}")


class InUse(Exception):
    """Another process works in a directory; the message is one line and names both."""


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[pathlib.Path]:
    """Yields a path to write to; replaces `path` by that file once the block succeeds.

    Readers see the complete old file or the complete new one, even if this process is killed. The
    temporary file is in the same directory, so replacing it is one rename in one file system. It
    keeps the suffix, by which some writers choose a format. Its name holds the process id, so that
    several processes can replace one file; the last one wins. If the block raises, `path` is
    untouched. Temporary files of processes that were killed are deleted.

    Args:
        path: file to replace; its directory exists. Of a link, the file that it names is replaced.

    Raises:
        OSError: the file cannot be written, for example because no space is left, or `path` is a
            device, a pipe or a directory.
    """
    path = pathlib.Path(path)
    if path.is_symlink():
        path = pathlib.Path(os.path.realpath(path))
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    _delete_leftovers(path)
    partial = path.with_name(f".partial.{os.getpid()}.{path.name}")
    try:
        yield partial
        # Without this the rename may reach the disk before the bytes do.
        with open(partial, "rb") as file, naming(path):
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


@contextlib.contextmanager
def reading(
    path: str | os.PathLike, *, passing: tuple[type[Exception], ...] = (OSError,)
) -> Iterator[None]:
    """Turns every error of the block into `Damaged`, which names `path`.

    The block parses the content of a file and takes from it what is needed. Damaged bytes
    can raise any error, so no list of error classes would be complete.

    Args:
        path: the file or directory.
        passing: errors that are no damage; by default those of the operating system, which name
            the file.

    Raises:
        Damaged: the content of `path` is not what the block expects.
    """
    try:
        yield
    except (Damaged, *passing):
        raise
    except KeyError as error:
        raise Damaged(path, f"there is no {error}") from error
    except Exception as error:
        raise Damaged(path, error) from error


@contextlib.contextmanager
def naming(path: str | os.PathLike) -> Iterator[None]:
    """Names `path` in errors of the operating system; errors of an open file name no path.

    Adds a remedy where the file system lacks a feature, as some network file systems lack locks.

    Raises:
        OSError: the block has raised it.
    """
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        remedy = "; take a directory on another file system" if error.errno in _UNABLE else ""
        raise OSError(error.errno, f"{error.strerror}{remedy}", os.fspath(path)) from error


def open_regular(path: str | os.PathLike, flags: int = os.O_RDONLY) -> int:
    """Opens a file only if it is regular: a pipe would block for ever, a device may never end.

    Args:
        path: the file, or a link to it.
        flags: of `os.open`.

    Returns:
        Its descriptor.

    Raises:
        Damaged: it is a directory, a pipe, a device.
        OSError: it cannot be opened.
    """
    descriptor = os.open(path, flags | os.O_NONBLOCK, 0o666)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise Damaged(path, "it is not a regular file")


def read_bytes(path: str | os.PathLike) -> bytes:
    """Reads a regular file of at most 256 MB.

    Raises:
        Damaged: it is not regular, or larger.
        OSError: it cannot be read.
    """
    with open(open_regular(path), "rb") as file:
        if os.fstat(file.fileno()).st_size > MOST_BYTES:
            raise Damaged(path, f"it has more than {MOST_BYTES >> 20} MB")
        return file.read()


def read_json(path: str | os.PathLike, check: Callable[[dict[str, Any]], Checked]) -> Checked:
    """Reads a file that holds a JSON object.

    Args:
        path: the file.
        check: takes the object and returns what the caller needs of it; raises any error if the
            object is wrong.

    Raises:
        Damaged: it is not a JSON object, or `check` has raised.
        OSError: it cannot be read.
    """
    content = read_bytes(path)
    with reading(path):
        value = json.loads(content)
        if not isinstance(value, dict):
            raise ValueError("it is not a JSON object")
        return check(value)


@contextlib.contextmanager
def locked(
    directory: str | os.PathLike, what: str, name: str = "lock"
) -> Iterator[Callable[[], None]]:
    """Locks a directory, which is made if need be; the lock ends with the block or the process.

    The kernel frees the lock when its holder dies, however it dies. The lock's file names the
    holder, and is empty without one. The file is never deleted: a program that has it open and a
    program that makes it anew would both hold the lock.

    Args:
        directory: where one program at a time may write.
        what: kind of the programs that use it, for the message.
        name: of the lock's file in it.

    Yields:
        A function to call before the directory is written. It raises InUse if the lock was
        deleted or replaced, because another program may then work in the directory.

    Raises:
        InUse: another process holds the lock; the message names it.
        Damaged: the lock is not a regular file.
        OSError: the directory cannot be made, written or locked.
    """
    path = pathlib.Path(directory, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = open_regular(path, os.O_RDWR | os.O_CREAT)
    with open(descriptor, "r+", encoding="utf-8", errors="replace") as file:

        def check() -> None:
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.stat(path), os.fstat(descriptor)):
                    return
            raise InUse(
                f"{path} was deleted or replaced: another {what} may work in {directory} now; "
                "when none does, the same command goes on"
            )

        try:
            with naming(path):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = words.one_line(file.readline(1000) or "which starts or ends at this moment")
            raise InUse(
                f"{directory} is in use by another {what}, {holder}: wait for it, or name another "
                "directory"
            ) from None
        check()
        file.truncate(0)
        command = words.one_line(shlex.join(["python", *sys.orig_argv[1:]]))
        file.write(f"process {os.getpid()} on {socket.gethostname()}: {command}\n")
        file.flush()
        try:
            yield check
        finally:
            file.truncate(0)


def set_aside(path: pathlib.Path, why: str) -> pathlib.Path:
    """Renames a file or directory to `<name>.<why>`, or `<name>.<why>.2` and so on if it is taken.

    Returns:
        Its new path.

    Raises:
        OSError: it cannot be renamed.
    """
    number, free = 1, path.with_name(f"{path.name}.{why}")
    while os.path.lexists(free):
        number += 1
        free = path.with_name(f"{path.name}.{why}.{number}")
    return path.rename(free)


def make_writable(directory: str | os.PathLike) -> None:
    """Makes a directory, with its parents, and checks that files can be written to it.

    Raises:
        OSError: they cannot, for example because the path is a file.
    """
    os.makedirs(directory, exist_ok=True)
    with tempfile.TemporaryFile(dir=directory):
        pass


def check_writable(directory: str | os.PathLike) -> None:
    """Checks as `make_writable` does, and leaves nothing behind, since the run may be refused.

    Raises:
        OSError: the directory cannot be made, or no files can be written to it.
    """
    path = pathlib.Path(directory)
    missing = [place for place in (path, *path.parents) if not os.path.lexists(place)]
    try:
        make_writable(path)
    finally:
        for place in missing:
            with contextlib.suppress(OSError):
                place.rmdir()


def check_space(path: pathlib.Path, needed: int) -> None:
    """Raises OSError if the disk of `path` has fewer than `needed` bytes free."""
    free = free_bytes(path)
    if free < needed:
        raise OSError(
            errno.ENOSPC,
            f"no space left: {free >> 20} MB free, {needed >> 20} MB needed",
            str(path),
        )


def bytes_in(path: pathlib.Path) -> int:
    """Size of a file, or of all files below a directory; 0 if it does not exist."""
    below = (pathlib.Path(at, name) for at, _, names in os.walk(path) for name in names)
    total = 0
    for place in (path, *below):
        with contextlib.suppress(FileNotFoundError):
            found = place.lstat()
            total += found.st_size if stat.S_ISREG(found.st_mode) else 0
    return total


def free_bytes(path: pathlib.Path) -> int:
    """Free space on the disk that holds, or will hold, `path`."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def is_number(value: Any) -> bool:
    """Whether a JSON value is a finite number; Python reads NaN and unbounded integers, too."""
    return type(value) in (int, float) and -1e300 < value < 1e300


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
