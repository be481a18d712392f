"""Carries out a sweep: starts its fleets, tries failed ones again, collects finished runs."""

import contextlib
import dataclasses
import datetime
import json
import pathlib
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from experiments.sweeps import collection, fleets
from experiments.sweeps.display import Display
from experiments.sweeps.local import LocalLauncher
from experiments.sweeps.ray_launcher import RayLauncher
from experiments.sweeps.spec import Fleet, Spec, SweepError
from rcrl_jax.runs import records
from rcrl_jax.signals import STOP_SIGNALS, stop_signals

_POLL_S = 0.2
_LOOK_EVERY_S = 1.0
_SIGNAL_LAG_S = 1.0
_ATTEMPTS = 2  # that a fleet has before it counts as failed
_LAST_LINES = 20
_STOPPED = {code for s in STOP_SIGNALS for code in (-s, 128 + s)}
_REFUSED = 2


class Summary(NamedTuple):
    """The state of a sweep when it ends, in runs, and the signal that ended it, or None."""

    finished: int
    failed: int
    left: int
    stopped_by: int | None


@dataclasses.dataclass
class _Work:
    """A fleet that is not finished."""

    fleet: Fleet
    attempts: int = 0
    log_start: int = 0  # where the log of the last attempt begins, in bytes
    runs_now: bool = False  # not while Ray lets it wait for a node
    step: int = 0  # agent steps of each of its runs, which train side by side
    wall_s: float = 0.0  # seconds of training up to `step`


