r"""Trains many runs: presets x games x seeds, from flags or listed in a file.

    python -m experiments.sweep --presets=rcrl,erainbow_sa --games=Pong,Alien --seeds=0:5 \
        --results=results/NAME
    python -m experiments.sweep --experiment=dmc --presets=rcrl_sac --games=all --seeds=0:3 \
        --results=results/NAME
    python -m experiments.sweep --presets=rcrl,erainbow --environment=gymnasium:CartPole-v1 \
        --results=results/NAME
    python -m experiments.sweep --spec=mine.toml

A spec is a TOML file:

    experiment = "atari100k"      # or "dmc", "minatar"; for games of your own in its place
                                  # environment = "gymnasium:CartPole-v1", or a list
    results = "results/NAME"      # directory of finished runs
    steps = 100_000               # optional, like the next: --steps of that program
    eval_episodes = 100
    runs_per_fleet = 20           # optional: as --max_runs_per_fleet
    games_per_fleet = 1           # optional: games with more actions slow the others of a fleet

    [config]                      # optional: changed fields of all presets and arms; a list
    learning_rate = [1e-4, 2e-4]  # makes one arm a value, named rcrl-learning_rate=0.0001

    [arms.uniform]                # optional: a preset with changed fields, under a name
    preset = "rcrl"
    config = { return_contrast = { anchors = "uniform" } }

    [[blocks]]                    # blocks are carried out in this order
    presets = ["erainbow_sa", "rcrl"]
    arms = ["uniform"]            # names from above
    games = ["Hero", "Asterix"]
    seeds = "0:5"                 # or a list, [0, 1, 2]

Within a block, runs are ordered by seed, then by game, then by preset or arm. Runs of one preset or
arm are planned as fleets; a fleet is one process that trains its runs side by side: up to 130 on an
accelerator, one on CPUs, where each fleet has a core (--max_runs_per_fleet). The same command goes
on after a stop or a kill: finished runs are skipped, and fleets that were begun resume with the
runs that they have. In <workdir>/<name of the results>/:

    <fleet>/          its work directory, deleted once its runs are in the results
    <fleet>.log       where it runs and what it prints
    lock              who runs the sweep: process, machine, command

A finished run's scores.json, evaluations.jsonl, metrics.jsonl, manifest.json, curve.png and
parameters.npz are copied to <results>/<preset>/<game>/seed_<n>/, those of an arm to
<results>/<arm>/<preset>/<game>/seed_<n>/. Meanwhile <results>/.lock is held: sweeps may share their
results. If a run there has another algorithm number (in manifest.json) or configuration, or files
that do not belong together, the sweep is refused.

After SIGTERM or Ctrl-C, every running fleet saves its state first. To pause a sweep, stop its
process group, whose number it prints: kill -STOP -- -PGID; to continue: kill -CONT -- -PGID.
--ray starts the same fleets on a Ray cluster, where all machines see the same files under the same
paths; docs/sweeps.md explains it. Exit codes: 0 all finished, 1 some failed, 2 refused, 128 + n
stopped by signal n.
"""

import contextlib
import functools
import importlib.metadata
import os
import pathlib
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from absl import app, flags

from rcrl_jax import files, words
from rcrl_jax.config import fields
from rcrl_jax.envs import pools
from rcrl_jax.programs import command_line
from rcrl_jax.programs.sweeps import driver, local, ray_launcher, work
from rcrl_jax.programs.sweeps.spec import (
    EXPERIMENTS,
    TRAIN,
    FleetPlan,
    Spec,
    SweepError,
    make_spec,
    read_spec,
)
from rcrl_jax.runs import records, tracking

_RUNS_ON_ACCELERATOR = 130  # 26 games x 5 seeds, the paper's table for one preset

