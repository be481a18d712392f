r"""Trains the systems of the paper's DMControl figure: one run, or a fleet in one program.

    python -m experiments.dmc --task=cheetah_run --seed=0
    python -m experiments.dmc --tasks=reacher_easy,ball_in_cup_catch --seeds=0:5

The same command in the same work directory resumes. Every hyperparameter of the preset is a flag,
--config.batch_size=128; --preset=dreamer --help lists those of `dreamer`.

At the default --steps a world model takes three (slac) to eight (planet) days on two CPU cores.
"""

from absl import flags

from rcrl_jax.programs import launch
from rcrl_jax.training.environments import ENVIRONMENTS

PROGRAM = launch.define(
    launch.Program(
        ENVIRONMENTS["dmc"],
        "rcrl_sac",
        "cheetah_run",
        steps_help="environment steps to train for, action repeats counted",
        backend_help="simulator and renderer; envpool: only from pixels, and needs EGL and libGL",
    )
)
flags.adopt_module_key_flags(launch)

if __name__ == "__main__":
    launch.start(PROGRAM)
