"""Runs on Catch, small enough for tests. `python -m tests.training.toy DIR SEED...` starts some."""

import dataclasses
import pathlib
import sys

import jax
import numpy as np

from rcrl_jax import config
from rcrl_jax.agents import rainbow
from rcrl_jax.envs import catch
from rcrl_jax.envs.agent_view import AgentEnvironment
from rcrl_jax.replay.segment_replay import SegmentReplay
from rcrl_jax.training import checkpoint, evaluation, experiment, layout, loop, records
from rcrl_jax.training.fleet import Fleet
from rcrl_jax.training.history import History

ROOT = pathlib.Path(__file__).parents[2]  # where `python -m tests...` works
GAME = "Catch"
STEPS = 240
SMALL = {
    "hidden_size": 16,
    "num_atoms": 11,
    "v_max": 2.0,
    "batch_size": 8,
    "contrast_batch_size": 8,
    "discriminator_hidden": 16,
    "learning_rate": 1e-3,
    "n_step": 3,
    "target_period": 20,
    "learn_start": 30,
    "replay_capacity": 150,  # the ring's head comes round before the last step
    "frame_stack": 2,
    "max_episode_steps": 100,
    "evaluation_period": 60,
    "periodic_episodes": 3,
    "evaluation_epsilon": 0.1,
}


def make_config(preset: str = "rcrl", **overrides) -> config.RainbowConfig:
    return dataclasses.replace(config.ATARI_PRESETS[preset], **{**SMALL, **overrides})


def make_catch(seeds: np.ndarray):
    return catch.make_catch(seeds.reshape(-1))


def make_plan(
    workdir, preset="rcrl", seeds=(3,), game=GAME, overrides=None, **changes
) -> experiment.Plan:
    plan = experiment.Plan(
        preset=preset,
        config=make_config(preset, **(overrides or {})),
        runs=tuple(experiment.RunId(game, seed) for seed in seeds),
        total_steps=STEPS,
        workdir=pathlib.Path(workdir),
        eval_episodes=5,
        make_environment=make_catch,
        record_period=10,
        checkpoint_period=50,
    )
    return dataclasses.replace(plan, **changes)


def view(config, seeds, make_environment=make_catch) -> AgentEnvironment:
    """The training environments of a run."""
    return AgentEnvironment(
        make_environment(evaluation.training_seeds(seeds)),
        stack_size=config.frame_stack,
        life_loss_ends_episode=config.life_loss_ends_episode,
        clip_rewards=config.clip_rewards,
        max_episode_steps=config.max_episode_steps,
    )


def make_fleet(config, seeds, environment=None, lift="auto") -> Fleet:
    environment = environment or make_catch(np.zeros(1, np.int32))
    num_actions = [environment.spec.num_actions] * len(seeds)
    return Fleet(rainbow.make_agent(config, environment.spec), seeds, num_actions, lift=lift)


def make_replay(config, seeds) -> SegmentReplay:
    return experiment.make_replay(config, make_fleet(config, seeds), seeds, "host")


def training(config, seeds, total_steps, fleet, *, environment=None, replay=None, history=None):
    """The loop of a new run, ready to step."""
    environment = environment or view(config, seeds)
    return loop.train(
        loop.LoopState(0, fleet.init(), environment.reset(), None),
        fleet=fleet,
        environment=environment,
        replay=replay or make_replay(config, seeds),
        history=history or History(len(seeds), total_steps),
        config=config,
        total_steps=total_steps,
    )


def paths_of(plan: experiment.Plan, run: int = 0) -> layout.RunPaths:
    return plan.paths[run]


def last_checkpoint(plan: experiment.Plan) -> checkpoint.Checkpoint:
    store = checkpoint.CheckpointStore(paths_of(plan).checkpoints)
    try:
        return store.restore(learner_like(plan))
    finally:
        store.close()


def learner_like(plan: experiment.Plan):
    """Zeros of the shapes of a learner state."""
    environment = plan.make_environment(np.zeros((1, 1), np.int32))
    shapes = jax.eval_shape(make_fleet(plan.config, plan.seeds, environment).init)
    environment.close()
    return jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)


def recorded(plan: experiment.Plan, run: int = 0) -> dict[str, object]:
    """All that a run has written for people so far, without what the clock says."""
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
    """Bit for bit, and of one structure."""
    first_leaves, first_def = jax.tree_util.tree_flatten_with_path(first)
    second_leaves, second_def = jax.tree_util.tree_flatten_with_path(second)
    assert first_def == second_def
    for (path, a), (_, b) in zip(first_leaves, second_leaves, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert a.dtype == b.dtype and a.shape == b.shape, path
        assert a.tobytes() == b.tobytes(), jax.tree_util.keystr(path)


if __name__ == "__main__":
    experiment.run(make_plan(sys.argv[1], seeds=tuple(map(int, sys.argv[2:]))))