class Sweep:
    """Carries out fleets; `experiments.sweep` describes the files that it writes."""

    def __init__(
        self,
        spec: Spec,
        planned: Sequence[Fleet],
        directory: pathlib.Path,
        launcher: LocalLauncher | RayLauncher,
        display: Display,
        make_command: Callable[[Fleet, pathlib.Path], list[str]],
    ):
        """Starts nothing yet.

        Args:
            spec: the sweep.
            planned: its fleets that are not finished, in the order in which they start.
            directory: where fleets work; this process holds its lock.
            launcher: starts their commands, as jobs: `poll` returns None until a job has ended,
                then its exit code or what went wrong instead; `terminate` lets it save its state.
            display: tells the user.
            make_command: (fleet, work directory) -> command.
        """
        self._spec = spec
        self._directory = directory
        self._launcher = launcher
        self._display = display
        self._make_command = make_command
        self._waiting = deque(_Work(fleet) for fleet in planned)
        self._jobs: list[tuple[_Work, Any]] = []
        self._failed: list[_Work] = []

    def run(self) -> Summary:
        """Carries out the fleets, until all have ended or a signal comes.

        A fleet that fails is recorded, and the others continue. SIGTERM and SIGINT are passed on to
        the running fleets, which save their state; this call waits for them.

        Raises:
            OSError: the sweep's directory cannot be written.
        """
        passed_on, looked_s = 0, -_LOOK_EVERY_S
        with stop_signals() as received, self._display:
            while self._jobs or (self._waiting and not received):
                for signum in received[passed_on:]:
                    passed_on += 1
                    self._stop(signum)
                for work, job in tuple(self._jobs):
                    ending = job.poll()
                    if ending is None:
                        continue
                    # A signal to the process group may reach a fleet before it reaches this
                    # process.
                    if ending in _STOPPED and not received:
                        time.sleep(_SIGNAL_LAG_S)
                    self._look(work)
                    self._jobs.remove((work, job))
                    self._end(work, ending, stopping=bool(received))
                while self._waiting and not received and self._launcher.has_room():
                    self._start(self._waiting.popleft())
                if time.monotonic() - looked_s >= _LOOK_EVERY_S:
                    for work, _ in self._jobs:
                        self._look(work)
                    self._display.update(self._describe())
                    looked_s = time.monotonic()
                time.sleep(_POLL_S)
            self._display.update(self._describe())
        return self._summarise(received[0] if received else None)

    def _summarise(self, stopped_by: int | None = None) -> Summary:
        failed = self._count(self._failed)
        left = self._count([*self._waiting, *(work for work, _ in self._jobs)])
        return Summary(len(self._spec.units) - failed - left, failed, left, stopped_by)

    def _count(self, works: Sequence[_Work]) -> int:
        """The sweep's runs in these fleets; one begun earlier may have others, too."""
        return len({unit for work in works for unit in work.fleet.units} & set(self._spec.units))

    def _describe(self) -> list[str]:
        """A line about the whole sweep, then one about each running fleet."""
        running = [work for work, _ in self._jobs if work.runs_now]
        finished, failed, _, _ = self._summarise()
        lines = [f"{finished} of {len(self._spec.units)} runs finished, {failed} failed"]
        # Runs keep being trained at the rate of those that run now, measured from their start.
        to_go = sum(
            len(work.fleet.units) * (self._steps(work) - work.step)
            for work in (*self._waiting, *(work for work, _ in self._jobs))
        )
        rates = [len(w.fleet.units) * w.step / w.wall_s for w in running if w.wall_s]
        if any(rates):
            seconds = round(to_go / sum(rates))
            lines[0] += f", about {datetime.timedelta(seconds=seconds)} left"
        for work in running:
            line = f"{work.fleet.name} at step {work.step:,} of {self._steps(work):,}"
            rate = f", {work.step / work.wall_s:.1f} steps/s" if work.wall_s else ""
            lines.append(line + rate)
        return lines

    def _steps(self, work: _Work) -> int:
        return self._spec.agent_steps(work.fleet.games[0])

    def _start(self, work: _Work) -> None:
        log = self._log(work)
        work.attempts += 1
        work.log_start = log.stat().st_size if log.exists() else 0
        work.runs_now = False
        workdir = fleets.begin(self._directory, work.fleet)
        job = self._launcher.start(self._make_command(work.fleet, workdir), log)
        self._jobs.append((work, job))

    def _look(self, work: _Work) -> None:
        """Notices that a fleet has begun to run, and how far it is."""
        if not work.runs_now:
            where = [line for line in self._printed(work) if line.startswith("process ")]
            if where:
                work.runs_now = True
                self._display.say(f"started {work.fleet.name}, {where[0]}")
        paths = collection.work_paths(self._directory, work.fleet, work.fleet.units[0])
        work.step, work.wall_s = records.read_progress(paths)

    def _end(self, work: _Work, ending: int | str, *, stopping: bool) -> None:
        """Handles a command that has ended: collects its runs, or records why it failed."""
        if ending != 0 and stopping:
            self._waiting.appendleft(work)
            return
        why = ending if isinstance(ending, str) else f"exit code {ending}"
        if ending == 0:
            try:
                collection.collect(self._spec, work.fleet, self._directory)
            except (SweepError, OSError) as error:
                why = str(error)
            else:
                finished = f"{self._summarise().finished} of {len(self._spec.units)} runs"
                self._display.say(f"finished {work.fleet.name}, {finished}")
                return
        self._fail(work, ending, why)

    def _fail(self, work: _Work, ending: int | str, why: str) -> None:
        """Records a failure, and lets the fleet wait for its next attempt if it has one left."""
        failure = {
            "fleet": work.fleet.name,
            "attempt": work.attempts,
            "exit_code": ending if isinstance(ending, int) else None,
            "why": why,
            "log": self._printed(work)[-_LAST_LINES:],
            "time_utc": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        }
        with open(self._directory / "failures.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(failure) + "\n")
        line = f"failed {work.fleet.name}: {why}; see {self._log(work)}"
        # A mistake or a full disk would be refused again.
        again = ending != _REFUSED and work.attempts < _ATTEMPTS
        (self._waiting if again else self._failed).append(work)
        self._display.say(line + "; it is tried again after the others" * again)

    def _stop(self, signum: int) -> None:
        name = signal.Signals(signum).name
        self._display.say(f"{name}: waiting for {len(self._jobs)} fleets to save their state")
        for _, job in self._jobs:
            job.terminate()

    def _printed(self, work: _Work) -> list[str]:
        """The lines that the last attempt has printed."""
        with contextlib.suppress(OSError), open(self._log(work), "rb") as file:
            file.seek(work.log_start)
            return file.read().decode(errors="replace").splitlines()
        return []

    def _log(self, work: _Work) -> pathlib.Path:
        return self._directory / f"{work.fleet.name}.log"
