"""Progress: a bar on a terminal, plain lines elsewhere."""

import contextlib
import io
import os
import sys
import termios

import pytest

from rcrl_jax.training import progress
from rcrl_jax.training.progress import Progress


class _Clock:
    """A clock that only the test moves."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def test_progress_in_a_file_is_a_line_every_30_seconds(monkeypatch):
    clock = _Clock()
    monkeypatch.setattr(progress.time, "monotonic", clock)
    file = io.StringIO()
    with Progress(100, start=20, file=file) as shown:
        for step in range(80):
            clock.now += 1.0
            shown.advance(last_score=12.5 if step == 40 else None)
        shown.close()
        clock.now += 60.0  # the final evaluation, which counts no steps
    assert file.getvalue().rstrip("\n").split("\n") == [
        "20/100 steps, 20.0 %, ? steps/s, ? left",
        "50/100 steps, 50.0 %, 1.00 steps/s, 0:00:50 left",
        "80/100 steps, 80.0 %, 1.00 steps/s, 0:00:20 left, last score 12.5",
        "100/100 steps, 100.0 %, 1.00 steps/s, 0:00:00 left, last score 12.5",
    ]


def test_updates_between_two_steps_are_counted_and_the_rate_is_of_all_the_time(monkeypatch):
    """Ten steps of a tenth of a second, then ten updates of five seconds, and again."""
    clock = _Clock()
    monkeypatch.setattr(progress.time, "monotonic", clock)
    file = io.StringIO()
    with Progress(40, file=file) as shown:
        for _ in range(2):
            for _ in range(10):
                clock.now += 0.1
                shown.advance()
            for update in range(9):
                clock.now += 5.0
                shown.advance(0, updates=(update + 1, 10))
    here = "at this step"
    assert file.getvalue().rstrip().splitlines() == [
        "0/40 steps, 0.0 %, ? steps/s, ? left",
        f"10/40 steps, 25.0 %, update 6 of 10 {here} (0:00:20 more), 0.32 steps/s, 0:01:33 left",
        f"20/40 steps, 50.0 %, update 3 of 10 {here} (0:00:35 more), 0.32 steps/s, 0:01:02 left",
        f"20/40 steps, 50.0 %, update 9 of 10 {here} (0:00:05 more), 0.22 steps/s, 0:01:32 left",
        f"20/40 steps, 50.0 %, update 9 of 10 {here} (0:00:05 more), 0.22 steps/s, 0:01:32 left",
    ]


def test_the_time_left_is_measured_on_steps_that_train(monkeypatch):
    """Of 400 steps, 100 are free, the next compiles for 40 seconds, each after it takes 2."""
    clock = _Clock()
    monkeypatch.setattr(progress.time, "monotonic", clock)
    file = io.StringIO()
    with Progress(400, measured_from=101, file=file) as shown:
        for step in range(400):
            clock.now += 0.01 if step < 100 else 40.0 if step == 100 else 2.0
            shown.advance()
    lines = file.getvalue().rstrip().splitlines()
    assert lines[:3] == [
        "0/400 steps, 0.0 %, ? steps/s, ? left",
        "101/400 steps, 25.2 %, ? steps/s, ? left",
        "116/400 steps, 29.0 %, 0.50 steps/s, 0:09:28 left",
    ]
    assert all("0.50 steps/s" in line for line in lines[2:])
    assert lines[-1] == "400/400 steps, 100.0 %, 0.50 steps/s, 0:00:00 left"


def _progress_on_a_terminal(monkeypatch, *, rows=24, columns):
    """Everything that is written to a terminal of this size, as standard error."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns or 80))  # which Rich asks first
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (rows, columns))
    with open(theirs, "w") as file:
        monkeypatch.setattr(sys, "stderr", file)
        with Progress(100) as shown:
            shown.advance(100, last_score=-3.25)
        file.write("END")
    sent = b""
    while not sent.endswith(b"END"):
        sent += os.read(ours, 1000)
    os.close(ours)
    return sent.decode().removesuffix("END")


@pytest.mark.parametrize("rows, columns", [(0, 0), (0, 80), (24, 0)])
def test_progress_on_a_terminal_without_a_size_is_lines(monkeypatch, rows, columns):
    lines = _progress_on_a_terminal(monkeypatch, rows=rows, columns=columns).split()
    assert lines.count("100/100") >= 1
    assert lines[-1] == "-3.2"  # nothing is cut


def test_progress_on_a_terminal_is_one_line_that_is_redrawn(monkeypatch):
    sent = _progress_on_a_terminal(monkeypatch, columns=100)
    assert sent.count("\n") == 1
    assert "\x1b[2K" in sent and "\x1b[?25l" not in sent  # clears the line, hides no cursor
    last_state = sent.rstrip().split("\r")[-1]
    assert "━" in last_state and " 100/100 steps, 100.0 %" in last_state
    assert "last score -3.2" in last_state


def test_work_goes_on_when_the_terminal_is_closed(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    for columns in (100, 0):  # a bar, and lines
        ours, theirs = os.openpty()
        termios.tcsetwinsize(theirs, (24 if columns else 0, columns))
        file = os.fdopen(theirs, "w", buffering=1)
        with Progress(100, file=file) as shown:
            os.close(ours)
            with pytest.raises(OSError):
                print("lost", file=file, flush=True)
            monkeypatch.setattr(progress, "_BAR_EVERY_S", -1.0)
            monkeypatch.setattr(progress, "_LINE_EVERY_S", -1.0)
            shown.advance(50)
        with contextlib.suppress(OSError):
            file.close()
