"""What can be played: one entry a benchmark, from its games to the maker of its environments."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rcrl_jax.config import presets
from rcrl_jax.config.presets import Config
from rcrl_jax.config.rainbow import MinAtarConfig
from rcrl_jax.envs import atari, dmc, minatar
from rcrl_jax.envs.protocol import EnvironmentSpec, VectorEnvironment

DMC_STEPS = 500_000
"""Environment steps of a run on DMControl, unless a user chooses."""


class Environment(NamedTuple):
    """One benchmark.

    Attributes:
        games: its games or tasks.
        backends: what may simulate them.
        presets_of: game -> the presets that train on it, by name.
        check: (configuration, game, backend) -> raises ValueError unless they go together.
        make: (configuration, games, runs of each game, backend, games of the whole fleet, seeds
            `[R, E]`) -> the environments of R runs, game by game, E of each run.
        spec: (configuration, games) -> the spec of these environments, with the largest action set
            that they may have.
        action_repeat: (game, configuration) -> environment steps of an agent step.
        steps: configuration -> environment steps of a run, unless a user chooses.
        eval_episodes: episodes of the final evaluation, unless a user chooses.
    """

    games: tuple[str, ...]
    backends: tuple[str, ...]
    presets_of: Callable[[str], Mapping[str, Config]]
    check: Callable[[Config, str, str], None]
    make: Callable[[Config, Sequence[str], int, str, Sequence[str], np.ndarray], VectorEnvironment]
    spec: Callable[[Config, Sequence[str]], EnvironmentSpec]
    action_repeat: Callable[[str, Config], int]
    steps: Callable[[Config], int]
    eval_episodes: int


def _check_atari(config: Config, game: str, backend: str) -> None:
    atari.check_game(game)
    atari.check_backend(backend)


def _make_atari(
    config: Config,
    games: Sequence[str],
    runs: int,
    backend: str,
    fleet: Sequence[str],
    seeds: np.ndarray,
) -> VectorEnvironment:
    screen = atari.Screen(config.frame_shape, config.most_noops)
    return atari.make_games(games, runs, backend, seeds, screen)


def _check_dmc(config: Config, task: str, backend: str) -> None:
    dmc.check_task(task)
    dmc.check_backend(backend, config.observation)


def _make_dmc(
    config: Config,
    tasks: Sequence[str],
    runs: int,
    backend: str,
    fleet: Sequence[str],
    seeds: np.ndarray,
) -> VectorEnvironment:
    return dmc.make_dmc(
        np.repeat(tasks, runs * seeds.shape[1]).tolist(),
        seeds.reshape(-1),
        backend=backend,
        observation=config.observation,
        render_size=config.render_size,
        action_repeat=config.action_repeat,
    )


def _check_minatar(config: Config, game: str, backend: str) -> None:
    minatar.check_game(game)
    if backend != minatar.BACKEND:
        raise ValueError(f"unknown MinAtar backend '{backend}': there is only {minatar.BACKEND}")


def _make_minatar(
    config: MinAtarConfig,
    games: Sequence[str],
    runs: int,
    backend: str,
    fleet: Sequence[str],
    seeds: np.ndarray,
) -> VectorEnvironment:
    return minatar.make_minatar(
        np.repeat(games, runs * seeds.shape[1]).tolist(),
        seeds.reshape(-1),
        sticky=config.sticky,
        minimal_actions=config.minimal_actions,
        fleet=fleet,
    )


ENVIRONMENTS = {
    "atari100k": Environment(
        games=atari.ATARI_GAMES,
        backends=atari.ATARI_BACKENDS,
        presets_of=lambda game: presets.atari_presets(),
        check=_check_atari,
        make=_make_atari,
        spec=lambda config, games: atari.largest_spec(config.frame_shape),
        action_repeat=lambda game, config: 1,
        steps=lambda config: config.total_steps,
        eval_episodes=100,
    ),
    "dmc": Environment(
        games=tuple(dmc.DMC_TASKS),
        backends=dmc.DMC_BACKENDS,
        presets_of=presets.control_presets,
        check=_check_dmc,
        make=_make_dmc,
        spec=lambda config, tasks: dmc.make_spec(
            tasks[0], config.observation, config.render_size, config.action_repeat
        ),
        action_repeat=lambda task, config: dmc.repeat_of(task, config.action_repeat),
        steps=lambda config: DMC_STEPS,
        eval_episodes=10,
    ),
    "minatar": Environment(
        games=minatar.MINATAR_GAMES,
        backends=(minatar.BACKEND,),
        presets_of=lambda game: presets.MINATAR_PRESETS,
        check=_check_minatar,
        make=_make_minatar,
        spec=lambda config, games: minatar.make_spec(games, config.minimal_actions),
        action_repeat=lambda game, config: 1,
        steps=lambda config: config.total_steps,
        eval_episodes=20,
    ),
}
"""The benchmarks, by the name of their training program."""


def environment_of(config: Config, game: str) -> Environment:
    """The benchmark of a run. Games of Atari and of MinAtar share names, so it takes both."""
    if isinstance(config, MinAtarConfig):
        return ENVIRONMENTS["minatar"]
    return ENVIRONMENTS["dmc" if game in dmc.DMC_TASKS else "atari100k"]
