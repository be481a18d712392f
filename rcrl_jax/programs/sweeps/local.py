"""Starts a command of a sweep on this machine, and prepares its process.

    python -m rcrl_jax.programs.sweeps.local PARENT CORES NICENESS LOCK COMMAND...

lowers the priority of its process, reserves cores, and makes the process end with PARENT. It waits
for the fleet's lock, because an older process of the fleet may still be saving its state. Then
COMMAND replaces the program and keeps the lock. A function between fork and exec could do the same,
but is unsafe if the parent has threads.
"""

import contextlib
import ctypes
import fcntl
import os
import pathlib
import re
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from rcrl_jax import files

_STARTED = re.compile(rb"^process \d+ on ", re.M)  # begins the line that says where it runs
_PR_SET_PDEATHSIG = 1  # from linux/prctl.h
_ROOT = pathlib.Path(__file__).parents[3]  # of the package


def start_process(
    command: Sequence[str], log: pathlib.Path, cores: int, niceness: int
) -> subprocess.Popen:
    """Starts a command as a process that ends with this one.

    Args:
        command: the command.
        log: file to which its output is appended, and its lock. The first line says where it runs.
        cores: number of cores that no other fleet of this machine may use meanwhile. With 0, or if
            fewer are free, the command may use all cores.
        niceness: added to this process's niceness.

    Raises:
        Damaged: the log is not a regular file.
        OSError: it cannot be written.
    """
    arguments = map(str, (os.getpid(), cores, niceness, log))
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    with open(files.open_regular(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "a") as output:
        return subprocess.Popen(
            [sys.executable, "-m", __name__, *arguments, *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={
                **os.environ,
                "PYTHONUNBUFFERED": "1",
                # This project, not what the current folder has of the same name.
                "PYTHONSAFEPATH": "1",
                "PYTHONPATH": path,
            },
        )


def read_starts(log: pathlib.Path, position: int) -> tuple[int, int]:
    """How many processes have begun to write into a log after its first `position` bytes.

    Returns:
        Their number, and how many bytes were read so far.
    """
    try:
        with open(log, "rb") as file:
            file.seek(position)
            whole = b"".join(line for line in file if line.endswith(b"\n"))
    except OSError:  # no process yet; or the next call reads it
        return 0, position
    return len(_STARTED.findall(whole)), position + len(whole)


def main(arguments: list[str]) -> None:
    """Replaces this process by COMMAND; the arguments are those of the module."""
    parent, cores, niceness, lock, *command = arguments
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM.value)
    if os.getppid() != int(parent):  # the parent ended before the line above
        sys.exit(128 + signal.SIGTERM)
    os.nice(int(niceness))
    _lock(lock, fcntl.LOCK_EX)
    where = f"process {os.getpid()} on {socket.gethostname()}"
    if hasattr(os, "sched_getaffinity"):
        _reserve_cores(int(cores))
        where += f", cores {','.join(map(str, sorted(os.sched_getaffinity(0))))}"
    print(where, flush=True)
    os.execvp(command[0], command)


def _reserve_cores(count: int) -> None:
    """Restricts this process to cores that no other fleet of this machine has.

    XLA would start a thread for every core of the machine in each fleet. Ray counts cores, but does
    not tell processes which are theirs, and several sweeps may share a machine.
    """
    folder = pathlib.Path(tempfile.gettempdir(), f"rcrl_jax_cores_{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        print(f"others may write to {folder}: this fleet may use every core", flush=True)
        return
    free: list[int] = []
    for core in sorted(os.sched_getaffinity(0)):
        if len(free) < count and _lock(folder / str(core), fcntl.LOCK_EX | fcntl.LOCK_NB):
            free.append(core)
    if free and len(free) == count:
        os.sched_setaffinity(0, free)


def _lock(path: str | os.PathLike, how: int) -> bool:
    """Locks a file until COMMAND has ended; its children do not keep the lock."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, how)
    except BlockingIOError:
        os.close(descriptor)
        return False
    os.set_inheritable(descriptor, True)
    return True


if __name__ == "__main__":
    main(sys.argv[1:])
