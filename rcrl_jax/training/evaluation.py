"""Evaluation: whole games with the evaluation policy, in separate environments."""

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from rcrl_jax import types
from rcrl_jax.agents.agent import EVALUATION
from rcrl_jax.envs.agent_view import AgentEnvironment, AgentStep
from rcrl_jax.envs.protocol import VectorEnvironment
from rcrl_jax.training.fleet import Fleet

# Makes one vector of environments from seeds [R, E], run by run; the function knows the games.
EnvironmentMaker = Callable[[np.ndarray], VectorEnvironment]

# Called after every step with the observations acted on [R * E, C, *frame_shape], the actions
# [R * E, *act], and what followed.
Watcher = Callable[[np.ndarray, np.ndarray, AgentStep], None]

_TRAINING_SEEDS, _EVALUATION_SEEDS = 0, 1  # keep them apart


class Evaluation(NamedTuple):
    """Scores of R runs."""

    returns: np.ndarray  # [R, E] float64, raw return of each game
    cut: np.ndarray  # [R] int64, games that the frame limit ended
    films: tuple[np.ndarray, ...]  # each [T, *frame_shape]: the first game of the filmed runs


def training_seeds(seeds: Sequence[int]) -> np.ndarray:
    """Environment seeds `[R, 1]` for training."""
    return np.stack([_seeds((seed, _TRAINING_SEEDS), 1) for seed in seeds])


def evaluation_seeds(seeds: Sequence[int], agent_steps: int, episodes: int) -> np.ndarray:
    """Environment seeds `[R, E]` for the evaluation after `agent_steps`."""
    return np.stack([_seeds((seed, _EVALUATION_SEEDS, agent_steps), episodes) for seed in seeds])


def _seeds(entropy: tuple[int, ...], size: int) -> np.ndarray:
    words = np.random.SeedSequence(entropy).generate_state(size, np.uint32)
    return (words >> 1).astype(np.int32)  # emulators take non-negative 32-bit seeds


def evaluate(
    params: types.Params,
    fleet: Fleet,
    make_environment: EnvironmentMaker,
    agent_steps: int,
    games: range,
    *,
    policy_name: str = EVALUATION,
    film: int = 0,
    before_step: Callable[[], None] = lambda: None,
    after_step: Watcher = lambda observation, actions, outcome: None,
) -> Evaluation:
    """Plays whole games of every run, ten at a time.

    Lives do not matter and rewards are raw. A game that is still running at the frame limit counts
    with its return so far. The result depends only on the parameters, the seeds, `agent_steps`, and
    which games are played.

    The games of an evaluation are numbered, and training plays those from 0 on. Two calls for games
    0 to 19 and 20 to 39 play the same games as one call for 0 to 39, because all bounds are
    multiples of ten.

    Args:
      params: agent parameters, leading axis R.
      fleet: acts for the R runs.
      make_environment: makes the environments.
      agent_steps: how long the runs have trained.
      games: their numbers, E consecutive ones per run.
      policy_name: as of `Agent.act`.
      film: how many runs, the first ones, keep the frames of their first game.
      before_step: called before every step; an exception in it ends the evaluation.
      after_step: called after every step.

    Raises:
      FloatingPointError: an action is not finite.
    """
    all_seeds = evaluation_seeds(fleet.seeds, agent_steps, games.stop)[:, games.start :]
    protocol = fleet.agent.protocol.for_evaluation()
    act = functools.partial(fleet.act, params, policy_name=policy_name)
    parts = []
    for start in range(0, len(games), GAMES_AT_ONCE):
        seeds = all_seeds[:, start : start + GAMES_AT_ONCE]
        counters, filmed = (agent_steps, games.start + start), 0 if start else film
        with contextlib.closing(AgentEnvironment(make_environment(seeds), protocol)) as played:
            parts.append(
                _play(act, played, fleet.num_runs, counters, filmed, before_step, after_step)
            )
    return Evaluation(
        np.concatenate([part.returns for part in parts], axis=1),
        np.sum([part.cut for part in parts], axis=0),
        parts[0].films,
    )


# Games of a run that are played at the same time. Another number changes scores, because the random
# actions of a game depend on its place among them. With more games, more emulators wait for the
# longest game.
GAMES_AT_ONCE = 10


def _play(
    act: Callable[..., Any],
    environment: AgentEnvironment,
    runs: int,
    counters: tuple[int, ...],
    film: int,
    before_step: Callable[[], None],
    after_step: Watcher,
) -> Evaluation:
    """Plays one game in every environment, all at the same time."""
    games = environment.num_envs
    returns = np.full(games, np.nan)
    cut = np.zeros(games, bool)
    observation = environment.reset()
    # Copies: a view would keep the frames of all games in memory.
    filmed = range(0, games, games // runs)[:film]
    films = [[observation[game, -1].copy()] for game in filmed]
    step, memory = 0, None
    while np.isnan(returns).any():
        before_step()
        of_runs = observation.reshape(runs, games // runs, *observation.shape[1:])
        actions, memory = act(of_runs, memory, *counters, step)
        actions = np.asarray(actions)[:runs]
        actions = actions.reshape(games, *actions.shape[2:])
        if not np.isfinite(actions).all():
            raise FloatingPointError("an action is not finite")
        outcome = environment.step(actions)
        after_step(observation, actions, outcome)
        first = np.isnan(returns) & outcome.finished  # a game restarts when it is over
        for game, frames in zip(filmed, films, strict=True):
            if np.isnan(returns[game]):
                frames.append(outcome.frame[game].copy())
        returns = np.where(first, outcome.episode_return, returns)
        cut |= first & outcome.truncated
        if first.any():  # the emulators of long games need not wait for those of short ones
            environment.retire(~np.isnan(returns))
        if memory is not None:
            ended = outcome.terminated | outcome.truncated
            memory = memory._replace(restart=ended.reshape(runs, -1))
        observation = outcome.observation
        step += 1
    return Evaluation(
        returns.reshape(runs, -1),
        cut.reshape(runs, -1).sum(axis=1),
        tuple(np.stack(frames) for frames in films),
    )
