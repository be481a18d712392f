"""Trainings that are killed or damaged, and resumed, end bit for bit like undisturbed ones.

The environment variable KILLS is the number of processes that are killed, of Atari and again of
control from pixels, whose frames lie in `frames.log`; a run is killed up to ten times. Damage that
must be refused, and flipped bits of checkpoints, are in tests/training/test_damage.py.
"""

import os
import random
import shutil
import signal
import time

import pytest

from rcrl_jax.envs.frame_log import FRAME_LOG
from rcrl_jax.training import experiment
from tests.programs import programs
from tests.training import damage_trials, toy, toy_control
from tests.training.toy import assert_same_result, last_step

pytestmark = pytest.mark.endurance

KILLS, KILLS_A_RUN = int(os.environ.get("KILLS", 10)), 10
SEEDS = (3, 5)
START_S = 4.0  # imports and compilation, roughly: kills during the start are spread over it


def make_plan(directory, family="atari"):
    if family == "pixels":
        return toy_control.make_plan(directory, "rcrl_sac", own=(2, 2), seeds=SEEDS)
    return toy.make_plan(directory, seeds=SEEDS)


def start(directory, family="atari"):
    module = "tests.training." + {"atari": "toy", "pixels": "toy_control"}[family]
    return programs.start(module, str(directory), *map(str, SEEDS))


def undisturbed(directory, family="atari"):
    """The plan of finished runs."""
    plan = make_plan(directory, family)
    experiment.run(plan, say=lambda line: None)
    return plan


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return undisturbed(tmp_path_factory.mktemp("reference"))


def is_saving(plan) -> bool:
    return any(toy.paths_of(plan).checkpoints.glob("*.partial*"))


def wait_for_moment(process, plan, rng: random.Random) -> None:
    """Waits for a random moment: of the start, of a random step, or amid a checkpoint."""
    kind = rng.choice(("start", "step", "step", "checkpoint", "checkpoint"))
    metrics = toy.paths_of(plan).metrics
    last = last_step(metrics)
    if kind == "start" or last == plan.total_steps:  # trained, but not evaluated
        time.sleep(rng.uniform(0, START_S))
        return
    step = rng.randint(last, plan.total_steps - 1)
    while process.poll() is None:
        if is_saving(plan) if kind == "checkpoint" else last_step(metrics) > step:
            time.sleep(rng.uniform(0, 0.03))
            if kind == "step" or rng.random() < 0.5:  # else amid a later checkpoint
                return
        time.sleep(0.001)


@pytest.mark.parametrize("family", ["atari", "pixels"])
def test_killed_runs_end_as_undisturbed(family, tmp_path):
    rng, killed, amid_a_checkpoint, amid_frames = random.Random(0), 0, 0, 0
    reference = undisturbed(tmp_path / "reference", family)
    while killed < KILLS:
        plan = make_plan(tmp_path / f"after_{killed}", family)
        frames = plan.workdir / FRAME_LOG
        for _ in range(min(KILLS - killed, KILLS_A_RUN)):
            process = start(plan.workdir, family)
            wait_for_moment(process, plan, rng)
            process.kill()
            ended = programs.finish(process)
            assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
            if ended.returncode == 0:  # it was faster
                break
            killed += 1
            amid_a_checkpoint += is_saving(plan)
            amid_frames += frames.exists() and frames.stat().st_size > 0
        ended = programs.finish(start(plan.workdir, family))
        assert ended.returncode == 0, ended.stderr
        assert_same_result(plan, reference)
        shutil.rmtree(plan.workdir)
    print(
        f"{family}: {killed} processes killed, {amid_a_checkpoint} of them amid a checkpoint, "
        f"{amid_frames} with frames on the disk"
    )
    assert (amid_frames > 0) == (family == "pixels")


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    """Runs with two checkpoints."""
    directory = tmp_path_factory.mktemp("half")
    toy.run_and_stop(make_plan(directory), 170)
    return directory


GOES_ON = [trial for trial in damage_trials.TRIALS if trial.goes_on]


@pytest.mark.parametrize("trial", GOES_ON, ids=lambda trial: trial.what)
def test_damaged_runs_end_as_undisturbed(trial, half, reference, tmp_path):
    plan = make_plan(shutil.copytree(half, tmp_path / "W"))
    trial.damage(toy.paths_of(plan))
    ended = programs.finish(start(plan.workdir))
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    if trial.loses_metrics:
        own, expected = (toy.last_checkpoint(p)._replace(records=None) for p in (plan, reference))
        toy.assert_equal_trees(own, expected)
    else:
        assert_same_result(plan, reference)
