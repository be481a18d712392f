"""Carries out a sweep: starts its fleets, tries failed ones again, collects finished runs."""

import contextlib
import datetime
import json
import pathlib
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from rcrl_jax import files
from rcrl_jax.signals import STOP_SIGNALS, stop_signals
from rcrl_jax.training.sweep import collection, fleets
from rcrl_jax.training.sweep.display import Display
from rcrl_jax.training.sweep.launchers import Ending, Job, Launcher
from rcrl_jax.training.sweep.progress import State, Status, read_progress
from rcrl_jax.training.sweep.spec import Fleet, Spec, SweepError

_POLL_S = 0.2
_LOOK_EVERY_S = 1.0
_SIGNAL_LAG_S = 1.0
_LAST_LINES = 20
_STOPPED = {code for s in STOP_SIGNALS for code in (-s, 128 + s)}
_REFUSED = 2


class Summary(NamedTuple):
    """The state of a sweep when it ends, in runs.

    Attributes:
        finished: runs that are in the results.
        failed: runs of fleets that failed this time.
        left: all other runs.
        stopped_by: the signal that ended the sweep, or None.
    """

    finished: int
    failed: int
    left: int
    stopped_by: int | None


@contextlib.contextmanager
def locked(directory: pathlib.Path) -> Iterator[None]:
    """Locks a sweep's directory; the lock ends with the block or with the process.

    Raises:
        SweepError: another process holds it; the message names its id.
        OSError: the directory cannot be made or written.
    """
    try:
        with files.locked(directory, "sweep"):
            yield
    except files.InUse as error:
        raise SweepError(str(error)) from None


class Sweep:
    """Carries out fleets.

    Files in the sweep's directory, beside a work directory for each fleet:

        <fleet>.log       all that the fleet's processes printed
        failures.jsonl    fleets that failed: exit code, last lines of the log, time
    """

    def __init__(
        self,
        spec: Spec,
        planned: Sequence[Fleet],
        directory: pathlib.Path,
        launcher: Launcher,
        display: Display,
        *,
        attempts: int = 1,
        make_command: Callable[[Fleet, pathlib.Path], list[str]] | None = None,
    ):
        """Starts nothing yet.

        Args:
            spec: the sweep.
            planned: its fleets that are not finished, in the order in which they start.
            directory: where fleets work; this process holds its lock.
            launcher: starts their commands.
            display: tells the user.
            attempts: how often a fleet is started before it counts as failed.
            make_command: (fleet, work directory) -> command; `spec.make_command` if None.
        """
        self._spec = spec
        self._directory = directory
        self._launcher = launcher
        self._display = display
        self._attempts = attempts
        self._make_command = make_command or spec.make_command
        self._statuses = [Status(f, spec.agent_steps(f.games[0])) for f in planned]
        self._waiting = deque(self._statuses)
        self._jobs: list[tuple[Status, Job]] = []

    def run(self) -> Summary:
        """Carries out the fleets, until all have ended or a signal comes.

        A fleet that fails is recorded, and the others continue. SIGTERM and SIGINT are passed on to
        the running fleets, which save their state; this call waits for them.

        Raises:
            OSError: the sweep's directory cannot be written.
        """
        stopped_by, looked_s = None, -_LOOK_EVERY_S
        with stop_signals() as received, self._display:
            while self._jobs or (self._waiting and stopped_by is None):
                while received:
                    stopped_by = stopped_by or received[0]
                    self._stop(received.pop(0))
                for status, job in tuple(self._jobs):
                    ending = job.poll()
                    if ending is None:
                        continue
                    # A signal to the process group may reach a fleet before it reaches this
                    # process.
                    if ending.exit_code in _STOPPED and stopped_by is None and not received:
                        time.sleep(_SIGNAL_LAG_S)
                    self._look(status, job)
                    self._jobs.remove((status, job))
                    self._end(status, ending, stopping=bool(received) or stopped_by is not None)
                while self._waiting and not received and stopped_by is None:
                    if not self._launcher.has_room():
                        break
                    self._start(self._waiting.popleft())
                if time.monotonic() - looked_s >= _LOOK_EVERY_S:
                    for status, job in self._jobs:
                        self._look(status, job)
                    self._display.update(self._statuses, len(self._spec.units))
                    looked_s = time.monotonic()
                time.sleep(_POLL_S)
            self._display.update(self._statuses, len(self._spec.units))
        return self._summarise(stopped_by)

    def _summarise(self, stopped_by: int | None) -> Summary:
        # A fleet that was begun may have runs that the sweep no longer has.
        units = {
            state: {u for s in self._statuses if s.state is state for u in s.fleet.units}
            for state in State
        }
        failed = len(units[State.FAILED].intersection(self._spec.units))
        left = units[State.WAITING] | units[State.RUNNING]
        left = len(left.intersection(self._spec.units))
        return Summary(len(self._spec.units) - failed - left, failed, left, stopped_by)

    def _start(self, status: Status) -> None:
        status.attempts += 1
        status.place = ""
        workdir = fleets.begin(self._directory, status.fleet)
        command = self._make_command(status.fleet, workdir)
        job = self._launcher.start(command, self._log(status.fleet))
        self._jobs.append((status, job))
        self._look(status, job)

    def _look(self, status: Status, job: Job) -> None:
        """Notices where a fleet runs and how far it is."""
        place = job.place()
        if place is None:
            return
        if place != status.place:  # a launcher may move a fleet
            status.state, status.place = State.RUNNING, place
            self._display.say(f"started {status.fleet.name}, {place}")
        first = status.fleet.units[0]
        status.progress = read_progress(collection.work_paths(self._directory, status.fleet, first))

    def _end(self, status: Status, ending: Ending, *, stopping: bool) -> None:
        """Handles a command that has ended: collects its runs, or records why it failed."""
        fleet, code, why = status.fleet, ending.exit_code, None
        status.state = State.WAITING
        if code == 0:
            try:
                collection.collect(self._spec, fleet, self._directory)
            except (SweepError, OSError) as error:
                why = str(error)
        elif not stopping:
            why = ending.why or f"exit code {code}"
        if why is not None:
            self._fail(status, code, why)
        elif code == 0:
            status.state, status.failure = State.FINISHED, ""
            finished = self._summarise(None).finished
            self._display.say(f"finished {fleet.name}, {finished} of {len(self._spec.units)} runs")

    def _fail(self, status: Status, code: int | None, why: str) -> None:
        """Records a failure, and lets the fleet wait for its next attempt if it has one left."""
        log = self._log(status.fleet)
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        lines = text.splitlines()[-_LAST_LINES:]
        status.failure = f"{why}: {lines[-1]}" if lines else why
        failure = {
            "fleet": status.fleet.name,
            "attempt": status.attempts,
            "exit_code": code,
            "why": why,
            "log": lines,
            "time_utc": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        }
        with open(self._directory / "failures.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(failure) + "\n")
        line = f"failed {status.fleet.name}: {why}; see {log}"
        # A mistake or a full disk would be refused again.
        if code != _REFUSED and status.attempts < self._attempts:
            self._waiting.append(status)
            line += "; it is tried again after the others"
        else:
            status.state = State.FAILED
        self._display.say(line)

    def _stop(self, signum: int) -> None:
        name = signal.Signals(signum).name
        running = sum(status.state is State.RUNNING for status, _ in self._jobs)
        self._display.say(f"{name}: waiting for {running} fleets to save their state")
        for _, job in self._jobs:
            job.stop()

    def _log(self, fleet: Fleet) -> pathlib.Path:
        return self._directory / f"{fleet.name}.log"
