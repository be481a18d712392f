"""The sweep command: a real fleet from start to results, and mistakes in one line."""

import ast
import json
import os
import pty
import re
import subprocess
import sys

import pytest

from rcrl_jax.training import manifest
from rcrl_jax.training.run_paths import RunPaths
from rcrl_jax.training.sweep import driver
from tests.experiments import programs
from tests.experiments.test_atari100k import SMALL
from tests.experiments.test_command_line import ROOT, assert_refused, environment

RUNS = ("--presets=erainbow,rcrl", "--games=Pong,Alien", "--seeds=0:2", "--results=results/toy")


def command(*flags, directory) -> programs.Ended:
    return programs.call("benchmarks.sweep", *flags, directory=directory)


def states(*flags, directory):
    """Run -> its fleet, from --dry_run."""
    result = command(*flags, "--dry_run", directory=directory)
    assert result.returncode == 0, result.stderr
    lines = [line.removeprefix("to do").split() for line in result.stdout.splitlines()]
    return {line[0]: line[-1] for line in lines}


def test_a_real_fleet_from_start_to_results(tmp_path):
    overrides = [f"--config.{name}={value}" for name, value in SMALL.items()]
    flags = (
        "--presets=erainbow", "--games=Pong,Alien", "--seeds=3", "--results=results/toy",
        "--steps=60", "--eval_episodes=2", "--name=small", "--max_runs_per_fleet=2",
        "--niceness=0", *overrides,
    )  # fmt: skip
    result = command(*flags, directory=tmp_path)
    directory = tmp_path / "runs" / "sweep" / "toy"
    log = "".join(path.read_text() for path in directory.glob("*.log"))
    assert result.returncode == 0, result.stdout + result.stderr + log
    assert result.stdout.splitlines()[0].startswith("2 runs to do in 1 fleets, process group ")
    assert result.stdout.splitlines()[-1] == "2 finished, 0 failed, 0 left"
    for game in ("Pong", "Alien"):
        paths = RunPaths(tmp_path / "results" / "toy" / "erainbow-small", "erainbow", game, 3)
        assert len(json.loads(paths.scores.read_text())["returns"]) == 2
        run = json.loads(paths.manifest.read_text())["run"]
        values = manifest.config_values(run["config"])
        assert run["steps"] == 60 and {name: values[name] for name in SMALL} == SMALL
    assert {path.name for path in directory.iterdir()} == {
        "lock", next(directory.glob("*.log")).name
    }  # fmt: skip

    again = command(*flags, directory=tmp_path)
    assert again.stdout.splitlines()[0].startswith("0 runs to do in 0 fleets")
    assert (again.returncode, again.stdout.splitlines()[-1]) == (0, "2 finished, 0 failed, 0 left")


def test_a_sweep_that_fails_ends_with_1_and_shows_why_on_a_terminal(tmp_path):
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [
            sys.executable, "-m", "benchmarks.sweep", "--presets=rcrl", "--games=Pong",
            "--seeds=0", "--results=results/toy", "--attempts=1",
        ],
        cwd=tmp_path, stdout=theirs, stderr=theirs,
        env=environment() | {"JAX_PLATFORMS": "nonsense", "COLUMNS": "160", "TERM": "xterm"},
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    while chunk := _read(ours):
        shown += chunk
    assert process.wait() == 1
    text = shown.decode()
    assert "0 of 1 runs finished, 1 failed" in text and "│" in text
    assert "failed rcrl-Pong-0: exit code 1" in text and "exit code 1: " in text
    assert text.rstrip().endswith("0 finished, 1 failed, 0 left")


def _read(descriptor):
    try:
        return os.read(descriptor, 2**16)
    except OSError:  # Linux's word for the end of a terminal
        return b""


def test_every_preset_runs_on_every_game_with_every_seed(tmp_path):
    single = states(*RUNS, directory=tmp_path)
    assert list(single) == [
        f"{preset}-{game}-{seed}"
        for seed in (0, 1) for game in ("Pong", "Alien") for preset in ("erainbow", "rcrl")
    ]  # fmt: skip
    assert all(fleet == run for run, fleet in single.items())  # a core each
    assert len(set(states(*RUNS, "--max_runs_per_fleet=4", directory=tmp_path).values())) == 2
    assert not os.listdir(tmp_path)


