"""Measures how much the noise of trained agents explores.

    python -m experiments.exploration DIRECTORY... --output=FILE.json

Each directory is the work directory of a training, or a run with its final parameters. The trained
agents play with the training policy, that is, with noise. Of each run:

    changed        share of draws of the noise, ten a state, whose action is not the greedy one
    most_frequent  share of the most frequent action among the actions taken
"""

import dataclasses
import pathlib
import sys
from typing import Any

import numpy as np
from absl import app, flags

from rcrl_jax import files
from rcrl_jax.agents.agent import EVALUATION, TRAINING
from rcrl_jax.config import fields
from rcrl_jax.training import build, evaluation, scoring

_EPISODES = flags.DEFINE_integer("episodes", 10, "episodes of each run", lower_bound=1)
_OUTPUT = flags.DEFINE_string("output", None, "JSON, a list of runs", required=True)
DRAWS = 10


def measure(directory: pathlib.Path, episodes: int) -> list[dict[str, Any]]:
    """The shares of each run of a directory."""
    plan, _, params = scoring.load(directory)
    greedy = fields.replace(plan.config, {"evaluation_epsilon": 0.0})
    plan = dataclasses.replace(plan, config=greedy)
    environment, fleet = build.make_fleet(plan)
    environment.close()
    runs, at = len(plan.runs), plan.total_steps
    playing = np.ones((runs, episodes), bool)
    taken = np.zeros((runs, environment.spec.max_num_actions), np.int64)
    changed, states = np.zeros(runs), np.zeros(runs)

    def watch(observation, actions, outcome, ended):
        del outcome
        stacks = observation.reshape(runs, -1, *observation.shape[1:])
        memory, step = fleet.init_memory(stacks.shape[1]), int(states.max())
        best, _ = fleet.act(params, stacks, memory, at, 0, step, policy_name=EVALUATION)
        for draw in range(1, DRAWS + 1):
            drawn, _ = fleet.act(params, stacks, memory, at, draw, step, policy_name=TRAINING)
            changed[:] += ((np.asarray(drawn) != np.asarray(best)) & playing).sum(axis=1) / DRAWS
        states[:] += playing.sum(axis=1)
        for row, action in enumerate(actions.reshape(runs, -1)):
            np.add.at(taken[row], action[playing[row]], 1)
        playing[:] &= ~ended.reshape(runs, -1)

    games = evaluation.Games(plan.make_environment, at, range(episodes), TRAINING)
    evaluation.evaluate(params, fleet, games, after_step=watch)
    return [
        {
            "preset": plan.preset,
            "embedding_init": plan.config.embedding_init,
            "game": run.game,
            "seed": run.seed,
            "agent_steps": at,
            "states": int(states[row]),
            "changed": changed[row] / states[row],
            "most_frequent": taken[row].max() / taken[row].sum(),
        }
        for row, run in enumerate(plan.runs)
    ]


def main(argv: list[str]) -> None:
    """Measures all directories."""
    found = []
    for directory in argv[1:]:
        found += measure(pathlib.Path(directory), _EPISODES.value)
        print(*found[-1:], file=sys.stderr)
    files.write_json_atomically(pathlib.Path(_OUTPUT.value), found)


if __name__ == "__main__":
    app.run(main)
