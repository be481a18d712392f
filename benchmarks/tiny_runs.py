"""Runs of Catch that take seconds, for `benchmarks.kill_campaign`, and how two of them differ."""

import pathlib
from typing import Any

import jax
import numpy as np

from rcrl_jax.config import fields, presets
from rcrl_jax.envs import catch
from rcrl_jax.training import build, checkpoint, records
from rcrl_jax.training.history import History
from rcrl_jax.training.plan import Plan, RunId
from rcrl_jax.training.run_paths import RunPaths

STEPS, PERIOD = 240, 30  # agent steps; of a run, between checkpoints
SMALL = {
    "hidden_size": 16, "num_atoms": 11, "v_max": 2.0, "batch_size": 8, "n_step": 3,
    "return_contrast.batch_size": 8, "return_contrast.discriminator_hidden": 16,
    "target_period": 20, "learn_start": 30, "replay.capacity": 150, "frame_stack": 2,
    "max_episode_steps": 100, "evaluation_period": 60, "periodic_episodes": 3,
}  # fmt: skip
"""Changed fields of the preset `rcrl`. The ring wraps before the last step."""


def make_plan(directory: pathlib.Path) -> Plan:
    """The plan of every run of the campaign."""
    return Plan(
        preset="rcrl",
        config=fields.replace(presets.ATARI_PRESETS["rcrl"], SMALL),
        runs=(RunId("Catch", 3), RunId("Catch", 5)),
        total_steps=STEPS,
        workdir=pathlib.Path(directory),
        eval_episodes=5,
        make_environment=lambda seeds: catch.make_catch(seeds.reshape(-1)),
        record_period=10,
        checkpoint_period=PERIOD,
    )


def paths_of(directory: pathlib.Path) -> RunPaths:
    """The files of the first run."""
    return RunPaths(directory, "rcrl", "Catch", 3)


def difference(directory: pathlib.Path, reference: pathlib.Path, metrics: bool = True) -> str:
    """What differs between two finished work directories, or "".

    Args:
      directory: of the disturbed runs.
      reference: of runs that nobody disturbed.
      metrics: whether to compare metrics.jsonl, and how many records checkpoints count.
    """

    def content(paths: RunPaths) -> dict[str, Any]:
        found: dict[str, Any] = {
            path.name: path.read_bytes() for path in (paths.scores, paths.evaluations)
        }
        if metrics:
            found["metrics.jsonl"] = [
                {name: line[name] for name in line if name not in records.WALL_CLOCK_KEYS}
                for line in records.read_metrics(paths.metrics)
            ]
        return found

    for own, other in zip(make_plan(directory).paths, make_plan(reference).paths, strict=True):
        expected = content(other)
        for name, found in content(own).items():
            if found != expected[name]:
                return f"{name} of seed {own.seed}"
    like = checkpoint_like(reference)
    last = [
        checkpoint.read_checkpoint(paths_of(where).checkpoints / str(STEPS), like)
        for where in (directory, reference)
    ]
    if not metrics:
        last = [one._replace(records=None) for one in last]
    arrays = [_arrays(one) for one in last]
    for name in arrays[1]:
        own, expected = arrays[0].get(name), arrays[1][name]
        if own is None or own.dtype != expected.dtype or own.tobytes() != expected.tobytes():
            return f"{name} of the last checkpoint"
    return "" if arrays[0].keys() == arrays[1].keys() else "arrays of the last checkpoint"


def _arrays(tree: Any) -> dict[str, np.ndarray]:
    leaves = jax.tree.leaves_with_path(tree)
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def checkpoint_like(directory: pathlib.Path) -> checkpoint.Checkpoint:
    """A checkpoint of the runs' types and shapes."""
    environment, fleet = build.make_fleet(make_plan(directory))
    environment.close()
    replay = build.make_replay(fleet, "host")
    history = History(fleet.num_runs, STEPS, fleet.agent.action.shape)
    learner = fleet.to_host(fleet.init())
    return checkpoint.Checkpoint(0, learner, None, replay.state, history.state, None)
