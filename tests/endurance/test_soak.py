"""A training holds no more memory, file handles and threads as it goes on.

The environment variable SOAK_MINUTES is how long it is watched after its replay is full.
"""

import os
import subprocess
import sys
import time
from typing import NamedTuple

import numpy as np
import psutil
import pytest

from rcrl_jax.runs.paths import RunPaths
from tests.training.toy import last_step

pytestmark = pytest.mark.endurance

MINUTES = float(os.environ.get("SOAK_MINUTES", 2))
CAPACITY = 500
TRAINING = (
    "experiments.atari100k", "--preset=erainbow", "--games=Pong,Breakout", "--seeds=0,1",
    f"--config.replay.capacity={CAPACITY}", "--config.batch_size=8", "--config.learn_start=100",
    "--config.max_episode_steps=400", "--config.evaluation_period=500", "--steps=1000000",
)  # fmt: skip
LEAK = """
import os, time
kept = []
while True:
    kept.append((bytearray(2**20), open(os.devnull)))
    time.sleep(0.02)
"""
# Neighbouring looks are alike: an evaluation raises many of them. Means of long blocks are nearly
# independent, which the standard error of a fitted line assumes.
BLOCKS = 12


class Trend(NamedTuple):
    """A line through the means of blocks of one quantity, and its growth over the watch."""

    first: float  # mean of the first block
    growth: float
    standard_error: float  # of the growth

    def is_leak(self) -> bool:
        """Whether it grew by more than chance and by more than a twentieth."""
        return self.growth > max(5 * self.standard_error, 0.05 * self.first)


def look(process: psutil.Process) -> tuple[int, int, int]:
    """Bytes of memory, file handles and threads of a process and its children."""
    held = np.zeros(3, np.int64)
    for each in (process, *process.children(recursive=True)):
        try:
            held += each.memory_info().rss, each.num_fds(), each.num_threads()
        except (psutil.NoSuchProcess, psutil.AccessDenied):  # it has ended meanwhile
            continue
    return tuple(held.tolist())


def trends(looks) -> list[Trend]:
    """The trend of each column of `looks`, at least `BLOCKS` rows at equal distances of time."""
    means = np.array([block.mean(axis=0) for block in np.array_split(np.array(looks), BLOCKS)])
    x = np.linspace(-0.5, 0.5, BLOCKS)
    found = []
    for values in means.T:
        slope = x @ values / (x @ x)
        rest = values - values.mean() - slope * x
        error = np.sqrt(rest @ rest / (BLOCKS - 2) / (x @ x))
        found.append(Trend(values[0], slope, error))
    return found


def watch(process: subprocess.Popen, minutes: float, period_s: float) -> list[Trend]:
    """The trends of what a process holds; ends the process."""
    try:
        watched, looks, end = psutil.Process(process.pid), [], time.monotonic() + 60 * minutes
        while time.monotonic() < end or len(looks) < BLOCKS:
            assert process.poll() is None, "it has ended"
            looks.append(look(watched))
            time.sleep(period_s)
    finally:
        process.terminate()
        process.wait()
    return trends(looks)


def test_the_growth_of_a_line_is_exact_and_only_a_large_one_is_a_leak():
    line = np.linspace(0, 1, 240)[:, None]
    (found,) = trends(100 + 12 * line)
    assert found.growth == pytest.approx(12, rel=0.1) and found.is_leak()
    assert found.standard_error == pytest.approx(0, abs=1e-6)
    assert not trends(100 + 2 * line)[0].is_leak()
    assert not trends(100 - 12 * line)[0].is_leak()
    noise = np.random.default_rng(0).normal(100, 10, (240, 50))
    assert not any(trend.is_leak() for trend in trends(noise))


def test_a_leak_is_seen():
    process = subprocess.Popen([sys.executable, "-c", LEAK])
    memory, handles, threads = watch(process, minutes=0.03, period_s=0.05)
    assert memory.is_leak() and handles.is_leak() and not threads.is_leak()


def test_a_training_leaks_nothing(tmp_path):
    metrics = RunPaths(tmp_path, "erainbow", "Pong", 0).metrics
    with open(tmp_path / "output", "w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *TRAINING, f"--workdir={tmp_path}"], stdout=output, stderr=output
        )
    try:
        while last_step(metrics) < CAPACITY:
            assert process.poll() is None, (tmp_path / "output").read_text()
            time.sleep(1)
    except BaseException:
        process.kill()
        raise
    found = watch(process, MINUTES, period_s=1)
    print(*found, sep="\n")
    assert not any(trend.is_leak() for trend in found), found
