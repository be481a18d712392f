"""The programs as commands of an environment, where another package has the name experiments."""

import importlib.metadata
import importlib.util
import pathlib
import subprocess
import sys

import pytest

from experiments import commands
from experiments.sweeps import local


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """The current folder: one with packages of the same names."""
    for name in ("experiments", "benchmarks"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('the wrong package')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return tmp_path


def test_every_command_is_installed_and_names_a_program():
    points = importlib.metadata.distribution("rcrl-jax").entry_points
    assert {p.name for p in points} == set(commands.PROGRAMS)
    assert all(map(importlib.util.find_spec, commands.PROGRAMS.values()))


@pytest.mark.usefixtures("elsewhere")
def test_a_command_runs_this_project_anywhere():
    program = pathlib.Path(sys.executable).with_name("rcrl-table1")
    result = subprocess.run([program, "--help"], capture_output=True, text=True)
    assert result.returncode == 0 and "Table 1" in result.stdout, result.stderr


def test_a_sweep_starts_this_project_anywhere(elsewhere):
    log = elsewhere / "log"
    command = [sys.executable, "-m", "experiments.evaluate", "--workdir=nowhere"]
    assert local.start_process(command, log, cores=0, niceness=0).wait() == 2, log.read_text()
    assert "nowhere" in log.read_text()
