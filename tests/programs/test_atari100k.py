"""The command on real games: ends with scores, survives signals and kills, refuses cleanly."""

import json
import pathlib
import queue
import signal
import sys
import time

import pytest

from rcrl_jax import files, signals
from rcrl_jax.envs import atari
from rcrl_jax.runs import checkpoints
from rcrl_jax.runs.paths import RunPaths
from rcrl_jax.training import fleet as fleet_module
from rcrl_jax.training.plan import Plan
from tests.programs import programs
from tests.programs.test_command_line import assert_refused
from tests.training import toy

PROGRAM = "experiments.atari100k"
GAME, SEED, STEPS = "Breakout", 1, 150
PERIODS = {"checkpoint_period": 50, "record_period": 10}
SMALL = toy.SMALL | {
    "learn_start": 40, "replay.capacity": 300, "max_episode_steps": 60, "evaluation_period": 80,
    "periodic_episodes": 2,
}  # fmt: skip


def arguments(workdir, *more: str) -> list[str]:
    fields = [f"--config.{name}={value}" for name, value in SMALL.items()]
    return [
        "--preset=rcrl", f"--game={GAME}", f"--seed={SEED}", f"--steps={STEPS}",
        f"--workdir={workdir}", "--eval_episodes=2", *fields, *more,
    ]  # fmt: skip


def plan_of(workdir) -> Plan:
    """The plan that the command describes, for reading its files."""
    return toy.make_plan(
        workdir,
        seeds=(SEED,),
        overrides=SMALL,
        game=GAME,
        total_steps=STEPS,
        make_environment=lambda seeds: atari.make_atari(GAME, seeds.reshape(-1)),
    )


def wait_for(process, workdir: pathlib.Path, *, checkpoint: int, step: int) -> None:
    """Returns once a checkpoint is on disk and training has reached a later step."""
    saved = checkpoints.path_of(workdir / "checkpoints", checkpoint)
    metrics = RunPaths(workdir, "rcrl", GAME, SEED).metrics
    while not (saved.exists() and toy.last_step(metrics) >= step):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.001)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("uninterrupted")
    result = programs.call(PROGRAM, *arguments(workdir), **PERIODS)
    assert result.returncode == 0, result.stderr
    return workdir, result


def test_a_killed_and_a_terminated_run_end_like_an_uninterrupted_one(tmp_path, uninterrupted):
    flags = arguments(tmp_path)
    killed = programs.start(PROGRAM, *flags, **PERIODS)
    # From the checkpoint of step 50 on, there is a pending update.
    wait_for(killed, tmp_path, checkpoint=50, step=60)
    killed.send_signal(signal.SIGKILL)
    assert programs.finish(killed).returncode == -signal.SIGKILL

    with programs.after_a_save(step=100):
        result = programs.call(PROGRAM, *flags, **PERIODS)
    assert result.returncode == 128 + signal.SIGTERM, result.stderr
    assert "resuming at step" in result.stdout
    last = result.stderr.splitlines()[-1]
    assert last.startswith("stopped by SIGTERM, saved at step ")
    assert last.endswith(": the same command resumes")

    result = programs.call(PROGRAM, *flags, **PERIODS)
    assert result.returncode == 0, result.stderr
    plan, reference = plan_of(tmp_path), plan_of(uninterrupted[0])
    toy.assert_equal_trees(toy.last_checkpoint(plan), toy.last_checkpoint(reference))
    assert toy.recorded(plan) == toy.recorded(reference)


def test_scores_are_printed_beside_the_paper(uninterrupted):
    workdir, result = uninterrupted
    paths = RunPaths(workdir, "rcrl", GAME, SEED)
    own = f"results in {paths.directory}"
    for words in ("random", "human", "this run, rcrl (1 seed, ", " episodes", own):
        assert words in result.stdout
    described = json.loads(paths.manifest.read_text())
    assert described["run"]["game"] == GAME
    assert described["environment"]["emulator"].startswith("ALE")
    assert {"env_steps", "frames", "returns"} <= json.loads(paths.scores.read_text()).keys()
    assert paths.curve.exists() and not paths.video.exists()


def test_another_backend_and_a_film_from_start_to_scores(tmp_path):
    flags = arguments("", "--backend=ale", "--video", "--steps=45")  # a few updates
    flags.remove("--workdir=")
    result = programs.call(PROGRAM, *flags, directory=tmp_path)
    assert result.returncode == 0, result.stderr
    workdir = tmp_path / "runs" / f"rcrl-{GAME}-{SEED}"
    paths = RunPaths(workdir, "rcrl", GAME, SEED)
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    assert json.loads(paths.manifest.read_text())["run"]["backend"] == "ale"
    assert len(json.loads(paths.scores.read_text())["returns"]) == 2
    assert "Traceback" not in result.stderr
    assert paths.video.read_bytes()[4:8] == b"ftyp"


def test_a_work_directory_of_another_configuration_is_refused(uninterrupted):
    workdir, _ = uninterrupted
    before = {path: path.read_bytes() for path in workdir.rglob("*") if path.is_file()}
    result = programs.call(PROGRAM, *arguments(workdir), "--config.batch_size=9")
    assert_refused(result)
    assert str(workdir) in result.stderr and "another --workdir" in result.stderr
    assert before == {path: path.read_bytes() for path in workdir.rglob("*") if path.is_file()}


def test_no_space_left_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "free_bytes", lambda path: 10 << 20)
    result = programs.call(PROGRAM, *arguments(tmp_path / "new"))
    assert_refused(result)
    assert "no space left: 10 MB free" in result.stderr
    assert not list(tmp_path.iterdir())


def test_a_signal_while_the_agent_is_initialised_ends_the_program_at_once(tmp_path, monkeypatch):
    """There is nothing to save, and XLA compiles, so that no Python handler would run."""
    ended = queue.SimpleQueue()

    def init(fleet):
        signal.raise_signal(signal.SIGINT)
        sys.exit(128 + ended.get(timeout=10))

    monkeypatch.setattr(signals, "_end", ended.put)
    monkeypatch.setattr(fleet_module.Fleet, "init", init)
    assert programs.call(PROGRAM, *arguments(tmp_path)).returncode == 128 + signal.SIGINT


def test_the_command_of_a_finished_run_says_that_it_is_finished(uninterrupted):
    workdir, _ = uninterrupted
    paths = RunPaths(workdir, "rcrl", GAME, SEED)
    played = json.loads(paths.manifest.read_text())["run"]["backend"]
    (other,) = {"envpool", "ale"} - {played}
    for more, code in ((), 0), ((f"--backend={played}",), 0), ((f"--backend={other}",), 2):
        again = programs.call(PROGRAM, *arguments(workdir, *more), **PERIODS)
        assert again.returncode == code, again.stderr
        assert ("finished already" in again.stdout) == (code == 0)
