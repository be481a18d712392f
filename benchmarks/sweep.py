r"""Trains presets x games x seeds, as many runs in one process as suit the machine.

    python -m benchmarks.sweep --presets=rcrl,erainbow_sa --games=Pong,Alien --seeds=0:5 \
        --results=results/NAME
    python -m benchmarks.sweep --experiment=dmc --presets=rcrl_sac --games=all --seeds=0:3 \
        --results=results/NAME

Runs of one preset are planned as fleets; a fleet is one process that trains its runs side by side:
up to 130 on an accelerator, one for each core on CPUs (--max_runs_per_fleet). A run's result is
independent of its fleet. On a terminal, one table shows every fleet; elsewhere there are lines.

The same command goes on after a stop or a kill: finished runs are skipped and fleets that were
begun resume with the runs that they have. With more presets, games or seeds, new fleets train what
is missing. A fleet that fails is started again after the others (--attempts). In
<workdir>/<name of the results>/:

    <fleet>/          its work directory, deleted once its runs are in the results
    <fleet>.log       what it printed
    failures.jsonl    fleets that failed: exit code, last lines of the log, time
    lock              process id of the sweep

Runs are collected in <results>/<preset>/<game>/seed_<n>/; with changed fields, for example
--config.n_step=10 --name=n10, in <results>/<preset>-n10/<preset>/<game>/seed_<n>/.

--launcher=ray starts the same fleets on a Ray cluster, where all machines see the same files under
the same paths; docs/running.md explains it. Exit codes: 0 all finished, 1 some failed, 2 refused,
128 + n stopped by signal n.
"""

import os
import pathlib
import sys
from typing import Any

from absl import app, flags

from experiments import command_line, sweeps
from rcrl_jax.config import fields
from rcrl_jax.training.sweep.reading import make_spec
from rcrl_jax.training.sweep.spec import Spec

flags.adopt_module_key_flags(sweeps)

PROTOCOLS = {"atari100k": (100_000, 100), "dmc": (500_000, 10)}
"""Experiment -> steps and final episodes, unless flags say otherwise: the programs' own."""

_EXPERIMENT = flags.DEFINE_enum(
    "experiment", "atari100k", list(sweeps.EXPERIMENTS), "the program that trains"
)
_PRESETS = flags.DEFINE_list("presets", None, "rows of the paper's table, e.g. rcrl,erainbow_sa")
_GAMES = flags.DEFINE_list("games", None, "games or tasks, e.g. Pong,Alien, or all")
flags.DEFINE_alias("tasks", "games")
_SEEDS = flags.DEFINE_string("seeds", "0:5", "seeds of every preset and game: 0,1 or 0:5")
_STEPS = flags.DEFINE_integer(
    "steps", None,
    "--steps of the program [default: 100000 for atari100k, 500000 for dmc]",
    lower_bound=1, upper_bound=fields.LARGEST_INT,
)  # fmt: skip
_EVAL_EPISODES = flags.DEFINE_integer(
    "eval_episodes", None,
    "episodes of the final evaluation [default: 100 for atari100k, 10 for dmc]",
    lower_bound=1, upper_bound=10_000,
)  # fmt: skip
_RESULTS = flags.DEFINE_string("results", None, "directory of finished runs, e.g. results/NAME")
_NAME = flags.DEFINE_string(
    "name", None, "name of the presets with the fields that --config changes, e.g. n10"
)
_WORKDIR = flags.DEFINE_string(
    "workdir", "runs/sweep", "directory of unfinished runs, in a folder named after the results"
)


def main(argv: list[str]) -> None:
    """Carries out the sweep that the flags describe."""
    del argv
    try:
        spec = make_sweep()
    except ValueError as error:
        command_line.refuse(_name_flag(str(error)))
    name = os.path.basename(os.path.abspath(spec.results))  # also of --results=. and ..
    sweeps.carry_out(spec, pathlib.Path(_WORKDIR.value) / name)


def make_sweep() -> Spec:
    """The sweep that the flags describe.

    Raises:
      ValueError: they describe none; the message begins with the flag's name.
    """
    for flag in (_PRESETS, _GAMES, _RESULTS):
        if not flag.value:
            raise ValueError(f"{flag.name}: missing; --help shows examples")
    experiment = sweeps.EXPERIMENTS[_EXPERIMENT.value]
    games = _GAMES.value
    if games in (["all"], [f"all{len(experiment.games)}"]):
        games = list(experiment.games)
    block = {"games": games, "seeds": _SEEDS.value}
    overrides = flags.FLAGS["config"].override_values
    if bool(overrides) != bool(_NAME.value):
        raise ValueError("name: goes with changed fields, --config.n_step=10 --name=n10")
    arms: dict[str, Any] = {}
    if overrides:
        config = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in overrides.items()
        }
        arms = {f"{p}-{_NAME.value}": {"preset": p, "config": config} for p in _PRESETS.value}
        block["arms"] = list(arms)
    else:
        block["presets"] = _PRESETS.value
    steps, episodes = PROTOCOLS[_EXPERIMENT.value]
    table = {
        "experiment": _EXPERIMENT.value,
        "steps": _STEPS.value or steps,
        "eval_episodes": _EVAL_EPISODES.value or episodes,
        "results": _RESULTS.value,
        "arms": arms,
        "blocks": [block],
    }
    return make_spec(table, sweeps.EXPERIMENTS)


def _name_flag(message: str) -> str:
    """A message about the table of a sweep, as one about the flags."""
    message = message.removeprefix("block 1: ")
    return f"--{message}" if message.partition(":")[0] in flags.FLAGS else message


def _define_config(argv: list[str]) -> None:
    """Defines --config with the fields of the first preset, which all presets have."""
    ahead = command_line.read_ahead(argv, "experiment", "presets")
    experiment = sweeps.EXPERIMENTS.get(ahead.get("experiment"), sweeps.EXPERIMENTS["atari100k"])
    presets = experiment.presets_of(experiment.games[0])
    named = ahead.get("presets", "").split(",")
    name = next((name for name in named if name in presets), next(iter(presets)))
    command_line.define_fields(presets[name], name, argv)


if __name__ == "__main__":
    _define_config(sys.argv)
    app.run(main, flags_parser=command_line.parse)