_SPEC = flags.DEFINE_string("spec", None, "TOML file that lists the runs, instead of flags")
_EXPERIMENT = flags.DEFINE_enum(
    "experiment", "atari100k", list(EXPERIMENTS), "the program that trains"
)
_PRESETS = flags.DEFINE_list("presets", None, "presets, e.g. rcrl,erainbow_sa")
_GAMES = flags.DEFINE_list("games", None, "games or tasks, e.g. Pong,Alien, or all")
_ENVIRONMENT = flags.DEFINE_list(
    "environment", None, "games of your own in place of --experiment and --games, as in train"
)
_SEEDS = flags.DEFINE_string("seeds", "0:5", "seeds of every preset and game: 0,1 or 0:5 (0 to 4)")
_STEPS = flags.DEFINE_integer(
    "steps", None, "--steps of the program [default: the program's own]",
    lower_bound=1, upper_bound=fields.LARGEST_INT,
)  # fmt: skip
_EVAL_EPISODES = flags.DEFINE_integer(
    "eval_episodes", None,
    "episodes of the final evaluation [default: the program's own]",
    lower_bound=1, upper_bound=command_line.MOST_EPISODES,
)  # fmt: skip
_RESULTS = flags.DEFINE_string("results", None, "directory of finished runs, e.g. results/NAME")
_WORKDIR = flags.DEFINE_string(
    "workdir", "runs/sweep", "directory of unfinished runs, in a folder named after the results"
)
_DRY_RUN = flags.DEFINE_bool("dry_run", False, "print every run with its state, and start none")
_MAX_RUNS = flags.DEFINE_integer(
    "max_runs_per_fleet", None,
    "the most runs that one process trains side by side [default: 1 on CPUs, "
    f"{_RUNS_ON_ACCELERATOR} on an accelerator; a GPU of 80 GB holds 65 of rcrl]",
    lower_bound=1,
)  # fmt: skip
_TRACK = flags.DEFINE_bool("track", False, "send records of all runs to Weights & Biases")
_NICENESS = flags.DEFINE_integer(
    "niceness", 19, "added to this process's niceness for fleets; 19 is the lowest priority",
    lower_bound=0, upper_bound=19,
)  # fmt: skip
_RAY = flags.DEFINE_string(
    "ray", None,
    "address of the Ray cluster that runs the fleets; auto: the one that this machine belongs to; "
    "local: start one on this machine alone",
)  # fmt: skip
_CPUS = flags.DEFINE_integer("cpus_per_fleet", 1, "cores that Ray reserves", lower_bound=0)
_GPUS = flags.DEFINE_integer("gpus_per_fleet", 0, "GPUs that Ray reserves", lower_bound=0)


def main(argv: list[str]) -> None:
    """Carries out the sweep that the flags describe, and ends the program with its exit code."""
    del argv
    try:
        spec = _read_flags()
        if _TRACK.value:
            tracking.check_installed()
        name = os.path.basename(os.path.abspath(spec.results))  # also of --results=. and ..
        directory = pathlib.Path(_WORKDIR.value) / name
        files.check_writable(spec.results)
        accelerated = _has_accelerator()
        max_runs = _most_runs(spec, accelerated)
        planned = work.plan(spec, directory, max_runs)
        if _DRY_RUN.value:
            _print_states(spec, directory, planned)
            return
        # The launcher first: where Ray refuses, nothing is written.
        with _launcher(accelerated) as start, files.locked(directory, "sweep"):
            files.make_writable(spec.results)
            work.tidy(spec, directory)
            planned = work.plan(spec, directory, max_runs)  # nobody else changes them now
            runs = sum(len(fleet.units) for fleet in planned)
            words.say(f"{runs} runs to do in {len(planned)} fleets, process group {os.getpgrp()}")
            summary = driver.Sweep(
                spec,
                planned,
                directory,
                start=start,
                workers=_workers(accelerated),
                make_command=lambda *of: [*spec.make_command(*of), *["--track"] * _TRACK.value],
                say=words.say,
            ).run()
    except (SweepError, tracking.NotTracked, files.InUse, files.Damaged, OSError) as error:
        command_line.refuse(str(error))
    _exit(summary)


def _most_runs(spec: Spec, accelerated: bool) -> int:
    """The most runs of a fleet.

    Raises:
      SweepError: a flag contradicts the spec.
    """
    if _MAX_RUNS.value and spec.runs_per_fleet:
        raise SweepError(f"--max_runs_per_fleet: the spec has runs_per_fleet={spec.runs_per_fleet}")
    return _MAX_RUNS.value or spec.runs_per_fleet or (_RUNS_ON_ACCELERATOR if accelerated else 1)


