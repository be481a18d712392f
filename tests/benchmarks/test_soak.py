"""Watching a process, and the slopes of what it holds."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest

from benchmarks import soak
from tests.experiments import programs

LEAK = """
import os, time
kept = []
while True:
    kept.append((bytearray(2**20), open(os.devnull)))
    time.sleep(0.02)
"""


def looks_at(memory):
    hours = np.linspace(0, 2, len(memory))
    return [soak.Look(h, m, 7, 3) for h, m in zip(hours, memory, strict=True)]


def test_the_slope_of_a_line_is_exact():
    found = soak.trends(looks_at(100 + 5 * np.linspace(0, 2, 240)))
    assert found["memory_mib"].slope_per_hour == pytest.approx(5)
    assert found["memory_mib"].standard_error == pytest.approx(0, abs=1e-6)
    assert found["handles"] == pytest.approx((7, 7, 0, 0))


def test_the_standard_error_covers_noise():
    random = np.random.default_rng(0)
    far = 0
    for _ in range(200):
        found = soak.trends(looks_at(random.normal(0, 10, 240)))["memory_mib"]
        far += abs(found.slope_per_hour) > 2.228 * found.standard_error  # t of 10 degrees, 5 %
    assert 2 <= far <= 22


def test_a_leak_is_seen(tmp_path):
    (tmp_path / "leak.py").write_text(LEAK)
    done = subprocess.run(
        [
            sys.executable, "-m", "benchmarks.soak", "--minutes=0.03", "--warm_up_minutes=0",
            "--period=0.05", f"--output={tmp_path / 'out'}", "--command=leak",
        ],
        env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    memory = next(line for line in done.stdout.splitlines() if "memory_mib" in line).split()
    slope, error = float(memory[4]), float(memory[-1])
    assert slope > 1000 and slope > 5 * error


def test_a_stop_signal_ends_the_training_too(tmp_path):
    written = tmp_path / "pid"
    (tmp_path / "endless.py").write_text(
        "import os, pathlib, time\n"
        f"pathlib.Path({str(written)!r}).write_text(str(os.getpid()))\n"
        "time.sleep(600)\n"
    )
    process = subprocess.Popen(
        [
            sys.executable, "-m", "benchmarks.soak", "--period=0.05", f"--output={tmp_path}",
            "--command=endless",
        ],
        env={**os.environ, "PYTHONPATH": str(tmp_path)}, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    while not (written.exists() and written.read_text()):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 128 + signal.SIGTERM
    assert not psutil.pid_exists(int(written.read_text()))


def test_a_missing_command_is_refused():
    done = programs.call("benchmarks.soak")
    assert done.returncode == 2
    assert done.stderr == "error: --command: name the program to watch, as --help shows\n"
