r"""Trains on a game of your own: an environment of gymnasium, or what a function of yours makes.

    python -m experiments.train --environment=gymnasium:CartPole-v1 --config.v_max=100
    python -m experiments.train --environment=gymnasium:Pendulum-v1 --preset=rcrl_sac --steps=20000
    python -m experiments.train --environment=mymodule:make --preset=erainbow --seeds=0:5

`make` returns an environment with gymnasium's interface; its module is looked for in the current
folder, too. Presets of Rainbow play discrete actions, those of SAC continuous ones.
docs/own.md says which observations agents read, and how. The same command in the same work
directory resumes. Every hyperparameter of the preset is a flag, --config.batch_size=64.
"""

from absl import flags

from rcrl_jax.envs import gymnasium_games
from rcrl_jax.programs import launch
from rcrl_jax.training.environments import OWN

PROGRAM = launch.define(
    launch.Program(
        OWN,
        "rcrl",
        game=None,
        games_help="gymnasium:CartPole-v1, or mymodule:make for a function of a module",
        read_name=gymnasium_games.name_of,
    )
)
flags.adopt_module_key_flags(launch)

if __name__ == "__main__":
    launch.start(PROGRAM)
