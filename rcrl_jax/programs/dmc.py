r"""Trains the systems of the paper's DMControl figure: one run, or a fleet in one program.

    python -m experiments.dmc --task=cheetah_run --seed=0
    python -m experiments.dmc --tasks=reacher_easy,ball_in_cup_catch --seeds=0:5

The same command in the same work directory resumes. Every hyperparameter of the preset is a flag,
--config.batch_size=128; --preset=dreamer --help lists those of `dreamer`.

At the default --steps a world model takes three (slac) to eight (planet) days on two CPU cores.
"""

from collections.abc import Sequence

from absl import flags

from rcrl_jax.config import presets
from rcrl_jax.envs import dmc
from rcrl_jax.programs import command_line, launch
from rcrl_jax.training.environments import ENVIRONMENTS


def _check_fleet(tasks: Sequence[str], settings: presets.Config) -> None:
    """Checks that tasks can form a fleet.

    Raises:
      ValueError: they differ in action repeat or learning rate. A fleet's runs take their agent
        steps together and share one configuration.
    """
    own_rate = settings.family != "sac" or "learning_rate" in command_line.changed_fields()
    rates = {} if own_rate else presets.DMC_LEARNING_RATES
    for other in tasks[1:]:
        for what, of in (
            ("action repeat", lambda task: dmc.repeat_of(task, settings.action_repeat)),
            ("learning rate", rates.get),
        ):
            if of(tasks[0]) != of(other):
                raise ValueError(
                    f"--tasks: {tasks[0]} and {other} differ in {what}: start two fleets"
                )


PROGRAM = launch.define(
    launch.Program(
        ENVIRONMENTS["dmc"],
        "rcrl_sac",
        "cheetah_run",
        steps_help="environment steps to train for, action repeats counted",
        backend_help="simulator and renderer; envpool: only from pixels, and needs EGL and libGL",
        check_fleet=_check_fleet,
    )
)
flags.adopt_module_key_flags(launch)

if __name__ == "__main__":
    launch.start(PROGRAM)