def test_all_stands_for_all_games_and_tasks_share_fleets_where_they_can(tmp_path):
    common = ("--games=all", "--seeds=7", "--results=r", "--max_runs_per_fleet=130")
    assert len(states("--presets=rcrl", *common, directory=tmp_path)) == 26
    tasks = states("--experiment=dmc", "--presets=sac_aug", *common, directory=tmp_path)
    assert len(tasks) == 6
    assert len(set(tasks.values())) == 4  # action repeats 2, 8, 4 and cheetah's learning rate
    assert tasks["sac_aug-finger_spin-7"] == tasks["sac_aug-walker_walk-7"]


@pytest.mark.parametrize(
    "flags, says",
    [
        (RUNS[1:], "--presets: missing"),
        (RUNS[:1], "--games: missing"),
        (RUNS[:3], "--results: missing"),
        ((*RUNS, "--games=Pong,Alein"), "--games: unknown 'Alein': did you mean Alien?"),
        ((*RUNS, "--presets=rcl"), "--presets: unknown 'rcl': did you mean rcrl?"),
        (
            (*RUNS, "--seeds=2:2"),
            "--seeds: expected different seeds like 0,1,2 or a range like 0:5",
        ),
        ((*RUNS, "--seeds=1,1"), "--seeds: expected different seeds"),
        ((*RUNS, "--experiment=atari"), "--experiment=atari"),
        ((*RUNS, "--steps=0"), "--steps=0"),
        ((*RUNS, "--max_runs_per_fleet=0"), "--max_runs_per_fleet=0"),
        ((*RUNS, "--config.n_step=9"), "--name: goes with changed fields"),
        ((*RUNS, "--name=n9"), "--name: goes with changed fields"),
        ((*RUNS, "--name=a/b", "--config.n_step=9"), "erainbow-a/b: not a name for an arm"),
        ((*RUNS, "--name=n0", "--config.n_step=0"), "n_step: must be at least 1"),
        ((*RUNS, "--name=n0", "--config.n_stp=0"), "did you mean n_step?"),
        ((*RUNS, "--launcher=ray", "--address=127.0.0.1:1"), "--address: no Ray cluster at"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(tmp_path, flags, says):
    result = command(*flags, directory=tmp_path)
    assert_refused(result)
    assert says in result.stderr
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("flags", [(), ("--dry_run",)])
def test_results_that_are_a_file_are_refused(tmp_path, flags):
    (tmp_path / "taken").touch()
    for results in ("taken", "taken/below"):
        result = command(*RUNS, f"--results={results}", *flags, directory=tmp_path)
        assert_refused(result)
        assert "results: taken is not a directory" in result.stderr
    assert os.listdir(tmp_path) == ["taken"]


def test_results_that_cannot_be_made_are_refused_before_training(tmp_path):
    result = command(*RUNS, "--results=/proc/results", directory=tmp_path)
    assert_refused(result)
    assert "results: /proc/results cannot be written: " in result.stderr


@pytest.mark.parametrize("results", [".", "..", "../inner/"])
def test_a_sweep_is_named_after_the_directory_that_the_results_are(tmp_path, results):
    directory = tmp_path / "outer" / "inner"
    directory.mkdir(parents=True)
    name = "outer" if results == ".." else "inner"
    with driver.locked(directory / "runs" / "sweep" / name):
        result = command(*RUNS, f"--results={results}", directory=directory)
    assert_refused(result)
    assert f"runs/sweep/{name} is in use" in result.stderr


def test_the_defaults_are_those_of_the_programs():
    program = (ROOT / "benchmarks" / "sweep.py").read_text()
    protocols = ast.literal_eval(re.search(r"^PROTOCOLS = (.*)$", program, re.MULTILINE)[1])
    for name, expected in protocols.items():
        source = (ROOT / "experiments" / f"{name}.py").read_text()
        found = [re.search(rf'"{flag}", ([\d_]+),', source) for flag in ("steps", "eval_episodes")]
        assert tuple(int(match[1]) for match in found) == expected
        assert all(f"{number} for {name}" in program for number in expected)


def test_help_explains_every_flag(tmp_path):
    asked = programs.run("benchmarks.sweep", "--help", directory=tmp_path)
    for word in ("--presets", "--games", "--seeds", "--results", "--max_runs_per_fleet",
                 "--attempts", "--launcher", "--address", "--gpus_per_fleet", "dry_run",
                 "failures.jsonl", "--config.n_step"):  # fmt: skip
        assert word in asked.stdout
