"""The programs as commands of an environment, where another package has the name experiments."""

import re
import subprocess
import sys

import pytest

import rcrl_jax
from rcrl_jax.programs import commands
from rcrl_jax.programs.sweeps import local
from tests.programs import programs
from tests.programs.test_command_line import ROOT, assert_refused


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """The current folder: one with packages of the same names."""
    for name in ("experiments", "benchmarks"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('the wrong package')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return tmp_path


def test_a_sweep_starts_this_project_anywhere(elsewhere):
    log = elsewhere / "log"
    command = [sys.executable, "-m", "rcrl_jax.programs.evaluate", "--workdir=nowhere"]
    assert local.start_process(command, log, cores=0, niceness=0).wait() == 2, log.read_text()
    assert "nowhere" in log.read_text()


def run_as(command: str, *arguments: str, missing: str = "") -> subprocess.CompletedProcess:
    """Runs a command, as if a package were not installed."""
    program = (
        f"import sys; sys.argv = {[command, *arguments]!r}; "
        f"sys.orig_argv = ['python', *sys.argv]; sys.modules[{missing!r}] = None; "
        "from rcrl_jax.programs import commands; commands.run()"
    )
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize(
    "command, missing",
    [
        ("rcrl-compare", "pandas"), ("rcrl-report", "pandas"), ("rcrl-report", "jinja2"),
        ("rcrl-table1", "pandas"), ("rcrl-table2", "pandas"),
    ],
)  # fmt: skip
def test_help_is_printed_without_the_packages_of_tables(command, missing):
    """`pip install .` leaves them out."""
    ended = run_as(command, "--help", missing=missing)
    assert ended.returncode == 0, ended.stderr
    assert f"{command} --results=results" in ended.stdout
    assert f"no {missing}: make trial, or pip install 'rcrl-jax[tables]'" in ended.stdout
    refused = run_as(command, missing=missing)
    assert_refused(refused)
    assert "pip install 'rcrl-jax[tables]'" in refused.stderr


@pytest.mark.parametrize("command", ["rcrl-doctor", "rcrl-report", "rcrl-table1"])
def test_the_version_is_printed_without_the_packages_of_tables(command):
    ended = run_as(command, "--version", missing="pandas")
    assert (ended.returncode, ended.stdout) == (0, f"{rcrl_jax.__version__}\n"), ended.stderr


def test_a_command_calls_programs_by_the_names_that_were_typed():
    """And `python -m` by those."""
    for command, module in commands.PROGRAMS.items():
        helped = programs.call(module, "--help", command=command).stdout
        assert command in helped and "python -m" not in helped, command
        assert not re.search(rf"\b{re.escape(module)}\b(?!\.)", helped), command
    helped = programs.run("experiments.atari100k", "--help").stdout
    assert "python -m experiments.atari100k --game=Pong" in helped and "rcrl-" not in helped
    helped = programs.run("rcrl_jax.programs.atari100k", "--help").stdout
    assert "python -m rcrl_jax.programs.atari100k --game=Pong" in helped
    assert "experiments" not in helped and "rcrl-" not in helped
