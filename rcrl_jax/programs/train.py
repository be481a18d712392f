r"""Trains on a game of your own: an environment of gymnasium, or what a function of yours makes.

    python -m experiments.train --environment=gymnasium:CartPole-v1 --config.v_max=100
    python -m experiments.train --environment=gymnasium:Pendulum-v1 --preset=rcrl_sac --steps=20000
    python -m experiments.train --environment=mymodule:make --preset=erainbow --seeds=0:5

`make` takes no arguments and returns an environment with gymnasium's interface; its module is
looked for in the current folder, too. Presets of Rainbow play discrete actions, those of SAC
continuous ones. docs/extending.md says which observations agents read, and how. The same command in
the same work directory resumes. Every hyperparameter of the preset is a flag,
--config.batch_size=64.
"""

import sys

from absl import app, flags

from rcrl_jax.config import fields
from rcrl_jax.envs import gymnasium_games
from rcrl_jax.envs.protocol import SimulatorFailed
from rcrl_jax.programs import command_line, launch
from rcrl_jax.training import host_memory
from rcrl_jax.training.environments import OWN

_PRESETS = OWN.presets_of("")
_DEFAULT = "rcrl"

flags.adopt_module_key_flags(launch)

_ENVIRONMENT = flags.DEFINE_string(
    "environment", None, "gymnasium:CartPole-v1, or mymodule:make for a function of a module"
)
_STEPS = flags.DEFINE_integer(
    "steps", OWN.steps(_PRESETS[_DEFAULT]), "agent steps to train for",
    lower_bound=1, upper_bound=fields.LARGEST_INT,
)  # fmt: skip
_EVAL_EPISODES = flags.DEFINE_integer(
    "eval_episodes", OWN.eval_episodes, "episodes of the final evaluation",
    lower_bound=1, upper_bound=command_line.MOST_EPISODES,
)  # fmt: skip


def main(argv: list[str]) -> None:
    """Runs the experiment that the flags describe."""
    del argv
    try:
        if _ENVIRONMENT.value is None:
            raise ValueError("--environment is missing: for example gymnasium:CartPole-v1")
        game, seeds, preset = (
            gymnasium_games.name_of(_ENVIRONMENT.value),
            launch.read_seeds(),
            flags.FLAGS.preset,
        )
        given, usual = command_line.changed_fields(), _PRESETS[preset]
        settings = fields.replace(usual, {**OWN.fields_of(usual, game), **given})
        host_memory.keep_freed_memory(large_blocks=settings.needs_large_blocks)
        plan = launch.make_plan(
            preset,
            settings,
            (game,),
            seeds,
            _STEPS.value,
            _EVAL_EPISODES.value,
            gymnasium_games.BACKEND,
            launch.workdir(f"{preset}-{game}"),
        )
        launch.check_effects(plan)
    except (ValueError, SimulatorFailed) as error:
        command_line.refuse(str(error))
    with launch.ending_cleanly():
        launch.run(plan, OWN.spec(settings, (game,)))


if __name__ == "__main__":
    command_line.define_config(_PRESETS, _DEFAULT, sys.argv)
    app.run(main, flags_parser=command_line.parse)
