"""Runs on Catch, small enough for tests. `python -m tests.training.toy DIR SEED...` starts some."""

import dataclasses
import pathlib
import sys

import jax
import numpy as np

from rcrl_jax.config import fields, presets
from rcrl_jax.config.rainbow import RainbowConfig
from rcrl_jax.envs import catch
from rcrl_jax.runs import checkpoints, records
from rcrl_jax.runs.paths import RunPaths
from rcrl_jax.training import build, experiment, loop
from rcrl_jax.training.history import History
from rcrl_jax.training.plan import Plan, RunId

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


def make_config(preset: str = "rcrl", overrides=None, **changes) -> RainbowConfig:
    """A small preset; `overrides` are for fields of groups, whose names have a dot."""
    changes = {**SMALL, **(overrides or {}), **changes}
    return fields.replace(presets.ATARI_PRESETS[preset], changes)


def make_catch(seeds: np.ndarray):
    return catch.make_catch(seeds.reshape(-1))


def make_plan(workdir, preset="rcrl", seeds=(3,), game=GAME, overrides=None, **changes) -> Plan:
    plan = Plan(
        preset=preset,
        config=make_config(preset, overrides),
        runs=tuple(RunId(game, seed) for seed in seeds),
        total_steps=STEPS,
        workdir=pathlib.Path(workdir),
        eval_episodes=5,
        make_environment=make_catch,
        record_period=10,
        checkpoint_period=50,
    )
    return dataclasses.replace(plan, **changes)


def make_fleet(config, seeds, *, make_environment=make_catch, games=None, **changes):
    """The training environments of a run as its agent sees them, and its fleet."""
    games = games or [GAME] * len(seeds)
    runs = tuple(map(RunId, games, seeds))
    plan = Plan("toy", config, runs, STEPS, pathlib.Path(), 1, make_environment, **changes)
    return build.make_fleet(plan)


def training(fleet, environment, total_steps, *, replay=None, history=None):
    """The loop of a new run, ready to step."""
    return loop.train(
        loop.LoopState(0, fleet.init(), environment.reset(), None),
        fleet=fleet,
        environment=environment,
        replay=replay or build.make_replay(fleet, "host"),
        history=history or History(fleet.num_runs, total_steps, fleet.agent.action.shape),
        total_steps=total_steps,
    )


def paths_of(plan: Plan, run: int = 0) -> RunPaths:
    return plan.paths[run]


def last_checkpoint(plan: Plan, directory=None) -> checkpoints.Checkpoint:
    directory = directory or paths_of(plan).checkpoints
    newest = checkpoints.kept_steps(directory)[-1]
    return checkpoints.read_checkpoint(directory / str(newest), checkpoint_like(plan))


def checkpoint_like(plan: Plan) -> checkpoints.Checkpoint:
    """A checkpoint of zeros, of the shapes of those of a plan."""
    environment, fleet = build.make_fleet(plan)
    environment.close()
    shapes = jax.eval_shape(fleet.init)
    learner = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)
    replay = build.make_replay(fleet, "host")
    history = History(fleet.num_runs, plan.total_steps, fleet.agent.action.shape)
    return checkpoints.Checkpoint(0, learner, None, replay.state, history.state, None)


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


if __name__ == "__main__":
    experiment.run(make_plan(sys.argv[1], seeds=tuple(map(int, sys.argv[2:]))))
