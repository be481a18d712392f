"""The 26 games of the Atari-100k benchmark, through one of two emulator backends."""

import functools
import importlib
import logging
import re
from collections.abc import Sequence

import numpy as np

from rcrl_jax import reference
from rcrl_jax.envs import pools
from rcrl_jax.envs.atari_games import Screen
from rcrl_jax.envs.protocol import (
    EnvironmentSpec,
    VectorEnvironment,
    discrete_spec,
    validate_seeds,
)

ATARI_GAMES = reference.games()
"""The games of Table 1 of the RCRL paper, those of the Atari-100k benchmark."""

ATARI_BACKENDS = ("auto", "envpool", "ale")


GREY = Screen()


def largest_spec(frame_shape: tuple[int, ...] = GREY.frame_shape) -> EnvironmentSpec:
    """Spec of a game with all actions of the console; every game has these or fewer."""
    return discrete_spec(frame_shape, 18)


def make_atari(
    game: str,
    seeds: Sequence[int],
    *,
    backend: str = "auto",
    screen: Screen = GREY,
) -> VectorEnvironment:
    """Makes R copies of one game, R = len(seeds).

    Both backends: 4 emulator frames a step, maximum over the last two, resized by area averaging
    (rounded if grey, truncated in colour), minimal action set, no sticky actions, random no-ops at
    the start of a game, no FIRE at reset, raw rewards, no frame limit. Lives are reported and have
    no effect. The environment's `description` lists all these settings, and versions.

    Args:
        game: one of `ATARI_GAMES`.
        seeds: one per environment, in [0, 2**31).
        backend: 'envpool', 'ale' (ale_py.AtariVectorEnv), or 'auto': envpool where it can be
            imported, ale elsewhere. The same seed starts different games on the two backends.
        screen: how games are shown.

    Raises:
        ValueError: a bad seed.
        ImportError: the chosen backend is not installed.
    """
    seeds = validate_seeds(seeds)
    if backend == "auto":
        backend = _default_backend()
    # Imported here, because each backend needs another package.
    if backend == "envpool":
        from rcrl_jax.envs.atari_envpool import EnvpoolAtari

        return EnvpoolAtari(game, seeds, screen)
    from rcrl_jax.envs.atari_ale import AleAtari

    return AleAtari(game, seeds, screen)


@functools.cache  # one warning, however many games there are
def _default_backend() -> str:
    try:
        # OSError: an installed wheel can still miss a shared library of the system.
        importlib.import_module("envpool")
    except (ImportError, OSError) as error:
        logging.getLogger(__name__).warning(
            "envpool cannot be imported (%s): using ale_py instead", error
        )
        return "ale"
    return "envpool"


def make_games(
    games: Sequence[str],
    seeds_per_game: int,
    backend: str,
    seeds: np.ndarray,
    screen: Screen = GREY,
) -> VectorEnvironment:
    """Makes the environments of a fleet: one vector per game, joined in the order of the runs.

    Args:
        games: the games.
        seeds_per_game: runs of each game.
        backend: as in `make_atari`.
        seeds: `[R, E]`, environment seeds; R = games * seeds_per_game, run by run.
        screen: how games are shown.

    Raises:
        ValueError: a bad seed.
        ImportError: the chosen backend is not installed.
    """
    by_game = seeds.reshape(len(games), seeds_per_game * seeds.shape[1])
    made = [
        make_atari(game, game_seeds, backend=backend, screen=screen)
        for game, game_seeds in zip(games, by_game, strict=True)
    ]
    return made[0] if len(made) == 1 else pools.ConcatenatedEnvironments(made)


def plain_name(game: str) -> str:
    """`Pong` of gymnasium's `ALE/Pong-v5` and `PongNoFrameskip-v4`; other names as they are."""
    found = re.fullmatch(r"(?:ALE/)?([A-Za-z]+?)(?:NoFrameskip|Deterministic)?-v\d", game)
    return found[1] if found and found[1] in ATARI_GAMES else game
