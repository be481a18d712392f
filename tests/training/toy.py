"""Runs on Catch, small enough for tests. `python -m tests.training.toy DIR SEED...` starts some."""

import dataclasses
import os
import pathlib
import signal
import sys
import types
from collections import deque

import jax
import numpy as np
import pytest

from rcrl_jax.agents.rainbow.config import RainbowConfig
from rcrl_jax.config import fields, presets
from rcrl_jax.envs import catch
from rcrl_jax.replay.segment_replay import SegmentReplay
from rcrl_jax.return_contrast import instruments
from rcrl_jax.runs import checkpoints, records
from rcrl_jax.runs.paths import RunPaths
from rcrl_jax.training import build, experiment, loop
from rcrl_jax.training.history import History
from rcrl_jax.training.plan import Plan, RunId
from rcrl_jax.training.session import Session

ROOT = pathlib.Path(__file__).parents[2]  # where `python -m tests...` works
GAME = "Catch"
STEPS = 240
SMALL = {
    "hidden_size": 16,
    "num_atoms": 11,
    "v_max": 2.0,
    "batch_size": 8,
    "return_contrast.batch_size": 8,
    "return_contrast.discriminator_hidden": 16,
    "learning_rate": 1e-3,
    "n_step": 3,
    "target_period": 20,
    "learn_start": 30,
    "replay.capacity": 150,  # the ring wraps before the last step
    "frame_stack": 2,
    "max_episode_steps": 100,
    "evaluation_period": 60,
    "periodic_episodes": 3,
    "evaluation_epsilon": 0.1,
}
# An evaluation compares nine times as many pairs. With the program's 256 they took up to two thirds
# of the time of a test. Set on import, so that all processes that train a toy compare the same.
PAIRS = instruments._PAIRS
instruments._PAIRS = 32


def make_config(preset: str = "rcrl", overrides=None, **changes) -> RainbowConfig:
    """A small preset; `overrides` are for fields of groups, whose names have a dot."""
    changes = {**SMALL, **(overrides or {}), **changes}
    return fields.replace(presets.ATARI_PRESETS[preset], changes)


def make_catch(seeds: np.ndarray):
    return catch.make_catch(seeds.reshape(-1))


def make_plan(workdir, preset="rcrl", seeds=(3,), game=GAME, overrides=None, **changes) -> Plan:
    changes = {"total_steps": STEPS, "eval_episodes": 5, "make_environment": make_catch, **changes}
    return plan_of(workdir, preset, make_config(preset, overrides), game, seeds, **changes)


def plan_of(workdir, preset, config, game, seeds, **changes):
    """A plan with short periods and evaluations; `changes` are the other fields, and come first."""
    short = {"eval_episodes": 2, "record_period": 10, "checkpoint_period": 50}
    runs = tuple(RunId(game, seed) for seed in seeds)
    workdir = pathlib.Path(workdir)
    return Plan(preset=preset, config=config, runs=runs, workdir=workdir, **{**short, **changes})


def make_fleet(config, seeds, *, make_environment=make_catch, games=None, **changes):
    """The training environments of a run as its agent sees them, and its fleet."""
    games = games or [GAME] * len(seeds)
    runs = tuple(map(RunId, games, seeds))
    plan = Plan("toy", config, runs, STEPS, pathlib.Path(), 1, make_environment, **changes)
    return build.make_fleet(plan)


def training(session: Session):
    """The loop of a new run, ready to step."""
    loop.start(session)
    return loop.train(session)


def trained(plan: Plan, steps: int):
    """Learner with memory, replay and history after `steps`; the axis R leads every array."""
    with Session(dataclasses.replace(plan, total_steps=steps)) as session:
        deque(training(session), maxlen=0)
        learner = session.fleet.to_host((session.state.learner, session.state.memory))
        return learner, session.replay.state, session.history.state


def played(environment, fleet, steps: int = 60) -> SegmentReplay:
    """The replay of random actions, which depend on no rounding."""
    rng, spec = np.random.default_rng(0), fleet.agent.action
    shape = (fleet.num_runs, steps, *spec.shape)
    if spec.shape:
        actions = rng.uniform(-1, 1, shape).astype(np.float32)
        for own, valid in zip(actions, environment.num_valid_actions, strict=True):
            own[:, valid:] = 0.0
    else:
        actions = rng.integers(0, 3, shape, np.uint8)
    replay, history = build.make_replay(fleet, "host"), History(fleet.num_runs, steps, spec.shape)
    session = types.SimpleNamespace(
        environment=environment, replay=replay, history=history, step_log=None
    )
    loop.rebuild(session, actions)
    return replay


