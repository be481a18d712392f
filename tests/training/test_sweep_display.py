"""What a sweep shows: every fleet in one table on a terminal, plain lines elsewhere."""

import io
import json

import pytest
from rich.console import Console

from rcrl_jax.training.sweep import collection, display
from rcrl_jax.training.sweep.progress import (
    NOTHING_YET,
    Progress,
    State,
    Status,
    read_progress,
    seconds_left,
)
from rcrl_jax.training.sweep.spec import Arm, Fleet
from tests.training import toy_sweep
from tests.training.toy_sweep import alone

RCRL = Arm("rcrl", "rcrl")


def status(game, state, *, seeds=(0,), step=0, rate=None, wall_s=0.0, attempts=1, failure=""):
    fleet = Fleet(RCRL, (game,), seeds)
    return Status(fleet, 100, state, attempts, "", Progress(step, rate, wall_s), failure)


STATUSES = [
    status("Finished", State.FINISHED, step=100, rate=9.0, wall_s=50.0),
    status("Failed", State.FAILED, step=30, attempts=2, failure="exit code 1: bo\x1bom [bold]"),
    status("Waiting", State.WAITING, seeds=(0, 1, 2, 3), attempts=0),
    status("Running", State.RUNNING, step=40, rate=2.0, wall_s=10.0),
    status("Evaluating", State.RUNNING, step=100, rate=2.0, wall_s=20.0),
]


def render(statuses, runs, height=30):
    console = Console(file=io.StringIO(), width=140)
    console.print(display.make_table(statuses, runs, height=height))
    return console.file.getvalue().splitlines()


def test_the_table_shows_every_fleet_running_ones_first():
    text = render(STATUSES, 20)
    rows = [
        [cell.strip() for cell in line.strip("│").split("│")] for line in text if "rcrl" in line
    ]
    assert [row[0] for row in rows[:3]] == ["rcrl-Running-0", "rcrl-Evaluating-0", "rcrl-Failed-0"]
    assert rows[0][1:] == ["running", "40 / 100", "2.0", "30 s", "1", ""]
    assert rows[1][1:3] == ["evaluating", "100 / 100"]
    assert rows[2][1:] == ["failed", "30 / 100", "", "", "2", "exit code 1: boom [bold]"]
    assert rows[3][1:] == ["waiting", "0 / 100", "", "", "0", ""]
    assert rows[4][1:4] == ["finished", "100 / 100", ""]
    # 8 of the 20 runs are in these fleets, one of them finished.
    assert "13 of 20 runs finished, 1 failed, about 51 s left" in " ".join(text)


@pytest.mark.parametrize("height", range(1, 16))
def test_the_table_fits_the_terminal_and_counts_what_it_hides(height):
    text = render(STATUSES * 2, 40, height)
    assert len(text) < max(height, 8)
    shown = sum("rcrl-" in line for line in text)
    assert shown == min(max(height - 7, 1), 10)
    if shown < 10:
        assert f"and {10 - shown} more fleets: " in text[-1]


def test_the_time_left_is_that_of_all_runs_at_the_present_rate():
    # To go: 4 x 100 + 60 + 0 steps of runs; rate: 4/s + 5/s.
    assert seconds_left(STATUSES) == pytest.approx(460 / 9)
    assert seconds_left(STATUSES[:3]) is None


def test_the_plain_line():
    assert display.describe(STATUSES, 20) == (
        "13 of 20 runs finished, 1 failed, about 51 s left; "
        "rcrl-Running-0 at step 40, 2.0 steps/s; rcrl-Evaluating-0 at step 100, 2.0 steps/s"
    )


@pytest.mark.parametrize(
    "seconds, text",
    [
        (0, "0 s"), (59.4, "59 s"), (59.6, "1 min"), (3599, "1 h 00 min"), (3500, "58 min"),
        (3 * 3600 + 300, "3 h 05 min"), (50 * 3600, "2 d 02 h"),
    ],
)  # fmt: skip
def test_durations_have_two_units_at_most(seconds, text):
    assert display.duration(seconds) == text


def test_lines_are_plain_and_a_minute_apart(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
    with display.open_display() as lines:
        assert isinstance(lines, display.Lines)  # standard output is no terminal here
        for second in range(0, 130):
            now[0] = float(second)
            lines.update(STATUSES, 20)
        lines.say("started [red]x[/]")
    out = capsys.readouterr().out
    assert out.splitlines() == [display.describe(STATUSES, 20)] * 2 + ["started [red]x[/]"]


def test_the_live_table_is_drawn_in_place_below_the_lines(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")  # a dumb terminal cannot be drawn on
    console = Console(file=io.StringIO(), width=100, height=30, force_terminal=True)
    with display.LiveTable(console) as table:
        table.update(STATUSES, 20)
        table.say("started [red]x[/]")
        table.update(STATUSES, 20)
    text = console.file.getvalue()
    assert "started [red]x[/]" in text and "rcrl-Running-0" in text
    assert "\x1b[1A\x1b[2K" in text  # the cursor goes up and clears the line


def test_progress_is_that_of_the_last_complete_line(tmp_path):
    unit = toy_sweep.make_spec(tmp_path).units[0]
    paths = collection.work_paths(tmp_path, alone(unit), unit)
    assert read_progress(paths) == NOTHING_YET
    paths.directory.mkdir(parents=True)
    lines = io.StringIO()
    for step in range(1000):
        rate = {"steps_per_s": 2.5} if step == 900 else {}
        lines.write(json.dumps({"agent_steps": step, "wall_s": step / 2, **rate}) + "\n")
    paths.metrics.write_text(lines.getvalue() + '{"agent_steps": 10')
    assert read_progress(paths) == (999, 2.5, 499.5)
