"""How far the fleets of a sweep are."""

import contextlib
import dataclasses
import enum
import json
import os
from collections.abc import Sequence
from typing import NamedTuple

from rcrl_jax import files
from rcrl_jax.training.record_files import check_metrics
from rcrl_jax.training.run_paths import RunPaths
from rcrl_jax.training.sweep.spec import Fleet


class Progress(NamedTuple):
    """How far a run is.

    Attributes:
        step: agent steps of its last line of metrics; 0 before there is one.
        steps_per_s: as last measured; None before it is.
        wall_s: seconds of training up to `step`.
    """

    step: int
    steps_per_s: float | None
    wall_s: float


NOTHING_YET = Progress(0, None, 0.0)


class State(enum.StrEnum):
    """What happens with a fleet."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"


@dataclasses.dataclass
class Status:
    """A fleet of a sweep that is being carried out.

    Attributes:
        fleet: which one.
        total_steps: agent steps of each of its runs.
        state: what happens with it.
        attempts: how often it was started.
        place: where it runs, or ran last.
        progress: that of each of its runs, which train side by side.
        failure: why its last attempt failed and the last line that it printed, or "".
    """

    fleet: Fleet
    total_steps: int
    state: State = State.WAITING
    attempts: int = 0
    place: str = ""
    progress: Progress = NOTHING_YET
    failure: str = ""

    @property
    def runs(self) -> int:
        """Number of runs."""
        return len(self.fleet.units)


def read_progress(paths: RunPaths) -> Progress:
    """How far a run is, from the last lines of its metrics."""
    try:
        with open(paths.metrics, "rb") as file:
            file.seek(max(os.path.getsize(paths.metrics) - 2**14, 0))
            lines = file.read().split(b"\n")
    except OSError:
        return NOTHING_YET
    step, wall_s = 0, 0.0
    for line in reversed(lines):
        # An incomplete line at either end, or a damaged one: the training program will name it.
        with contextlib.suppress(files.Damaged), files.reading(paths.metrics):
            record = json.loads(line)
            check_metrics(record)
            if not step:
                step, wall_s = record["agent_steps"], record["wall_s"]
            if "steps_per_s" in record:
                return Progress(step, record["steps_per_s"], wall_s)
    return Progress(step, None, wall_s)


def seconds_left(statuses: Sequence[Status]) -> float | None:
    """Predicts when all fleets that have not failed are trained; None before one has a rate.

    Assumes that runs keep being trained at the rate of the fleets that are running, measured from
    the start of each.
    """
    to_go = rate = 0.0
    for status in statuses:
        step, _, wall_s = status.progress
        if status.state in (State.WAITING, State.RUNNING):
            to_go += status.runs * (status.total_steps - step)
        if status.state is State.RUNNING and wall_s:
            rate += status.runs * step / wall_s
    return to_go / rate if rate else None
