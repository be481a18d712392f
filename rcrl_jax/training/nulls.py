"""Nulls of a score: players that have learned nothing, on the same seeds.

`uniform`: uniform actions. `constant`: one action throughout, the one with the best mean over ten
episodes. `untrained`: the agent with random parameters, also where training began from others.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from rcrl_jax import types
from rcrl_jax.agents.agent import TRAINING, Agent
from rcrl_jax.envs.protocol import VectorEnvironment
from rcrl_jax.training.evaluation import GAMES_AT_ONCE, EnvironmentMaker, Evaluation, Games
from rcrl_jax.training.fleet import Fleet

PLAYS = {
    "uniform": "uniform actions",
    "constant": "the best constant action tried",
    "untrained": "the untrained agent",
}
"""The kinds of play without learning, in words."""

_DRAWN = 64  # constant actions of tasks with several components


class Scripted(NamedTuple):
    """Replaces a fleet: plays uniform actions, or one constant action for each run."""

    agent: Agent
    seeds: tuple[int, ...]  # [R]
    num_valid_actions: np.ndarray  # [R]
    action: np.ndarray | None = None  # [R, *act], of each run; None: uniform

    @property
    def num_runs(self) -> int:
        """R."""
        return len(self.seeds)

    def part(self, rows: np.ndarray, tree: Any) -> tuple["Scripted", Any]:
        """As `Fleet.part`, for results without arrays."""
        action = None if self.action is None else self.action[rows]
        seeds = tuple(self.seeds[row] for row in rows)
        return Scripted(self.agent, seeds, self.num_valid_actions[rows], action), tree

    def init_memory(self, number: int) -> types.Memory:
        """As `Fleet.init_memory`; the memory is empty."""
        return types.Memory((), np.ones((self.num_runs, number), bool))

    def act(
        self,
        params: None,
        observation: np.ndarray,
        memory: types.Memory,
        *counters: int,
        policy_name: str = TRAINING,
    ) -> tuple[np.ndarray, types.Memory]:
        """As `Fleet.act`."""
        del params, policy_name
        games = observation.shape[1]
        if self.action is not None:
            return np.repeat(self.action[:, None], games, axis=1), memory
        drawn = [
            self._draw(np.random.default_rng((seed, *counters)), games, valid)
            for seed, valid in zip(self.seeds, self.num_valid_actions, strict=True)
        ]
        return np.stack(drawn), memory

    def _draw(self, rng: np.random.Generator, games: int, valid: int) -> np.ndarray:
        action = self.agent.action
        if not action.shape:
            return rng.integers(0, valid, games, action.dtype)
        drawn = rng.uniform(-1.0, 1.0, (games, *action.shape)).astype(action.dtype)
        drawn[:, valid:] = 0.0
        return drawn


def constant_actions(agent: Agent, valid: int) -> list[np.ndarray]:
    """The candidates for the best constant action.

    In a game: all actions. In a task with one action component: -1, -0.9, ..., 1. In a task with
    several: zero; -1 or 1 in one component or in all; and uniform draws, the same for all runs.
    """
    if not agent.action.shape:
        return list(np.arange(valid, dtype=agent.action.dtype))
    if valid == 1:
        tried = np.linspace(-1.0, 1.0, 21)[:, None]
    else:
        one_or_all = np.concatenate([np.eye(valid), np.ones((1, valid))])
        drawn = np.random.default_rng(0).uniform(-1.0, 1.0, (_DRAWN, valid))
        tried = np.concatenate([np.zeros((1, valid)), one_or_all, -one_or_all, drawn])
    actions = np.zeros((len(tried), *agent.action.shape), agent.action.dtype)
    actions[:, :valid] = tried
    return list(actions)


Play = Callable[[Fleet | Scripted, types.Params | None, int], np.ndarray]
"""`(who plays, agents' parameters, episodes E) -> returns [R, E]`; the same seeds each time."""


def count_games(fleet: Fleet, num_games: int) -> int:
    """How many episodes of each run `measure` plays."""
    return len(_constant_players(fleet)) * min(num_games, GAMES_AT_ONCE) + 3 * num_games


def measure(fleet: Fleet, returns: np.ndarray, play_games: Play) -> list[dict[str, Any]]:
    """Compares the scores of agents with play without learning, on the same episode seeds.

    Args:
      fleet: the agents.
      returns: `[R, E]`, of the agents on the seeds that `play_games` uses.
      play_games: plays the episodes.

    Returns:
      For each run: the mean return of `policy`, `uniform`, `constant` and `untrained`, each with
      its standard error; the constant action; the best null; and the mean difference of `policy`
      and the best null over episodes, with its standard error.
    """
    num_games = returns.shape[1]
    tried = _constant_players(fleet)
    few = min(num_games, GAMES_AT_ONCE)
    means = [play_games(player, None, few).mean(axis=1) for player in tried]
    best = np.argmax(means, axis=0)  # [R]
    constant = np.stack([tried[i].action[run] for run, i in enumerate(best)])
    played = {
        "policy": returns,
        "uniform": play_games(uniform_player(fleet), None, num_games),
        "constant": play_games(tried[0]._replace(action=constant), None, num_games),
        "untrained": play_games(fleet, fleet.init().params.agent, num_games),
    }
    return [
        {
            "episodes": num_games,
            **_compare({name: by_run[run] for name, by_run in played.items()}),
            "constant_action": constant[run],
        }
        for run in range(fleet.num_runs)
    ]


def _compare(returns: Mapping[str, np.ndarray]) -> dict[str, Any]:
    plays = {name: with_error(values) for name, values in returns.items()}
    best = max(PLAYS, key=lambda name: plays[name]["mean"])
    # A paired difference, because all players play episodes with the same seeds.
    difference = with_error(returns["policy"] - returns[best])
    return {**plays, "best_null": best, "difference": difference}


def describe(measured: Mapping[str, Any]) -> str:
    """What `measure` returns for a run, in one line."""
    plays = ", ".join(f"{words} {plus_minus(measured[name])}" for name, words in PLAYS.items())
    difference = measured["difference"]
    sign = "+" if difference["mean"] >= 0 else ""
    return (
        f"without learning, same episodes: {plays}; above the best of them "
        f"{sign}{plus_minus(difference)}"
    )


def plus_minus(estimate: Mapping[str, float | None], digits: int = 1) -> str:
    """A mean and its standard error, if there is one: `3.0 ± 0.2`."""
    error = estimate["standard_error"]
    spread = "" if error is None else f" ± {error:.{digits}f}"
    return f"{estimate['mean']:.{digits}f}{spread}"


def with_error(sample: np.ndarray) -> dict[str, float | None]:
    """Mean, and its standard error, which is None for a single number."""
    error = None
    if len(sample) > 1:
        error = float(np.std(sample, ddof=1) / math.sqrt(len(sample)))
    return {"mean": float(np.mean(sample)), "standard_error": error}


def without_frames(make_environment: EnvironmentMaker) -> EnvironmentMaker:
    """Environments that do not render, for `Scripted`, which reads no frames."""

    def make(seeds: np.ndarray) -> VectorEnvironment:
        environment = make_environment(seeds)
        environment.renders = False
        return environment

    return make


def play_of(fleet: Fleet, games: Games, evaluate: Callable[..., Evaluation]) -> Play:
    """Plays the first episodes of `games` by `evaluate`, called as `evaluation.evaluate`.

    Nothing is filmed, and `Scripted` players see no frames.
    """
    seen = games._replace(film=0)
    unseen = seen._replace(make_environment=without_frames(games.make_environment))

    def play(player: Fleet | Scripted, params: types.Params | None, number: int) -> np.ndarray:
        played = seen if player is fleet else unseen
        return evaluate(params, player, played._replace(numbers=games.numbers[:number])).returns

    return play


def uniform_player(fleet: Fleet) -> Scripted:
    """A player with uniform actions, which replaces a fleet."""
    return Scripted(fleet.agent, fleet.seeds, fleet.num_valid_actions)


def _constant_players(fleet: Fleet) -> list[Scripted]:
    candidates = [constant_actions(fleet.agent, valid) for valid in fleet.num_valid_actions]
    # Runs with fewer candidates repeat their last one.
    return [
        uniform_player(fleet)._replace(
            action=np.stack([actions[min(i, len(actions) - 1)] for actions in candidates])
        )
        for i in range(max(map(len, candidates)))
    ]
