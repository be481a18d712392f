"""The table of the readings by hand, and which results are refused."""

import json

import numpy as np
import pytest

from benchmarks import mechanism
from tests.experiments import programs


def write(results, stage, arm, game, seed, *values):
    directory = results / stage / arm / "rcrl" / game / f"seed_{seed}"
    directory.mkdir(parents=True)
    lines = [
        {"agent_steps": 100 * (i + 1), mechanism.MEASURE: value, "unseen_auc": 0.25}
        | {f"{mechanism.MEASURE}_clock": 0.75}
        for i, value in enumerate(values)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (directory / "evaluations.jsonl").write_text(text)
    (directory / "scores.json").write_text("{}")


def test_the_score_of_a_reading_is_the_mean_of_its_worst_game(tmp_path):
    write(tmp_path, "first", "one", "Alien", 0, 0.5, 0.9)
    write(tmp_path, "first", "one", "Alien", 1, 0.5, 0.7)
    write(tmp_path, "first", "one", "Pong", 0, 0.5, 0.85)
    write(tmp_path, "first", "one", "Pong", 1, 0.5, None)
    runs = mechanism.read_runs(tmp_path)
    assert [run.seed for run in runs] == [0, 1, 0, 1]
    assert mechanism.worst_game(runs) == ("Alien", pytest.approx(0.8))
    game, value = mechanism.worst_game(runs[3:])
    assert game == "-" and np.isnan(value)
    text = mechanism.table(runs)
    assert "| `one` | Alien | 0.800 | 4 |" in text
    # Each area, its clock, and the area at matched time, which these runs lack.
    row = "| `one` | Pong | 0 | 200 | 0.850 | 0.750 | – | 0.250 | – | – |"
    assert row in text and "| `one` | Pong | 1 | 200 | – |" in text


def test_the_command_writes_table_and_figure_and_refuses_an_empty_directory(tmp_path):
    def run():
        return programs.call("benchmarks.mechanism", f"--results={tmp_path}")

    refused = run()
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1
    write(tmp_path, "first", "one", "Alien", 0, 0.5, 0.9)
    write(tmp_path, "second", "two", "Pong", 3, None, 0.9)
    done = run()
    assert done.returncode == 0, done.stderr
    assert "| `two` | Pong | 0.900 | 1 |" in (tmp_path / "table.md").read_text()
    assert (tmp_path / "auc.png").read_bytes().startswith(b"\x89PNG")
