"""Prepares a new process for a unit, then replaces it by the unit's command.

    python -m rcrl_jax.training.campaign.child PARENT CORE NICENESS LOCK COMMAND...

The process gets a low priority and one core, and ends when the campaign ends. It locks the unit
until it has ended, because an older process of the unit may still be saving its state. A function
between fork and exec could do the same, but is unsafe if the campaign has threads.
"""

import contextlib
import ctypes
import fcntl
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # from linux/prctl.h
ANY_CORE = "any"


def main(arguments: list[str]) -> None:
    """Replaces this process by COMMAND.

    Args:
        arguments: process id of the campaign; number of a core or `any`; the number added to the
            niceness; a file to lock; the command.
    """
    parent, core, niceness, lock, *command = arguments
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM.value)
    if os.getppid() != int(parent):  # the campaign ended before the line above
        sys.exit(128 + signal.SIGTERM)
    os.nice(int(niceness))
    if os.getsid(0) == int(parent):
        _lower_session(int(niceness))
    if core != ANY_CORE:
        os.sched_setaffinity(0, {int(core)})
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.set_inheritable(descriptor, True)  # COMMAND keeps the lock, but not its own children
    os.execvp(command[0], command)


def _lower_session(niceness: int) -> None:
    """Lowers the priority of the campaign's own session, if Linux schedules by session.

    With autogroups, niceness only counts within a session. A campaign that `setsid` starts would
    otherwise get as much time as any other session.
    """
    with contextlib.suppress(OSError):
        with open("/proc/self/autogroup", "r+", encoding="ascii") as file:
            current = int(file.read().rpartition(" ")[2])
            file.seek(0)
            file.write(str(max(current, niceness)))


if __name__ == "__main__":
    main(sys.argv[1:])
