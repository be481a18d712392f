r"""Trains the systems of the paper's DMControl figure: one run, or a fleet in one program.

    python -m experiments.dmc --task=cheetah_run --seed=0
    python -m experiments.dmc --tasks=reacher_easy,ball_in_cup_catch --seeds=0:5

The same command in the same work directory resumes. Every hyperparameter of the preset is a flag,
--config.batch_size=128; --preset=dreamer --help lists those of `dreamer`.

At the default --steps a world model takes three (slac) to eight (planet) days on two CPU cores.
"""

import sys

from absl import app, flags

from rcrl_jax.config import fields, presets
from rcrl_jax.envs import dmc
from rcrl_jax.programs import command_line, launch
from rcrl_jax.training import host_memory
from rcrl_jax.training.environments import DMC_STEPS, ENVIRONMENTS

flags.adopt_module_key_flags(launch)

_DMC = ENVIRONMENTS["dmc"]
_TASK_NAMES = ", ".join(dmc.DMC_TASKS)
_TASK = flags.DEFINE_string("task", "cheetah_run", f"task to train on: {_TASK_NAMES}")
_TASKS = flags.DEFINE_list(
    "tasks", None, "tasks of a fleet, with equal action repeats and equal learning rates"
)
_STEPS = flags.DEFINE_integer(
    "steps", DMC_STEPS, "environment steps to train for (action repeats counted)",
    lower_bound=1, upper_bound=fields.LARGEST_INT,
)  # fmt: skip
_EVAL_EPISODES = flags.DEFINE_integer(
    "eval_episodes", _DMC.eval_episodes, "episodes of the final evaluation",
    lower_bound=1, upper_bound=command_line.MOST_EPISODES,
)  # fmt: skip
_BACKEND = flags.DEFINE_enum(
    "backend", "dm_control", dmc.DMC_BACKENDS,
    "simulator and renderer; envpool: only from pixels, and needs EGL and libGL",
)  # fmt: skip


def main(argv: list[str]) -> None:
    """Runs the experiment that the flags describe."""
    del argv
    try:
        tasks, seeds = launch.read_names(_TASK, _TASKS), launch.read_seeds()
        for task in tasks:
            dmc.check_task(task)
        settings = command_line.read_config(presets.control_presets(tasks[0]))
        host_memory.keep_freed_memory(large_blocks=settings.needs_large_blocks)
        _check_fleet(tasks, settings)
        repeat = dmc.repeat_of(tasks[0], settings.action_repeat)
        if _STEPS.value < repeat:
            raise ValueError(f"--steps: must be at least the action repeat, {repeat}")
        plan = launch.make_plan(
            flags.FLAGS.preset,
            settings,
            tasks,
            seeds,
            _STEPS.value // repeat,
            _EVAL_EPISODES.value,
            _BACKEND.value,
            launch.workdir(f"{flags.FLAGS.preset}-{'+'.join(tasks)}"),
        )
        launch.check_effects(plan)
    except ValueError as error:
        command_line.refuse(str(error))
    with launch.ending_cleanly():
        launch.run(plan, _DMC.spec(settings, tasks))


def _check_fleet(tasks: tuple[str, ...], settings: presets.Config) -> None:
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


if __name__ == "__main__":
    command_line.define_config(presets.control_presets(), "rcrl_sac", sys.argv)
    app.run(main, flags_parser=command_line.parse)
