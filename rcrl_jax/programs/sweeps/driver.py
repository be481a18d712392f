"""Carries out a sweep: starts its fleets, tries failed ones again, collects finished runs."""

import datetime
import pathlib
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from rcrl_jax import files, words
from rcrl_jax.programs import command_line
from rcrl_jax.programs.sweeps import local, work
from rcrl_jax.programs.sweeps.spec import FleetPlan, Spec, SweepError
from rcrl_jax.runs import records
from rcrl_jax.signals import STOP_SIGNALS, stop_signals

_POLL_S = 0.2
_SIGNAL_LAG_S = 1.0
_LINE_EVERY_S = 60.0
_ATTEMPTS = 2  # of a fleet before it counts as failed
_RETRY_S = 60.0  # pause after a failed start: the machine may be the reason, and recover
_STOPPED = {code for s in STOP_SIGNALS for code in (-s, 128 + s)}


class Summary(NamedTuple):
    """The state of a sweep when it ends, in runs, and the signal that ended it, or None."""

    finished: int
    failed: int
    left: int
    stopped_by: int | None


class Sweep:
    """Carries out fleets; `experiments.sweep` describes the files that it writes."""

    def __init__(
        self,
        spec: Spec,
        planned: Sequence[FleetPlan],
        directory: pathlib.Path,
        *,
        start: Callable[[list[str], pathlib.Path], Any],
        workers: int | None,
        make_command: Callable[[FleetPlan, pathlib.Path], list[str]],
        say: Callable[[str], None],
    ):
        """Starts nothing yet.

        Args:
            spec: the sweep.
            planned: its fleets that are not finished, in the order in which they start.
            directory: where fleets work; this process holds its lock.
            start: (command, log) -> job. A job appends what it prints to `log`. Its `poll` returns
                None until it has ended, then its exit code or what went wrong instead; `terminate`
                lets it save its state.
            workers: jobs at a time; None for all at once.
            make_command: (fleet, work directory) -> command.
            say: prints a line for the user.
        """
        self._spec, self._directory, self._say = spec, directory, say
        self._start_job, self._workers, self._make_command = start, workers, make_command
        self._waiting = deque(planned)
        self._jobs: dict[FleetPlan, Any] = {}
        self._failed: list[FleetPlan] = []
        self._attempts: Counter[FleetPlan] = Counter()
        self._read: dict[FleetPlan, int] = {}  # bytes of the log that were searched for starts
        self._starts: Counter[FleetPlan] = Counter()  # of processes, in this attempt
        self._no_start_until = 0.0

    def run(self) -> Summary:
        """Carries out the fleets, until all have ended or a signal comes.

        A fleet that fails is named, and the others continue. SIGTERM, SIGINT and SIGHUP are passed
        on to the running fleets, which save their state; this call waits for them.
        """
        passed_on, said_s = 0, time.monotonic()
        with stop_signals() as received:
            while self._jobs or (self._waiting and not received):
                for signum in received[passed_on:]:
                    passed_on += 1
                    name = signal.Signals(signum).name
                    self._say(f"{name}: waiting for {len(self._jobs)} fleets to save their state")
                    for job in self._jobs.values():
                        job.terminate()
                for fleet, job in tuple(self._jobs.items()):
                    ending = job.poll()
                    self._say_starts(fleet)
                    # A signal to the process group may reach a fleet before this process.
                    if ending in _STOPPED and not received:
                        time.sleep(_SIGNAL_LAG_S)
                    if ending is not None:
                        del self._jobs[fleet]
                        self._end(fleet, ending, stopping=bool(received))
                while (
                    self._waiting
                    and not received
                    and len(self._jobs) != self._workers
                    and time.monotonic() >= self._no_start_until
                ):
                    self._start(self._waiting.popleft())
                if time.monotonic() - said_s >= _LINE_EVERY_S:
                    self._say(self.describe())
                    said_s = time.monotonic()
                time.sleep(_POLL_S)
        return self._summarise(received[0] if received else None)

    def _summarise(self, stopped_by: int | None = None) -> Summary:
        failed, left = self._count(self._failed), self._count([*self._waiting, *self._jobs])
        return Summary(len(self._spec.units) - failed - left, failed, left, stopped_by)

    def _count(self, fleets: Iterable[FleetPlan]) -> int:
        """The sweep's runs in these fleets; a fleet begun earlier may have others, too."""
        return len({unit for fleet in fleets for unit in fleet.units} & set(self._spec.units))

    def describe(self) -> str:
        """One line: what is finished, how fast the rest is, where the logs are."""
        finished, failed, _, _ = self._summarise()
        line = f"{finished} of {len(self._spec.units)} runs finished, {failed} failed"
        to_go = rate = 0.0
        for fleet in (*self._waiting, *self._jobs):
            paths = work.paths_of(self._directory, fleet, fleet.units[0])
            step, wall_s = records.read_progress(paths)  # its runs train side by side
            to_go += len(fleet.units) * (self._spec.agent_steps(fleet.units[0]) - step)
            if fleet in self._jobs and wall_s:
                rate += len(fleet.units) * step / wall_s
        if rate:  # assumes that the present rate continues
            left = datetime.timedelta(seconds=round(to_go / rate))
            line += f", {rate:.1f} steps/s, about {left} left"
        return f"{line}; logs: {self._directory}/*.log"

    def _start(self, fleet: FleetPlan) -> None:
        self._attempts[fleet] += 1
        command, log = self._make_command(fleet, self._directory / fleet.name), self._log(fleet)
        self._read[fleet], self._starts[fleet] = files.bytes_in(log), 0
        try:
            self._jobs[fleet] = self._start_job(command, log)
        except (files.Damaged, OSError) as error:
            again = isinstance(error, OSError)
            if again:
                self._no_start_until = time.monotonic() + _RETRY_S
            self._fail(fleet, f"it cannot start: {error}", again=again)

    def _say_starts(self, fleet: FleetPlan) -> None:
        """Says when a process of a fleet has begun; on Ray it may wait, or begin again."""
        begun, self._read[fleet] = local.read_starts(self._log(fleet), self._read[fleet])
        for _ in range(begun):
            self._starts[fleet] += 1
            again = self._starts[fleet] > 1
            lost = "; its node or its worker was lost, and it goes on from its last checkpoint"
            what = "start again" if again else "start"
            self._say(f"{what} {fleet.name}, log {self._log(fleet)}{lost * again}")

    def _end(self, fleet: FleetPlan, ending: int | str, *, stopping: bool) -> None:
        """Collects the runs of a command that has ended, or lets the fleet wait for another try."""
        if ending != 0 and stopping:
            self._waiting.appendleft(fleet)
            return
        why = ending if isinstance(ending, str) else f"exit code {ending}"
        if ending == 0:
            try:
                work.collect(self._spec, fleet, self._directory)
            except (SweepError, files.InUse, files.Damaged, OSError) as error:
                why = str(error)
            else:
                finished = f"{self._summarise().finished} of {len(self._spec.units)} runs"
                self._say(f"finished {fleet.name}, {finished}")
                return
        # After a mistake or with a full disk, another try would be refused, too.
        self._fail(fleet, why, again=ending != command_line.USAGE_ERROR)

    def _fail(self, fleet: FleetPlan, why: str, *, again: bool) -> None:
        again &= self._attempts[fleet] < _ATTEMPTS
        (self._waiting if again else self._failed).append(fleet)
        line = f"failed {fleet.name}: {words.one_line(why)}; see {self._log(fleet)}"
        self._say(line + "; it is tried again after the others" * again)

    def _log(self, fleet: FleetPlan) -> pathlib.Path:
        return self._directory / f"{fleet.name}.log"
