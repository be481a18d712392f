"""Prepares a new process for a fleet, then replaces it by the fleet's command.

    python -m rcrl_jax.training.sweep.child PARENT CORES NICENESS LOCK COMMAND...

The process gets a low priority and some cores, and ends when PARENT ends. It locks the fleet until
it has ended, because an older process of the fleet may still be saving its state. A function
between fork and exec could do the same, but is unsafe if the parent has threads.
"""

import contextlib
import ctypes
import fcntl
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # from linux/prctl.h
ANY_CORE = "any"  # for CORES


def main(arguments: list[str]) -> None:
    """Replaces this process by COMMAND.

    Args:
        arguments: process id of the parent; numbers of cores with commas, or `any`; the number
            added to the niceness; a file to lock; the command.
    """
    parent, cores, niceness, lock, *command = arguments
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM.value)
    if os.getppid() != int(parent):  # the parent ended before the line above
        sys.exit(128 + signal.SIGTERM)
    os.nice(int(niceness))
    if os.getsid(0) == int(parent):
        _lower_session(int(niceness))
    if cores != ANY_CORE:
        os.sched_setaffinity(0, map(int, cores.split(",")))
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.set_inheritable(descriptor, True)  # COMMAND keeps the lock, but not its own children
    os.execvp(command[0], command)


def _lower_session(niceness: int) -> None:
    """Lowers the priority of the parent's own session, if Linux schedules by session.

    With autogroups, niceness only counts within a session. A sweep that `setsid` starts would
    otherwise get as much time as any other session.
    """
    with contextlib.suppress(OSError):
        with open("/proc/self/autogroup", "r+", encoding="ascii") as file:
            current = int(file.read().rpartition(" ")[2])
            file.seek(0)
            file.write(str(max(current, niceness)))


if __name__ == "__main__":
    main(sys.argv[1:])
