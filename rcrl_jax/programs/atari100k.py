r"""Trains rows of the paper's Atari table: one run, or a whole fleet in one program.

    python -m experiments.atari100k --game=Pong --seed=0
    python -m experiments.atari100k --games=Pong,Alien --seeds=0:5

The same command in the same work directory resumes. Every hyperparameter of the preset is a flag,
--config.batch_size=64; --preset=simple --help lists those of `simple`.

--preset=simple has not been trained in full yet. A game with the deterministic model costs 80
PFLOP: at least 9 minutes of an H200, 13 of an H100, 23 of an A100, 15 of a TPU v5p, 13 of a v6e, 22
of a v5e (bounds, `benchmarks.compiled`), days of a few CPU cores. The stochastic model costs 570
PFLOP, counted by hand: months of a few CPU cores.
"""

import pathlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from absl import app, flags

from rcrl_jax.agents.rainbow.config import RainbowConfig
from rcrl_jax.agents.simple.config import SimpleConfig
from rcrl_jax.config import fields, presets
from rcrl_jax.envs import atari
from rcrl_jax.programs import command_line, launch
from rcrl_jax.training import host_memory
from rcrl_jax.training.environments import ENVIRONMENTS

_ALL = "all"

if TYPE_CHECKING:
    from rcrl_jax.training.evaluation import EnvironmentMaker
    from rcrl_jax.training.plan import Plan

flags.adopt_module_key_flags(launch)

GAME = flags.DEFINE_string("game", "Pong", f"game to train on: {', '.join(atari.ATARI_GAMES)}")
_GAMES = flags.DEFINE_list("games", None, "games of a fleet, e.g. Pong,Alien, or all")
_STEPS = flags.DEFINE_integer(
    "steps", None,
    "agent steps to train for (4 emulator frames each) [default: 100000; of simple: all rounds]",
    lower_bound=1, upper_bound=fields.LARGEST_INT,
)  # fmt: skip
_EVAL_EPISODES = flags.DEFINE_integer(
    "eval_episodes", ENVIRONMENTS["atari100k"].eval_episodes, "episodes of the final evaluation",
    lower_bound=1, upper_bound=command_line.MOST_EPISODES,
)  # fmt: skip
_BACKEND = flags.DEFINE_enum(
    "backend", "auto", atari.ATARI_BACKENDS, "Atari emulators; auto: envpool, or else ale"
)


def main(argv: list[str]) -> None:
    """Runs the experiment that the flags describe."""
    del argv
    try:
        games, seeds = _read_games(), launch.read_seeds()
        settings = command_line.read_config(presets.atari_presets())
        host_memory.keep_freed_memory(large_blocks=settings.needs_large_blocks)
        preset = flags.FLAGS.preset
        what = "+".join(games) if len(games) < len(atari.ATARI_GAMES) else _ALL
        plan = make_plan(preset, settings, games, seeds, launch.workdir(f"{preset}-{what}"))
        launch.check_effects(plan)
    except ValueError as error:
        command_line.refuse(str(error))
    with launch.ending_cleanly():
        launch.run(plan, atari.largest_spec(settings.frame_shape))


def make_plan(
    preset: str,
    settings: RainbowConfig | SimpleConfig,
    games: Sequence[str],
    seeds: Sequence[int],
    workdir: pathlib.Path,
    make_environment: "EnvironmentMaker | None" = None,
) -> "Plan":
    """The plan of one preset on every game with every seed; flags give the rest.

    `make_environment` is for games that are not Atari's.

    Raises:
      ValueError: a flag's value is out of range.
    """
    return launch.make_plan(
        preset,
        settings,
        games,
        seeds,
        settings.total_steps if _STEPS.value is None else _STEPS.value,
        _EVAL_EPISODES.value,
        _BACKEND.value,
        workdir,
        make_environment=make_environment,
    )


def _read_games() -> tuple[str, ...]:
    games = tuple(map(atari.plain_name, launch.read_names(GAME, _GAMES)))
    if games == (_ALL,):
        return atari.ATARI_GAMES
    for game in games:
        atari.check_game(game)
    return games


if __name__ == "__main__":
    command_line.define_config(presets.atari_presets(), "rcrl", sys.argv)
    app.run(main, flags_parser=command_line.parse)
