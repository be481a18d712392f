r"""Trains SimPLe and measures what its model and its policy have learned.

Compares the model with predictors without dynamics, and the policy with play without learning.

    python -m experiments.simple --seed=0
    python -m experiments.simple --preset=simple_small --game=Pong --seed=0 --eval_episodes=10

`simple_catch`, the default, is our own small agent on continuing Catch, made for this test; it is
not SimPLe. The other presets play a game of Atari. The same command in the same work directory
resumes. `model.json` and `model.png` in the run's folder hold the manifest, the means of the
evaluations, and:

    model   the log-likelihood of pixels and rewards of held-out rollouts, compared with predictors
            without dynamics; the share of changing pixels that the model predicts right
    play    the final evaluation, compared with uniform actions, the best constant action and the
            untrained agent in the same games
"""

import functools
import json
import sys
from typing import TYPE_CHECKING

from absl import app, flags

from rcrl_jax import files
from rcrl_jax.agents.simple.config import SimpleConfig
from rcrl_jax.config import fields, presets
from rcrl_jax.envs import atari, catch, protocol
from rcrl_jax.programs import atari100k, command_line, launch
from rcrl_jax.programs.atari100k import PROGRAM
from rcrl_jax.training import host_memory

if TYPE_CHECKING:
    import numpy as np

    from rcrl_jax.training.plan import Plan

flags.adopt_module_key_flags(atari100k)

CATCH = "simple_catch"
_GAME = "ContinuingCatch"
# Frames, model and updates so small that a run takes minutes on one core.
_SMALL = {
    "frame_height": 14,
    "frame_width": 14,
    "rounds": 8,
    "round_steps": 400,
    "max_episode_steps": 400,
    "model_updates": 500,
    # With batches of 4, or with five rounds, one policy in two or three did not learn.
    "model_batch_size": 16,
    "policy_updates": 24,
    "model_agents": 8,
    "deterministic.filters": 16,
    "deterministic.compress_steps": 2,
    "deterministic.double_steps": 1,
    "deterministic.learning_rate": 0.5,
    "deterministic.warmup": 1000,
    "real_rollout": 200,
    "real_agents": 8,
    "policy_learning_rate": 1e-3,
    "entropy_weight": 0.03,
    "evaluation_period": 800,
    "periodic_episodes": 10,
}
PRESETS: dict[str, SimpleConfig] = {
    CATCH: fields.replace(SimpleConfig(), _SMALL),
    **presets.ATARI_WORLD_MODEL_PRESETS,
}


def main(argv: list[str]) -> None:
    """Trains, then measures."""
    del argv
    try:
        settings = command_line.read_config(PRESETS)
        host_memory.keep_freed_memory(large_blocks=settings.needs_large_blocks)
        plan = make_plan(flags.FLAGS.preset, settings)
        launch.check_effects(plan)
    except (ValueError, OSError) as error:
        command_line.refuse(str(error))
    from experiments.simple import figure, measure
    from rcrl_jax.runs import records
    from rcrl_jax.training import build

    with launch.ending_cleanly():
        launch.run(plan, _largest_spec(plan))
        fleet, params = build.restore_agents(plan)
        paths = plan.paths[0]
        returns = records.read_scores(paths.scores)["returns"]
        evaluations = records.read_evaluations(paths.evaluations)
        found = {
            "command": " ".join(["python -m experiments.simple", *sys.argv[1:]]),
            "manifest": json.loads(paths.manifest.read_text()),
            "curve": {line["agent_steps"]: line["mean"] for line in evaluations},
            "model": measure.measure_model(plan, fleet, params),
            "play": measure.measure_play(plan, fleet, returns),
        }
        found = files.to_json_value(found)
        directory = paths.directory
        files.write_json_atomically(directory / "model.json", found)
        figure.draw(directory / "model.png", found)
        print("\n".join(measure.report(found)))
    print(f"results in {directory}")


def make_plan(preset: str, settings: SimpleConfig) -> "Plan":
    """The plan of one run.

    Raises:
      ValueError: a flag's value is out of range, several runs are asked for, or the model has no
        likelihood.
    """
    if flags.FLAGS["from"].present:
        raise ValueError("--from: not here; repeat the manifest's launch.command")
    seeds = launch.read_seeds()
    if len(seeds) > 1 or flags.FLAGS.games is not None:
        raise ValueError("one --game and one --seed at a time")
    if settings.model != "deterministic":
        raise ValueError("--config.model: only the deterministic model has a likelihood")
    for name in ("game", "backend"):
        if preset == CATCH and flags.FLAGS[name].present:
            raise ValueError(f"--{name}: {CATCH} plays {_GAME} alone; choose another --preset")
    if preset != CATCH:
        games = launch.read_games(PROGRAM)
        place = launch.workdir(preset, games, seeds)
        return launch.make_plan(PROGRAM, preset, settings, games, seeds, place)
    height, width = settings.frame_height, settings.frame_width
    if height != width or height % catch.GRID:
        raise ValueError(
            "--config.frame_height, --config.frame_width: frames must be square, their side a "
            f"multiple of {catch.GRID} pixels"
        )
    make_environment = functools.partial(_make_catch, height // catch.GRID)
    place = launch.workdir(preset, (), seeds)
    return launch.make_plan(PROGRAM, preset, settings, (_GAME,), seeds, place, make_environment)


def _make_catch(cell: int, seeds: "np.ndarray") -> protocol.VectorEnvironment:
    return catch.make_continuing_catch(seeds.reshape(-1), cell)


def _largest_spec(plan: "Plan") -> protocol.EnvironmentSpec:
    shape = plan.config.frame_shape
    return protocol.discrete_spec(shape, 3) if plan.preset == CATCH else atari.largest_spec(shape)


if __name__ == "__main__":
    command_line.define_config(PRESETS, CATCH, sys.argv)
    app.run(main, flags_parser=command_line.parse)
