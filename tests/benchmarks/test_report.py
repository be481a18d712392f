"""The command writes the page and says what is left out; the smoke test notices what is missing."""

import pathlib
import subprocess

import pytest

from benchmarks import smoke
from benchmarks.tables import page, runs, scores, table
from tests.benchmarks.tables import pages
from tests.experiments import programs
from tests.experiments.test_command_line import assert_refused


def command(*arguments) -> programs.Ended:
    return programs.call("benchmarks.report", *arguments)


def test_the_page_is_written_and_what_is_left_out_is_named(tmp_path):
    root = tmp_path / "results"
    pages.write_run(root, "rcrl", "Pong", 0, 10.0)
    (pages.write_run(root, "rcrl", "Pong", 1, 10.0) / "scores.json").write_text("{")
    output = tmp_path / "new" / "report.html"
    result = command(f"--results={root}", f"--output={output}")
    assert result.returncode == 0, result.stderr
    (line,) = result.stderr.splitlines()
    assert "seed_1/scores.json is damaged" in line
    assert result.stdout == f"{output}: runs: 1, left out: 1\n"
    assert 'href="../results/rcrl/Pong/seed_0/"' in output.read_text(encoding="utf-8")


def test_a_missing_directory_is_refused_and_an_old_page_stays(tmp_path):
    output = tmp_path / "report.html"
    output.write_text("old")
    result = command("--results=/nowhere", f"--output={output}")
    assert_refused(result)
    assert "/nowhere" in result.stderr
    assert output.read_text() == "old"
    result = command(f"--results={tmp_path}", f"--output={tmp_path}")
    assert_refused(result)
    assert "is a directory" in result.stderr


@pytest.fixture
def finished(tmp_path) -> pathlib.Path:
    """What the commands of the smoke test leave, from runs that nobody trained."""
    for preset in smoke.PRESETS:
        for game in smoke.GAMES:
            for seed in range(smoke.SEEDS):
                pages.write_run(tmp_path / "results", preset, game, seed, 10.0)
        pages.write_run(tmp_path / "recorded", preset, smoke.GAMES[0], smoke.SEEDS, 10.0)
    write_outputs(tmp_path)
    return tmp_path


def write_outputs(directory: pathlib.Path) -> None:
    roots = [directory / "results", directory / "recorded"]
    built = page.build(roots, directory / "report.html", date="today", commit=None)
    (directory / "report.html").write_text(built.html, encoding="utf-8")
    table.write(scores.table1(runs.read(*roots).frame), directory / "report", "table1")


def test_complete_outputs_pass_the_check(finished):
    assert smoke.check(finished) == []


def test_a_missing_run_fails_the_check(finished):
    text = (finished / "report.html").read_text(encoding="utf-8")
    (finished / "report.html").write_text(text.replace("Asterix/seed_1/", ""), encoding="utf-8")
    assert [line.rpartition("/")[2] for line in smoke.check(finished)] == ["seed_1"] * 2
    run = finished / "results" / "rcrl" / "Asterix" / "seed_0"
    (run / "scores.json").unlink()
    first, *_, last = smoke.check(finished)
    assert first == "9 of 10 runs are finished"
    assert last == "table1.csv lacks runs of rcrl on Asterix"


def test_the_smoke_test_ends_where_a_command_fails(tmp_path, monkeypatch, capsys):
    called = []

    def fail_at_table1(command):
        called.append(command[2])
        return subprocess.CompletedProcess(command, 3 * (command[2] == "benchmarks.table1"))

    monkeypatch.setattr(smoke.subprocess, "run", fail_at_table1)
    assert smoke.run(tmp_path / "new") == 1
    assert called[0] == "experiments.sweep" and called[-1] == "benchmarks.table1"
    assert "exit code 3" in capsys.readouterr().err


def test_the_smoke_test_refuses_a_directory_with_files(finished):
    with pytest.raises(ValueError, match="not empty"):
        smoke.run(finished)
