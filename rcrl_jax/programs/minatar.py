r"""Trains small agents on MinAtar's five games: one run, or a whole fleet in one program.

    python -m experiments.minatar --game=Breakout --seed=0
    python -m experiments.minatar --games=Breakout,Asterix --seeds=0:15

The same command in the same work directory resumes. Every hyperparameter of the preset is a flag,
--config.batch_size=64.
"""

import sys

from absl import app, flags

from rcrl_jax.config import fields, presets
from rcrl_jax.envs import minatar
from rcrl_jax.programs import command_line, launch
from rcrl_jax.training import host_memory
from rcrl_jax.training.environments import ENVIRONMENTS

_MINATAR = ENVIRONMENTS["minatar"]
_DEFAULT = "minatar_rcrl"
_ALL = "all"

flags.adopt_module_key_flags(launch)

_GAME = flags.DEFINE_string(
    "game", "Breakout", f"game to train on: {', '.join(minatar.MINATAR_GAMES)}"
)
_GAMES = flags.DEFINE_list("games", None, "games of a fleet, e.g. Breakout,Asterix, or all")
_STEPS = flags.DEFINE_integer(
    "steps", _MINATAR.steps(presets.MINATAR_PRESETS[_DEFAULT]), "agent steps to train for",
    lower_bound=1, upper_bound=fields.LARGEST_INT,
)  # fmt: skip
_EVAL_EPISODES = flags.DEFINE_integer(
    "eval_episodes", _MINATAR.eval_episodes, "episodes of the final evaluation",
    lower_bound=1, upper_bound=command_line.MOST_EPISODES,
)  # fmt: skip
_SHORT = (
    flags.DEFINE_float("sticky", None, "short for --config.sticky"),
    flags.DEFINE_bool("minimal_actions", None, "short for --config.minimal_actions"),
)


def main(argv: list[str]) -> None:
    """Runs the experiment that the flags describe."""
    del argv
    try:
        games, seeds = launch.read_names(_GAME, _GAMES), launch.read_seeds()
        if games == (_ALL,):
            games = minatar.MINATAR_GAMES
        for game in games:
            minatar.check_game(game)
        settings = _read_config()
        host_memory.keep_freed_memory(large_blocks=settings.needs_large_blocks)
        preset = flags.FLAGS.preset
        what = "+".join(games) if len(games) < len(minatar.MINATAR_GAMES) else _ALL
        plan = launch.make_plan(
            preset,
            settings,
            games,
            seeds,
            _STEPS.value,
            _EVAL_EPISODES.value,
            minatar.BACKEND,
            launch.workdir(f"{preset}-{what}"),
        )
        launch.check_effects(plan)
    except ValueError as error:
        command_line.refuse(str(error))
    with launch.ending_cleanly():
        launch.run(plan, _MINATAR.spec(settings, games))


def _read_config() -> presets.MinAtarConfig:
    short = {flag.name: flag.value for flag in _SHORT if flag.present}
    for name in short:
        if name in command_line.changed_fields():
            raise ValueError(f"--{name} beside --config.{name}: give one of them")
    return fields.replace(command_line.read_config(presets.MINATAR_PRESETS), short)


if __name__ == "__main__":
    command_line.define_config(presets.MINATAR_PRESETS, _DEFAULT, sys.argv)
    app.run(main, flags_parser=command_line.parse)