def paths_of(plan: Plan, run: int = 0) -> RunPaths:
    return plan.paths[run]


def last_checkpoint(plan: Plan, directory=None) -> checkpoints.Checkpoint:
    directory = directory or paths_of(plan).checkpoints
    newest = checkpoints.kept_steps(directory)[-1]
    return checkpoints.read_checkpoint(
        checkpoints.path_of(directory, newest), checkpoint_like(plan)
    )


def checkpoint_like(plan: Plan) -> checkpoints.Checkpoint:
    """A checkpoint of zeros, of the shapes of those of a plan."""
    with Session(plan) as session:
        shapes = jax.eval_shape(session.fleet.init)
        learner = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)
        replay, history = session.replay.state, session.history.state
    return checkpoints.Checkpoint(0, learner, None, replay, history, None)


def recorded(plan: Plan, run: int = 0) -> dict[str, object]:
    """All records that a run has written so far, without values that depend on time."""
    paths = paths_of(plan, run)
    metrics = [
        {name: value for name, value in line.items() if name not in records.WALL_CLOCK_KEYS}
        for line in records.read_records(paths.metrics)
    ]
    return {
        "metrics": metrics,
        **{
            path.name: path.read_text()
            for path in (paths.evaluations, paths.scores)
            if path.exists()
        },
    }


def assert_equal_trees(first, second) -> None:
    """Equal bit for bit, and of equal structure."""
    first_leaves, first_def = jax.tree_util.tree_flatten_with_path(first)
    second_leaves, second_def = jax.tree_util.tree_flatten_with_path(second)
    assert first_def == second_def
    for (path, a), (_, b) in zip(first_leaves, second_leaves, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert a.dtype == b.dtype and a.shape == b.shape, path
        assert a.tobytes() == b.tobytes(), jax.tree_util.keystr(path)


def run(plan: Plan) -> list[str]:
    """Runs an experiment; returns the lines that it printed."""
    lines = []
    experiment.run(plan, lines.append)
    return "\n".join(lines).splitlines()


def assert_same_result(plan: Plan, reference: Plan) -> None:
    """Learner, replay and records are equal."""
    assert_equal_trees(last_checkpoint(plan), last_checkpoint(reference))
    for r in range(len(plan.runs)):
        assert recorded(plan, r) == recorded(reference, r)


def assert_lowers_for_accelerators(fleet, batch, frames=None, kind=0) -> None:
    """The update lowers for TPUs and CUDA; `frames` are those on the device that it reads."""
    *arguments, _ = fleet.update_arguments(jax.eval_shape(fleet.init), batch)
    export = jax.export.export(fleet.programs.update[kind], platforms=("tpu", "cuda"))
    assert set(export(*arguments, frames).platforms) == {"tpu", "cuda"}


class Interruption:
    """Makes environments, and sends this process a signal in the middle of one step."""

    def __init__(self, signum: int, *, num_envs: int, step: int, make=make_catch):
        self._signum, self._num_envs, self._step, self._make = signum, num_envs, step, make

    def __call__(self, seeds):
        environment = self._make(seeds)
        if seeds.size == self._num_envs:
            send, self._sent = environment.send, 0

            def send_and_signal(actions):
                self._sent += 1
                if self._sent == self._step:
                    os.kill(os.getpid(), self._signum)
                send(actions)

            environment.send = send_and_signal
        return environment


def run_and_stop(plan: Plan, step: int) -> None:
    """Runs as if SIGTERM came in the middle of a step."""
    stop = Interruption(
        signal.SIGTERM, num_envs=len(plan.runs), step=step, make=plan.make_environment
    )
    with pytest.raises(experiment.Interrupted, match=f"saved at step {step}"):
        run(dataclasses.replace(plan, make_environment=stop))


def run_and_stop_between_updates(plan: Plan, monkeypatch, step: int, early_updates: int) -> None:
    """Runs as if a signal came after some of the updates before the action of a step."""
    save_if_due = experiment._Saves.save_if_due

    def stop(saves):
        state = saves.session.state
        if (state.step, state.early_updates) == (step, early_updates):
            saves.received.append(signal.SIGTERM)
        save_if_due(saves)

    with monkeypatch.context() as patch:
        patch.setattr(experiment._Saves, "save_if_due", stop)
        with pytest.raises(experiment.Interrupted):
            run(plan)
    assert last_checkpoint(plan).early_updates == early_updates


def last_step(metrics: pathlib.Path) -> int:
    lines = records.read_records(metrics) if metrics.exists() else []
    return lines[-1]["agent_steps"] if lines else 0


if __name__ == "__main__":
    experiment.run(make_plan(sys.argv[1], seeds=tuple(map(int, sys.argv[2:]))))
