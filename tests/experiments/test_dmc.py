"""The DMControl command: from start to scores on a real task."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest

from rcrl_jax.config.presets import DMC_PRESETS, dmc_presets_of
from rcrl_jax.envs import dmc, dmc_rendering
from rcrl_jax.runs import records
from rcrl_jax.runs.paths import RunPaths
from tests.experiments import programs
from tests.experiments.test_command_line import ROOT, assert_refused, environment
from tests.training import toy_control

PROGRAM = "experiments.dmc"
SMALL = toy_control.SMALL | {
    "render_size": 24, "crop_size": 20, "replay.capacity": 400, "evaluation_period": 10_000,
    "periodic_episodes": 1,
}  # fmt: skip


def small(workdir, task, preset, env_steps):
    fields = [f"--config.{name}={value}" for name, value in SMALL.items()]
    return [
        f"--task={task}", f"--preset={preset}", f"--steps={env_steps}", f"--workdir={workdir}",
        "--eval_episodes=1", "--seed=1", *fields,
    ]  # fmt: skip


@pytest.mark.usefixtures("renderer")
@pytest.mark.parametrize("preset, task", [("rcrl_sac", "cartpole_swingup")])
def test_the_command_trains_from_start_to_scores(tmp_path, preset, task):
    """Trains for more than an episode of frames, which writes one line of metrics."""
    result = programs.call(PROGRAM, *small(tmp_path, task, preset, 8 * 140), record_period=130)
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr
    paths = RunPaths(tmp_path, preset, task, 1)
    described = json.loads(paths.manifest.read_text())
    assert described["run"]["steps"] == 140 and described["run"]["backend"] == "dm_control"
    assert described["environment"]["action_repeat"] == 8
    assert described["environment"]["task"] == task
    scores = json.loads(paths.scores.read_text())
    assert (scores["agent_steps"], scores["env_steps"], scores["frames"]) == (140, 1120, 140)
    assert scores["episodes_cut"] == 1 and 0 <= scores["mean"] <= 1000
    assert any("loss_return_contrast" in line for line in records.read_records(paths.metrics))
    again = programs.call(PROGRAM, *small(tmp_path, task, preset, 8 * 140), record_period=130)
    assert "finished already" in again.stdout


@pytest.mark.usefixtures("renderer", "envpool_renderer")
def test_the_command_trains_with_envpool(tmp_path):
    """Trains for a few updates; the work directory then belongs to that backend."""
    arguments = small(tmp_path, "cartpole_swingup", "rcrl_sac", 8 * 30)
    result = programs.call(PROGRAM, *arguments, "--backend=envpool")
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr
    paths = RunPaths(tmp_path, "rcrl_sac", "cartpole_swingup", 1)
    described = json.loads(paths.manifest.read_text())
    assert described["run"]["backend"] == described["environment"]["backend"] == "envpool"
    assert described["environment"]["renderer"] == "egl"
    scores = json.loads(paths.scores.read_text())
    assert (scores["agent_steps"], scores["env_steps"]) == (30, 240)
    assert 0 < scores["mean"] <= 1000
    other = programs.call(PROGRAM, *arguments)
    assert_refused(other)
    assert "backend envpool -> dm_control" in other.stderr


def test_a_dead_simulator_is_reported_and_the_same_command_resumes(tmp_path):
    arguments = small(tmp_path, "cartpole_swingup", "state_sac", 8 * 300)
    periods = {"record_period": 25, "checkpoint_period": 50}
    paths = RunPaths(tmp_path, "state_sac", "cartpole_swingup", 1)
    process = programs.start(PROGRAM, *arguments, **periods)
    try:
        while not (paths.metrics.exists() and last_step(paths.metrics) >= 75):
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.001)
        os.kill(worker_of(process.pid), signal.SIGKILL)
        _, said = process.communicate(timeout=120)
    finally:
        process.kill()
    assert "Traceback" not in said
    last = "error: a simulator's process has ended: the same command resumes"
    assert (process.returncode, said.splitlines()[-1]) == (1, last)
    assert not paths.scores.exists()
    resumed = programs.call(PROGRAM, *arguments, **periods)
    assert "resuming at step " in resumed.stdout and paths.scores.exists()


def last_step(metrics: pathlib.Path) -> int:
    return max((line["agent_steps"] for line in records.read_records(metrics)), default=0)


def worker_of(pid: int) -> int:
    """The simulator process of a program that has a single worker."""
    (worker,) = (
        child.pid
        for child in psutil.Process(pid).children()
        if any("spawn_main" in word for word in child.cmdline())
    )
    return worker


@pytest.mark.parametrize(
    "backend, variable, packages",
    [
        ("dm_control", "MUJOCO_GL", "libegl1 libgl1 libgl1-mesa-dri.*libosmesa6"),
        ("envpool", "__EGL_VENDOR_LIBRARY_FILENAMES", "libegl1 libgl1 libgl1-mesa-dri"),
    ],
)
def test_a_missing_renderer_is_reported_with_the_packages_to_install(
    tmp_path, monkeypatch, backend, variable, packages
):
    monkeypatch.setenv(variable, "/nonexistent")
    dmc_rendering.find_renderer.cache_clear()
    dmc_rendering.find_envpool_renderer.cache_clear()
    result = programs.call(PROGRAM, f"--backend={backend}", directory=tmp_path)
    assert_refused(result)
    assert re.search(packages, result.stderr) and not list(tmp_path.iterdir())


def test_a_task_with_its_own_learning_rate_gets_it():
    assert {p.learning_rate for p in dmc_presets_of("cheetah_run").values()} == {2e-4}
    for task in dmc.DMC_TASKS.keys() - {"cheetah_run"}:
        assert dmc_presets_of(task) == DMC_PRESETS


def test_the_renderer_check_of_make_prints_one_line(renderer):
    ask = [sys.executable, "-m", "rcrl_jax.envs.dmc_rendering"]
    answer = subprocess.run(ask, cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert answer.stdout == f"DMControl renders with {renderer}\n"
    nothing = {**os.environ, "PYTHONPATH": str(ROOT), "MUJOCO_GL": "nonsense"}
    refusal = subprocess.run(ask, cwd=ROOT, env=nothing, capture_output=True, text=True)
    assert refusal.returncode == 1 and refusal.stderr.startswith("error: nothing renders")
