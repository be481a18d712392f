"""How a sweep starts processes: the seam between its driver and the machines, and this machine."""

import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from rcrl_jax.training.sweep import child


class Ending(NamedTuple):
    """How a fleet's command ended.

    Attributes:
        exit_code: minus the signal's number if a signal ended it; None if nobody saw it end.
        why: what went wrong besides the exit code, or "".
    """

    exit_code: int | None
    why: str = ""


class Job(Protocol):
    """A fleet's command that was started, or that waits for a machine."""

    def place(self) -> str | None:
        """Where it runs, for the user; None while it waits."""

    def poll(self) -> Ending | None:
        """How it ended; None until then."""

    def stop(self) -> None:
        """Asks it to save its state and end. `poll` tells when it has."""


class Launcher(Protocol):
    """Starts commands."""

    def has_room(self) -> bool:
        """Whether a command can be started now."""

    def start(self, command: Sequence[str], log: pathlib.Path) -> Job:
        """Starts a command that appends what it prints to `log`, and locks `log` until it ends."""


def available_cores() -> list[int] | None:
    """The cores that this process may use; None if the system does not report them."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    return sorted(os.sched_getaffinity(0))


def share_cores(count: int, *, one_each: bool) -> list[str]:
    """The cores of each of `count` processes, as `child` takes them.

    Args:
        count: processes.
        one_each: one core for each process, shared evenly if there are too few. Else all cores are
            divided.
    """
    cores = available_cores()
    if cores is None:
        return [child.ANY_CORE] * count
    if one_each or count >= len(cores):
        return [str(cores[i % len(cores)]) for i in range(count)]
    return [",".join(map(str, cores[i::count])) for i in range(count)]


def start_child(
    command: Sequence[str],
    log: pathlib.Path,
    *,
    cores: str,
    niceness: int,
    environment: Mapping[str, str] | None = None,
    directory: str | None = None,
) -> subprocess.Popen:
    """Starts a command as a child process that ends with this one; see `child`.

    Args:
        command: the command.
        log: file to which its output is appended, and its lock.
        cores: which cores it may use, as `child` takes them.
        niceness: added to this process's niceness.
        environment: variables to change.
        directory: where it starts; this process's directory if None.
    """
    wrapper = [sys.executable, "-m", child.__name__, str(os.getpid()), cores, str(niceness)]
    with open(log, "a", encoding="utf-8") as output:
        return subprocess.Popen(
            [*wrapper, str(log), *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})},
            cwd=directory,
        )


class LocalLauncher:
    """Starts commands on this machine, each on its own cores."""

    def __init__(self, cores: Sequence[str], *, niceness: int = 19):
        """Starts nothing yet.

        Args:
            cores: of each process at a time, see `share_cores`.
            niceness: added to this process's niceness; 19 is the lowest priority.
        """
        self._idle_cores = list(cores)
        self._niceness = niceness

    def has_room(self) -> bool:
        """Whether a command can be started now."""
        return bool(self._idle_cores)

    def start(self, command: Sequence[str], log: pathlib.Path) -> "_Process":
        """Starts a command; its process stays in this process group."""
        cores = self._idle_cores.pop(0)
        process = start_child(command, log, cores=cores, niceness=self._niceness)
        return _Process(process, cores, self._idle_cores)


class _Process:
    """A process on this machine; gives its cores back when it has ended."""

    def __init__(self, process: subprocess.Popen, cores: str, idle_cores: list[str]):
        self._process = process
        self._cores = cores
        self._idle_cores = idle_cores

    def place(self) -> str:
        what = "cores" if "," in self._cores else "core"
        return f"process {self._process.pid}, {what} {self._cores}"

    def poll(self) -> Ending | None:
        """Gives the cores back too, so it is called until it tells the end, and not again."""
        code = self._process.poll()
        if code is None:
            return None
        self._idle_cores.append(self._cores)
        return Ending(code)

    def stop(self) -> None:
        self._process.terminate()
