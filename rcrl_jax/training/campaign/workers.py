"""Carries out the units of a campaign, with one process and one core for each."""

import contextlib
import datetime
import fcntl
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from rcrl_jax.signals import STOP_SIGNALS, stop_signals
from rcrl_jax.training.campaign import child, results
from rcrl_jax.training.campaign.spec import CampaignError, Spec, Unit
from rcrl_jax.training.run_paths import RunPaths

_POLL_S = 0.2
_REPORT_EVERY_S = 60.0
_LAST_LINES = 20
_STOPPED = {code for s in STOP_SIGNALS for code in (-s, 128 + s)}


class Summary(NamedTuple):
    """The state of a campaign when it ends.

    Attributes:
        finished: units whose run is in the results.
        failed: units that failed this time.
        left: all other units.
        stopped_by: the signal that ended the campaign, or None.
    """

    finished: int
    failed: int
    left: int
    stopped_by: int | None


class _Running(NamedTuple):
    unit: Unit
    core: int | str
    process: subprocess.Popen


def available_cores() -> list[int] | None:
    """The cores that this process may use; None if the system does not report them."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    return sorted(os.sched_getaffinity(0))


@contextlib.contextmanager
def locked(directory: pathlib.Path) -> Iterator[None]:
    """Locks a campaign's directory; the lock ends with the block or with the process.

    Raises:
        CampaignError: another process holds it; the message names its id.
        OSError: the directory cannot be made or written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "lock"
    with open(path, "a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = path.read_text(encoding="utf-8").strip() or "unknown"
            raise CampaignError(
                f"{directory} is in use by another campaign, process {holder}"
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


class Workers:
    """Runs units in parallel, each on its own core.

    Files in the campaign's directory, beside a work directory for each unit:

        <unit>.log        all that the unit's processes printed
        failures.jsonl    units that failed: exit code, last lines of the log, time
    """

    def __init__(
        self,
        spec: Spec,
        directory: pathlib.Path,
        count: int,
        *,
        niceness: int = 19,
        make_command: Callable[[Unit, pathlib.Path], list[str]] | None = None,
        say: Callable[[str], None] = print,
    ):
        """Starts nothing yet.

        Args:
            spec: the campaign.
            directory: where units work; this process holds its lock.
            count: units at a time.
            niceness: added to this process's niceness for units; 19 is the lowest priority.
            make_command: (unit, work directory) -> command; `spec.make_command` if None.
            say: prints a line for the user.
        """
        self._spec = spec
        self._directory = directory
        self._make_command = make_command or spec.make_command
        self._say = say
        self._niceness = niceness
        cores = available_cores() or [child.ANY_CORE]
        # More workers than cores share them evenly.
        self._idle_cores = [cores[i % len(cores)] for i in range(count)]
        self._running: list[_Running] = []
        self._finished = self._failed = 0

    def run(self) -> Summary:
        """Carries out the units that are not finished, until all are or a signal comes.

        A unit that fails is recorded, and the others continue. SIGTERM and SIGINT are passed on to
        the running units, which save their state; this call waits for them.

        Raises:
            CampaignError: the results hold another run in a unit's place.
            OSError: the campaign's directory cannot be written.
        """
        waiting: deque[Unit] = deque()
        for unit in self._spec.units:
            if results.is_finished(self._spec, unit):
                results.collect(self._spec, unit, self._directory)  # deletes leftovers of a kill
                self._finished += 1
            else:
                waiting.append(unit)
        stopped_by, reported_s = None, time.monotonic()
        with stop_signals() as received:
            while self._running or (waiting and stopped_by is None):
                while received:
                    stopped_by = stopped_by or received[0]
                    self._stop(received.pop(0))
                for one in [r for r in self._running if r.process.poll() is not None]:
                    # A signal to the process group may reach a unit before it reaches this process.
                    if one.process.returncode in _STOPPED and stopped_by is None and not received:
                        time.sleep(1.0)
                    self._end(one, stopping=bool(received) or stopped_by is not None)
                while self._idle_cores and waiting and not received and stopped_by is None:
                    self._start(waiting.popleft())
                if time.monotonic() - reported_s > _REPORT_EVERY_S:
                    self._say(self._describe())
                    reported_s = time.monotonic()
                time.sleep(_POLL_S)
        left = len(self._spec.units) - self._finished - self._failed
        return Summary(self._finished, self._failed, left, stopped_by)

    def _start(self, unit: Unit) -> None:
        """Starts a unit on an idle core; its process stays in this process group."""
        core, log = self._idle_cores.pop(0), self._log(unit)
        how = [os.getpid(), core, self._niceness, log]
        wrapper = [sys.executable, "-m", child.__name__, *map(str, how)]
        work = results.work_paths(self._directory, unit).workdir
        with open(log, "a", encoding="utf-8") as output:
            process = subprocess.Popen(
                [*wrapper, *self._make_command(unit, work)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        self._running.append(_Running(unit, core, process))
        self._say(f"started {unit.name}, process {process.pid}, core {core}")

    def _end(self, one: _Running, *, stopping: bool) -> None:
        """Handles a process that has ended: collects its run, or records why it failed."""
        self._running.remove(one)
        self._idle_cores.append(one.core)
        code, why = one.process.returncode, None
        if code == 0:
            try:
                results.collect(self._spec, one.unit, self._directory)
            except (CampaignError, OSError) as error:
                why = str(error)
        elif not stopping:
            why = f"exit code {code}"
        if why is not None:
            self._failed += 1
            self._record_failure(one.unit, code, why)
            self._say(f"failed {one.unit.name}: {why}; see {self._log(one.unit)}")
        elif code == 0:
            self._finished += 1
            self._say(f"finished {one.unit.name}, {self._finished} of {len(self._spec.units)}")

    def _stop(self, signum: int) -> None:
        name = signal.Signals(signum).name
        self._say(f"{name}: waiting for {len(self._running)} units to save their state")
        for one in self._running:
            one.process.terminate()

    def _record_failure(self, unit: Unit, code: int, why: str) -> None:
        lines = self._log(unit).read_text(encoding="utf-8", errors="replace").splitlines()
        failure = {
            "unit": unit.name,
            "exit_code": code,
            "why": why,
            "log": lines[-_LAST_LINES:],
            "time_utc": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        }
        with open(self._directory / "failures.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(failure) + "\n")

    def _log(self, unit: Unit) -> pathlib.Path:
        return self._directory / f"{unit.name}.log"

    def _describe(self) -> str:
        """One line: how many units are finished, how far the running ones are, the time left."""
        parts, rate = [], 0.0
        to_go = len(self._spec.units) - self._finished - self._failed
        mean_steps = sum(map(self._spec.agent_steps, self._spec.units)) / len(self._spec.units)
        steps_to_go = to_go * mean_steps
        for one in self._running:
            progress = read_progress(results.work_paths(self._directory, one.unit))
            parts.append(f"{one.unit.name} at step {progress.step:,}")
            if progress.steps_per_s is not None:
                parts[-1] += f", {progress.steps_per_s:.1f} steps/s"
            steps_to_go -= progress.step
            rate += progress.step / progress.wall_s if progress.wall_s else 0.0
        line = f"{self._finished} of {len(self._spec.units)} finished, {self._failed} failed"
        if parts:
            line += f"; {'; '.join(parts)}"
        if rate > 0:
            line += f"; about {max(steps_to_go, 0) / rate / 3600:.1f} hours left"
        return line


class Progress(NamedTuple):
    """How far a unit is.

    Attributes:
        step: agent steps of its last line of metrics; 0 before there is one.
        steps_per_s: as last measured; None before it is.
        wall_s: seconds of training up to `step`.
    """

    step: int
    steps_per_s: float | None
    wall_s: float


def read_progress(paths: RunPaths) -> Progress:
    """How far a unit is, from the last lines of its metrics."""
    try:
        with open(paths.metrics, "rb") as file:
            file.seek(max(os.path.getsize(paths.metrics) - 2**14, 0))
            lines = file.read().split(b"\n")
    except OSError:
        return Progress(0, None, 0.0)
    step, wall_s = 0, 0.0
    for line in reversed(lines):
        try:
            record = json.loads(line)
        except ValueError:  # an incomplete line at either end
            continue
        if not step:
            step, wall_s = record["agent_steps"], record["wall_s"]
        if "steps_per_s" in record:
            return Progress(step, record["steps_per_s"], wall_s)
    return Progress(step, None, wall_s)
