r"""Watches the memory, file handles and threads of a long training run.

    python -m benchmarks.soak --minutes=120 --command="experiments.atari100k --preset=erainbow \
        --games=Pong,Breakout --seeds=0,1 --steps=400000 --workdir=/tmp/soak \
        --config.replay.capacity=2000 --config.batch_size=8 --config.evaluation_period=500"

Starts the program, looks at it and its child processes every few seconds, and ends it with SIGTERM
when the time is over. Prints, and writes to results/soak/<device>.json: each quantity at the start
and at the end of the watch, and its slope with the slope's standard error. A leak is a slope of
several standard errors. The replay should be full before the watch starts, because it takes memory
as it fills.
"""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import psutil
from absl import app, flags

from benchmarks import device_file
from experiments import command_line
from rcrl_jax import files

# Neighbouring looks are alike: an evaluation raises many of them. Means of long blocks are nearly
# independent, which the standard error of a fitted line assumes.
BLOCKS = 12


class Look(NamedTuple):
    """What a process and its children held at one moment."""

    hours: float  # since the start of the watch
    memory_mib: float  # resident
    handles: int
    threads: int


class Trend(NamedTuple):
    """A line through the means of blocks of one quantity."""

    first: float  # mean of the first block
    last: float
    slope_per_hour: float
    standard_error: float


def look(process: psutil.Process, hours: float) -> Look:
    """Adds up what a process and its children hold now."""
    held = np.zeros(3)
    for each in (process, *process.children(recursive=True)):
        try:
            own = each.memory_info().rss / 2**20, each.num_fds(), each.num_threads()
        except (psutil.NoSuchProcess, psutil.AccessDenied):  # it has ended meanwhile
            continue
        held += own
    return Look(hours, float(held[0]), int(held[1]), int(held[2]))


def trends(looks: Sequence[Look]) -> dict[str, Trend]:
    """The trend of each quantity.

    Args:
      looks: at least `BLOCKS` of them, in order of time.
    """
    blocks = np.array_split(np.array(looks, np.float64), BLOCKS)
    means = np.array([block.mean(axis=0) for block in blocks])  # [BLOCKS, 4]
    hours = means[:, 0] - means[:, 0].mean()
    found = {}
    for name, values in zip(Look._fields[1:], means.T[1:], strict=True):
        slope = hours @ values / (hours @ hours)
        rest = values - values.mean() - slope * hours
        error = np.sqrt(rest @ rest / (BLOCKS - 2) / (hours @ hours))
        found[name] = Trend(*map(float, (values[0], values[-1], slope, error)))
    return found


def report(hours: float, found: dict[str, Trend]) -> str:
    """The trends as text."""
    lines = [f"watched for {60 * hours:.0f} minutes"]
    for name, trend in found.items():
        lines.append(
            f"  {name:<12}{trend.first:10.1f} -> {trend.last:<10.1f}"
            f"{trend.slope_per_hour:+8.2f} an hour, standard error {trend.standard_error:.2f}"
        )
    return "\n".join(lines)


def watch(process: subprocess.Popen) -> list[Look]:
    """Looks at a process until the time is over or it ends."""
    watched = psutil.Process(process.pid)
    start = time.monotonic() + 60 * flags.FLAGS.warm_up_minutes
    looks = []
    while process.poll() is None and (hours := (time.monotonic() - start) / 3600) * 60 < (
        flags.FLAGS.minutes
    ):
        if hours >= 0:
            looks.append(look(watched, hours))
        time.sleep(flags.FLAGS.period)
    return looks


def _define_flags() -> None:
    """Not at import: tests import this module beside others with flags of the same names."""
    flags.DEFINE_string("command", None, "what follows `python -m` to start the training")
    flags.DEFINE_float("minutes", 120, "minutes to watch after the warm-up", lower_bound=0.01)
    flags.DEFINE_float("warm_up_minutes", 10, "minutes before the watch", lower_bound=0)
    flags.DEFINE_float("period", 5, "seconds between two looks", lower_bound=0.01)
    flags.DEFINE_string("output", "results/soak", "directory of the JSON file")


def main(argv: list[str]) -> None:
    """Runs, watches, prints and writes."""
    del argv
    if not flags.FLAGS.command:
        command_line.refuse("--command: name the program to watch, as --help shows")
    # A stop signal ends the training too, as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    command = [sys.executable, "-m", *shlex.split(flags.FLAGS.command)]
    process, ended = None, None
    try:
        files.make_writable(flags.FLAGS.output)
        process = subprocess.Popen(command, stdout=sys.stderr)
        looks = watch(process)
        ended = process.poll()
    except OSError as error:
        command_line.refuse(str(error))
    finally:
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait()
    if len(looks) < BLOCKS:
        command_line.refuse(f"only {len(looks)} looks: watch for longer, or look more often")
    found = trends(looks)
    print(report(looks[-1].hours, found))
    if ended is not None:
        print(f"the command ended with exit code {ended} before the time was over")

    from rcrl_jax.training import manifest

    measured = {
        "hours": looks[-1].hours,
        "load": os.getloadavg()[2],
        "ended_early": ended,
        "trends": {name: trend._asdict() for name, trend in found.items()},
        "looks": [look_._asdict() for look_ in looks[:: max(1, len(looks) // 300)]],
        **manifest.circumstances(),
    }
    path = device_file.prepare(flags.FLAGS.output)  # late: JAX would take the device from training
    files.write_json_atomically(path, measured)
    print(f"written to {path}")


if __name__ == "__main__":
    _define_flags()
    app.run(main, flags_parser=command_line.parse)
