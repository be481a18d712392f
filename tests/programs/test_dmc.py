"""The DMControl command: from start to scores on a real task."""

import functools
import json
import multiprocessing
import re

import pytest

from rcrl_jax.config import presets
from rcrl_jax.config.fields import without_effect
from rcrl_jax.config.presets import DMC_PRESETS, WORLD_MODEL_PRESETS, control_presets
from rcrl_jax.envs import dmc, dmc_rendering, dmc_worker
from rcrl_jax.runs import records
from rcrl_jax.runs.paths import RunPaths
from tests.envs import diverging
from tests.programs import programs
from tests.programs.test_command_line import assert_refused
from tests.training import toy_control

PROGRAM, TASK = "experiments.dmc", "cartpole_swingup"
SMALL = toy_control.SMALL | {
    "render_size": 24, "crop_size": 20, "replay.capacity": 400, "evaluation_period": 10_000,
    "periodic_episodes": 1,
}  # fmt: skip


def small(workdir, task, preset, env_steps):
    unused = without_effect(presets.control_presets()[preset])
    used = {name: value for name, value in SMALL.items() if name not in unused}
    fields = [f"--config.{name}={value}" for name, value in used.items()]
    return [
        f"--task={task}", f"--preset={preset}", f"--steps={env_steps}", f"--workdir={workdir}",
        "--eval_episodes=1", "--seed=1", *fields,
    ]  # fmt: skip


def kill_the_worker() -> None:
    (worker,) = multiprocessing.active_children()
    worker.kill()


@pytest.mark.usefixtures("renderer", "envpool_renderer")
@pytest.mark.parametrize("backend", ["dm_control", "envpool"])
def test_the_command_trains_from_start_to_scores(tmp_path, backend):
    arguments = small(tmp_path, TASK, "rcrl_sac", 8 * 30)
    result = programs.call(PROGRAM, *arguments, f"--backend={backend}", record_period=5)
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr
    paths = RunPaths(tmp_path, "rcrl_sac", TASK, 1)
    described = json.loads(paths.manifest.read_text())
    assert described["run"]["backend"] == described["environment"]["backend"] == backend
    assert described["environment"]["action_repeat"] == 8
    assert described["environment"]["task"] == TASK
    scores = json.loads(paths.scores.read_text())
    assert (scores["agent_steps"], scores["env_steps"], scores["frames"]) == (30, 240, 30)
    assert scores["episodes_cut"] == 1 and 0 <= scores["mean"] <= 1000
    assert any("loss_return_contrast" in line for line in records.read_records(paths.metrics))


def test_a_dead_simulator_is_reported_and_the_same_command_resumes(tmp_path):
    arguments = small(tmp_path, TASK, "state_sac", 8 * 80)
    paths = RunPaths(tmp_path, "state_sac", TASK, 1)
    with programs.after_a_save(kill_the_worker):
        ended = programs.call(PROGRAM, *arguments, checkpoint_period=50)
    assert "Traceback" not in ended.stderr
    last = (
        "error: a simulator's process has ended: the same command goes on from the last "
        "checkpoint, and ends here again unless the reason has passed"
    )
    assert (ended.returncode, ended.stderr.splitlines()[-1]) == (1, last)
    assert not paths.scores.exists()
    resumed = programs.call(PROGRAM, *arguments, checkpoint_period=50)
    assert "resuming at step " in resumed.stdout and paths.scores.exists()


def test_a_run_gets_past_a_physics_error_which_it_counts_and_reports(tmp_path, monkeypatch):
    """At agent step 41; also if it is interrupted after that, and in evaluations."""
    monkeypatch.setattr(dmc_worker, "work", functools.partial(diverging.work, 8 * 40 + 3))
    whole, parts = (RunPaths(tmp_path / name, "state_sac", TASK, 1) for name in ("a", "b"))
    result = programs.call(PROGRAM, *small(whole.workdir, TASK, "state_sac", 8 * 80))
    assert result.returncode == 0, result.stderr
    warning = f"warning: {TASK}, seed 1: a physics error at agent step 41; the episode is cut there"
    assert result.stdout.count("physics error") == 1 and warning in result.stdout
    (line,) = [x for x in records.read_metrics(whole.metrics) if "episode_length" in x]
    assert (line["agent_steps"], line["episode_length"], line["physics_errors"]) == (41, 41, 1)
    (line,) = records.read_evaluations(whole.evaluations)
    assert (line["episodes_cut"], line["physics_errors"]) == (1, 1)

    arguments = small(parts.workdir, TASK, "state_sac", 8 * 80)
    with programs.after_a_save(kill_the_worker):
        assert programs.call(PROGRAM, *arguments, checkpoint_period=50).returncode == 1
    assert programs.call(PROGRAM, *arguments).returncode == 0
    assert parts.scores.read_text() == whole.scores.read_text()  # and the digests of all records


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
    of_cheetah = control_presets("cheetah_run")
    assert {of_cheetah[name].learning_rate for name in DMC_PRESETS} == {2e-4}
    for task in dmc.DMC_TASKS.keys() - {"cheetah_run"}:
        assert control_presets(task) == DMC_PRESETS | WORLD_MODEL_PRESETS


def test_the_renderer_check_of_make_refuses_in_one_line():
    refusal = programs.run("rcrl_jax.envs.dmc_rendering", MUJOCO_GL="nonsense")
    assert refusal.returncode == 1 and refusal.stderr.startswith("error: nothing renders")
