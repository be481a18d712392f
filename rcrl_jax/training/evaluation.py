"""Evaluation: whole episodes with the evaluation policy, in separate environments."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from rcrl_jax import types
from rcrl_jax.agents.agent import EVALUATION
from rcrl_jax.envs.agent_view import AgentEnvironment, AgentStep
from rcrl_jax.envs.protocol import VectorEnvironment
from rcrl_jax.training import video
from rcrl_jax.training.fleet import Fleet

# Makes one vector of environments from seeds [R, E], run by run; the function knows the games.
EnvironmentMaker = Callable[[np.ndarray], VectorEnvironment]

# Called after every step with the observations acted on [R * E, C, *frame_shape], the actions
# [R * E, *act], what followed, and in which environments the step ended the first episode,
# [R * E] bool. Later episodes do not count.
Watcher = Callable[[np.ndarray, np.ndarray, AgentStep, np.ndarray], None]

_TRAINING_SEEDS, _EVALUATION_SEEDS = 0, 1  # keep them apart


class Games(NamedTuple):
    """Which episodes an evaluation plays, and how."""

    make_environment: EnvironmentMaker
    agent_steps: int  # how long the runs have trained
    numbers: range  # of each run's episodes, E consecutive ones
    policy_name: str = EVALUATION  # as in `Agent.act`
    film: int = 0  # number of runs, the first ones, whose first episode is filmed


class Film(NamedTuple):
    """One episode, for people to watch."""

    frames: list[np.ndarray]  # T, those that the agent read; only the first if `shows` is there
    actions: list[np.ndarray]  # T - 1
    shows: Callable[[], VectorEnvironment] | None  # see `VectorEnvironment.shows`

    def __iter__(self) -> Iterator[np.ndarray]:
        """Yields the pictures to watch, as `video.write_video` takes them.

        If people watch other frames than the agent reads, the episode is played again to make them.
        A long episode in colour takes gigabytes, so these frames are not kept.
        """
        if self.shows is None:
            yield from map(video.as_picture, self.frames)
            return
        with contextlib.closing(self.shows()) as game:
            yield game.reset().frame[0]
            for action in self.actions:
                yield game.step(action[None]).frame[0]


class Evaluation(NamedTuple):
    """Scores of R runs."""

    returns: np.ndarray  # [R, E] float64, raw return of each episode
    cut: np.ndarray  # [R] int64, episodes that a limit or a physics error ended
    failed: np.ndarray  # [R] int64, those that a physics error ended
    films: tuple[Film, ...]  # the first episode of each filmed run


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
    games: Games,
    *,
    before_step: Callable[[], None] = lambda: None,
    after_step: Watcher = lambda observation, actions, outcome, ended: None,
) -> Evaluation:
    """Plays whole episodes of every run, ten at a time.

    Lives do not matter and rewards are raw. An episode still running at the frame limit counts
    with its return so far. The result depends only on the parameters, the seeds and `games`.

    The episodes of an evaluation are numbered; evaluations during training start at 0. Episodes
    are played in groups of `GAMES_AT_ONCE`. So calls that split the numbers at multiples of
    `GAMES_AT_ONCE` play the same episodes as one call.

    Args:
      params: agent parameters, leading axis R.
      fleet: acts for the R runs.
      games: what is played; the first number is a multiple of `GAMES_AT_ONCE`.
      before_step: called before every step; an exception in it ends the evaluation.
      after_step: called after every step.

    Raises:
      FloatingPointError: an action is not finite.
      ValueError: the number of the first episode is no multiple of `GAMES_AT_ONCE`.
    """
    first, end = games.numbers.start, games.numbers.stop
    if first % GAMES_AT_ONCE:
        raise ValueError(f"game {first} is not the first of {GAMES_AT_ONCE}")
    all_seeds = evaluation_seeds(fleet.seeds, games.agent_steps, end)
    protocol = fleet.agent.protocol.for_evaluation()
    parts = []
    for start in games.numbers[::GAMES_AT_ONCE]:
        numbers = range(start, min(start + GAMES_AT_ONCE, end))
        part = games._replace(numbers=numbers, film=games.film if start == first else 0)
        environment = games.make_environment(all_seeds[:, numbers.start : numbers.stop])
        with contextlib.closing(AgentEnvironment(environment, protocol)) as played:
            memory = fleet.init_memory(len(numbers))
            players = _Players(np.arange(fleet.num_runs), fleet, params, memory)
            parts.append(_play(players, played, part, before_step, after_step))
    return Evaluation(
        np.concatenate([part.returns for part in parts], axis=1),
        np.sum([part.cut for part in parts], axis=0),
        np.sum([part.failed for part in parts], axis=0),
        parts[0].films,
    )


# Episodes of a run that are played at the same time. Another number would change scores, because
# the random actions of an episode depend on its place in the group. With more episodes, more
# emulators wait for the longest one.
GAMES_AT_ONCE = 10


class _Players(NamedTuple):
    """The runs that still act; at first, all."""

    rows: np.ndarray  # [n], which of the R runs
    fleet: Fleet  # of these n
    params: types.Params  # on its devices
    memory: types.Memory

    def act(
        self, stacks: np.ndarray, *counters: int, policy_name: str
    ) -> tuple[np.ndarray, "_Players"]:
        """Actions `[R, N, *act]`, 0 for runs that do not act; arguments as in `Fleet.act`.

        Raises:
          FloatingPointError: an action is not finite.
        """
        runs = len(stacks)
        acting = stacks if len(self.rows) == runs else stacks[self.rows]
        chosen, memory = self.fleet.act(
            self.params, acting, self.memory, *counters, policy_name=policy_name
        )
        chosen = np.asarray(chosen)[: len(self.rows)]
        if not np.isfinite(chosen).all():
            raise FloatingPointError("an action is not finite")
        actions = np.zeros((runs, *chosen.shape[1:]), chosen.dtype)
        actions[self.rows] = chosen
        return actions, self._replace(memory=memory)

    def after(self, ended: np.ndarray) -> "_Players":
        """The players after episodes `[R, N] bool` have ended: their memory starts over."""
        return self._replace(memory=self.memory._replace(is_first=ended[self.rows]))

    def without(self, done: np.ndarray) -> "_Players":
        """Drops runs `[R] bool` that are done, once they are half of the runs that act.

        So a few long episodes do not keep a large fleet busy. Each fleet size is compiled once, so
        the size is only halved, rounded up. If that leaves room, some runs that are done stay.
        """
        done = done[self.rows]
        size = len(done)
        while 0 < np.sum(~done) <= (half := -(-size // 2)) < size:
            size = half
        if size == len(done):
            return self
        keep = np.sort(np.argsort(done, kind="stable")[:size])
        memory = self.memory
        fleet, (params, state) = self.fleet.part(keep, (self.params, memory.state))
        memory = types.Memory(state, memory.is_first[keep])
        return _Players(self.rows[keep], fleet, params, memory)


def _play(
    players: _Players,
    environment: AgentEnvironment,
    played: Games,
    before_step: Callable[[], None],
    after_step: Watcher,
) -> Evaluation:
    """Plays one episode in every environment, all at the same time."""
    games, runs = environment.num_envs, players.fleet.num_runs
    returns = np.full(games, np.nan)
    cut, failed = np.zeros(games, bool), np.zeros(games, bool)
    observation = environment.reset()
    # Copies: a view would keep the frames of all episodes in memory.
    filmed = range(0, games, games // runs)[: played.film]
    films = [Film([observation[game, -1].copy()], [], environment.shows(game)) for game in filmed]
    step = 0
    while np.isnan(returns).any():
        before_step()
        stacks = observation.reshape(runs, games // runs, *observation.shape[1:])
        counters = played.agent_steps, played.numbers.start, step
        actions, players = players.act(stacks, *counters, policy_name=played.policy_name)
        actions = actions.reshape(games, *actions.shape[2:])
        outcome = environment.step(actions)
        first = np.isnan(returns) & outcome.finished  # an environment restarts after its episode
        after_step(observation, actions, outcome, first)
        for game, kept in zip(filmed, films, strict=True):
            if np.isnan(returns[game]):
                if kept.shows is None:
                    kept.frames.append(outcome.frame[game].copy())
                kept.actions.append(actions[game].copy())
        returns = np.where(first, outcome.episode_return, returns)
        cut |= first & outcome.truncated
        failed |= first & outcome.failed
        ended = (outcome.terminated | outcome.truncated).reshape(runs, -1)
        players = players.after(ended)
        if first.any():
            done = ~np.isnan(returns)
            environment.retire(done)
            players = players.without(done.reshape(runs, -1).all(axis=1))
        observation = outcome.observation
        step += 1
    return Evaluation(
        returns.reshape(runs, -1),
        cut.reshape(runs, -1).sum(axis=1),
        failed.reshape(runs, -1).sum(axis=1),
        tuple(films),
    )