def _read_flags() -> Spec:
    """The sweep that the flags describe.

    Raises:
      SweepError: they describe none.
      Damaged, OSError: the spec cannot be read.
    """
    for flag in (_CPUS, _GPUS):
        if flag.present and not _RAY.value:
            raise SweepError(f"--{flag.name} without --ray: only Ray reserves cores and GPUs")
    described = (
        _EXPERIMENT,
        _ENVIRONMENT,
        _PRESETS,
        _GAMES,
        _SEEDS,
        _STEPS,
        _EVAL_EPISODES,
        _RESULTS,
    )
    if _SPEC.value is not None:
        for flag in described:
            if flag.present:
                raise SweepError(f"--spec beside --{flag.name}: the file says it")
        return read_spec(_SPEC.value)
    own = _ENVIRONMENT.value
    for flag in (_PRESETS, _ENVIRONMENT if own else _GAMES, _RESULTS):
        if not flag.value:
            raise SweepError(f"--{flag.name} or --spec is missing; --help shows examples")
    for flag in (_EXPERIMENT, _GAMES):
        if own and flag.present:
            raise SweepError(f"--environment beside --{flag.name}: it names what is played")
    experiment = TRAIN if own else EXPERIMENTS[_EXPERIMENT.value]
    games = own or _GAMES.value
    table = {
        **({"environment": own} if own else {"experiment": _EXPERIMENT.value}),
        **{flag.name: flag.value for flag in (_STEPS, _EVAL_EPISODES) if flag.value},
        "results": _RESULTS.value,
        "blocks": [
            {
                "presets": _PRESETS.value,
                "games": list(experiment.environment.games) if games == ["all"] else games,
                "seeds": _SEEDS.value,
            }
        ],
    }
    try:
        spec = make_spec(table)
    except ValueError as error:
        raise SweepError(re.sub("^block 1: |^(?=steps is missing)", "--", str(error))) from None
    command_line.say_if_one_seed(_SEEDS.value)
    return spec


def _has_accelerator() -> bool:
    """Whether fleets run on an accelerator."""
    if _RAY.value:
        return _GPUS.value > 0
    # JAX finds an accelerator only through these packages. To ask JAX itself takes seconds.
    installed = {d.name.lower() for d in importlib.metadata.distributions() if d.name}
    plugins = importlib.metadata.entry_points(group="jax_plugins")
    if "libtpu" not in installed and not plugins:
        return False
    # In a separate process, whose end frees the device.
    program = "import jax; print(jax.default_backend())"
    asked = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    # If JAX fails, as where another process holds a TPU, a fleet fails, too, and its log says why.
    backend = "".join(asked.stdout.split()[-1:])
    if idle := command_line.idle_gpu(backend):
        words.say(f"warning: {idle}")
    return backend != "cpu"


def _launcher(accelerated: bool) -> contextlib.AbstractContextManager[Callable[..., Any]]:
    """A context that yields what starts the command of a fleet."""
    if _RAY.value:
        room = {"cpus": _CPUS.value, "gpus": _GPUS.value}
        return ray_launcher.connected(_RAY.value, niceness=_NICENESS.value, **room)
    cores = 0 if accelerated else 1
    return contextlib.nullcontext(
        functools.partial(local.start_process, cores=cores, niceness=_NICENESS.value)
    )


def _workers(accelerated: bool) -> int | None:
    """How many fleets may run at a time; None where Ray decides."""
    if _RAY.value:
        return None
    return 1 if accelerated else pools.usable_cores()


def _print_states(spec: Spec, directory: pathlib.Path, planned: list[FleetPlan]) -> None:
    fleet_of = {unit: fleet for fleet in planned for unit in fleet.units}
    for unit in spec.units:
        state, where = "finished", ""
        if unit in fleet_of:
            fleet = fleet_of[unit]
            paths = work.paths_of(directory, fleet, unit)
            begun = paths.manifest.exists()
            state = f"at step {records.read_progress(paths)[0]:,}" if begun else "to do"
            where = f" in {fleet.name}" if len(fleet.units) > 1 else ""
        print(f"{state:<24}{unit.name}{where}")


def _exit(summary: driver.Summary) -> NoReturn:
    line = f"{summary.finished} finished, {summary.failed} failed, {summary.left} left"
    if summary.stopped_by is not None:
        name = signal.Signals(summary.stopped_by).name
        with contextlib.suppress(OSError):  # after SIGHUP, the terminal may be gone
            print(f"stopped by {name}: {line}; the same command goes on", file=sys.stderr)
        sys.exit(128 + summary.stopped_by)
    print(line)
    sys.exit(1 if summary.failed else 0)


if __name__ == "__main__":
    app.run(main, flags_parser=command_line.parse)
