"""What the commands that carry out many runs share: flags, launchers, exit codes."""

import contextlib
import importlib.metadata
import os
import pathlib
import signal
import subprocess
import sys
from typing import NoReturn

from absl import flags

from experiments import command_line
from rcrl_jax.config import groups, presets
from rcrl_jax.envs import atari, dmc
from rcrl_jax.training.sweep import collection, driver, fleets, launchers, ray_launcher
from rcrl_jax.training.sweep.display import open_display
from rcrl_jax.training.sweep.progress import read_progress
from rcrl_jax.training.sweep.spec import Experiment, Fleet, Spec, SweepError, Unit

_RUNS_ON_ACCELERATOR = 130  # 26 games x 5 seeds, the paper's table for one preset

_MAX_RUNS = flags.DEFINE_integer(
    "max_runs_per_fleet", None,
    "the most runs that one process trains side by side [default: 1 on CPUs, "
    f"{_RUNS_ON_ACCELERATOR} on an accelerator]",
    lower_bound=1,
)  # fmt: skip
_ATTEMPTS = flags.DEFINE_integer(
    "attempts", 2, "how often a fleet is started before it counts as failed", lower_bound=1
)
_DRY_RUN = flags.DEFINE_bool("dry_run", False, "print every run with its state, and start none")
_LAUNCHER = flags.DEFINE_enum(
    "launcher", "local", ["local", "ray"], "where fleets run: on this machine or on a Ray cluster"
)
_WORKERS = flags.DEFINE_integer(
    "workers", None,
    "local: fleets at a time [default: 1 on an accelerator, else the cores that this process may "
    "use]",
    lower_bound=1,
)  # fmt: skip
_NICENESS = flags.DEFINE_integer(
    "niceness", 19, "added to this process's niceness for fleets; 19 is the lowest priority",
    lower_bound=0, upper_bound=19,
)  # fmt: skip
_ADDRESS = flags.DEFINE_string(
    "address", "auto",
    "ray: address of the cluster; auto: the one that this machine belongs to; local: start one on "
    "this machine alone",
)  # fmt: skip
_CPUS = flags.DEFINE_integer("cpus_per_fleet", 1, "ray: cores reserved for a fleet", lower_bound=0)
_GPUS = flags.DEFINE_integer("gpus_per_fleet", 0, "ray: GPUs reserved for a fleet", lower_bound=0)

EXPERIMENTS = {
    "atari100k": Experiment(
        "experiments.atari100k",
        game_flag="game",
        games=atari.ATARI_GAMES,
        presets_of=lambda game: presets.ATARI_PRESETS,
        action_repeat=lambda game: 1,
    ),
    "dmc": Experiment(
        "experiments.dmc",
        game_flag="task",
        games=tuple(dmc.DMC_TASKS),
        presets_of=presets.dmc_presets_of,
        action_repeat=lambda task: dmc.DMC_TASKS[task].action_repeat,
    ),
}
"""The programs that a sweep may run."""


def carry_out(spec: Spec, directory: pathlib.Path) -> NoReturn:
    """Carries out a sweep as the flags say, and ends the program with its exit code.

    Args:
        spec: the sweep.
        directory: where its fleets work.
    """
    try:
        _check_steps(spec)
        collection.check_results(spec)
        accelerated = _has_accelerator()
        max_runs = _MAX_RUNS.value or (_RUNS_ON_ACCELERATOR if accelerated else 1)
        if _DRY_RUN.value:
            _print_states(spec, directory, fleets.plan(spec, directory, max_runs))
            sys.exit(0)
        with driver.locked(directory), _launcher(accelerated) as launcher:
            collection.make_results(spec)
            planned = fleets.plan(spec, directory, max_runs)
            fleets.tidy(spec, directory)
            runs = sum(len(fleet.units) for fleet in planned)
            _say(f"{runs} runs to do in {len(planned)} fleets, process group {os.getpgrp()}")
            summary = driver.Sweep(
                spec,
                planned,
                directory,
                launcher,
                open_display(),
                attempts=_ATTEMPTS.value,
                make_command=lambda *of: [*spec.make_command(*of), *_device_flags(accelerated)],
            ).run()
    except (SweepError, OSError) as error:
        command_line.refuse(str(error))
    _exit(summary)


def _check_steps(spec: Spec) -> None:
    """Raises SweepError if a run would end before its first update."""
    for arm, game in dict.fromkeys((unit.arm, unit.game) for unit in spec.units):
        settings = spec.make_config(Unit(arm, game, 0))
        steps = spec.agent_steps(game)
        try:
            groups.check_steps(settings.learn_start, settings.update_period, steps)
        except ValueError as error:
            raise SweepError(f"{arm.name} on {game}: {error}") from None


def _has_accelerator() -> bool:
    """Whether fleets run on an accelerator."""
    if _LAUNCHER.value == "ray":
        return _GPUS.value > 0
    # JAX finds an accelerator only through these packages. To ask JAX itself takes seconds.
    installed = {d.name.lower() for d in importlib.metadata.distributions() if d.name}
    plugins = importlib.metadata.entry_points(group="jax_plugins")
    if "libtpu" not in installed and not plugins:
        return False
    # In a process of its own, which gives the device back.
    program = "import jax; print(jax.default_backend())"
    asked = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    return asked.stdout.split()[-1:] not in ([], ["cpu"])


def _device_flags(accelerated: bool) -> list[str]:
    """One fleet on a machine gets all its devices; Ray shows a fleet those reserved for it."""
    alone = _LAUNCHER.value == "local" and (_WORKERS.value or 1) == 1
    return ["--devices=all"] if accelerated and (alone or _GPUS.value > 1) else []


def _launcher(accelerated: bool) -> contextlib.AbstractContextManager[launchers.Launcher]:
    if _LAUNCHER.value == "ray":
        return ray_launcher.connected(
            _ADDRESS.value,
            cpus=_CPUS.value,
            gpus=_GPUS.value,
            niceness=_NICENESS.value,
            say=_say,
        )
    cores = len(launchers.available_cores() or range(os.cpu_count() or 1))
    workers = _WORKERS.value or (1 if accelerated else cores)
    shares = launchers.share_cores(workers, one_each=not accelerated)
    return contextlib.nullcontext(launchers.LocalLauncher(shares, niceness=_NICENESS.value))


def _print_states(spec: Spec, directory: pathlib.Path, planned: list[Fleet]) -> None:
    fleet_of = {unit: fleet for fleet in planned for unit in fleet.units}
    for unit in spec.units:
        state, where = "finished", ""
        if unit in fleet_of:
            fleet = fleet_of[unit]
            paths = collection.work_paths(directory, fleet, unit)
            begun = paths.manifest.exists()
            state = f"at step {read_progress(paths).step:,}" if begun else "to do"
            where = f" in {fleet.name}" if len(fleet.units) > 1 else ""
        print(f"{state:<24}{unit.name}{where}")


def _say(line: str) -> None:
    print(line, flush=True)


def _exit(summary: driver.Summary) -> NoReturn:
    line = f"{summary.finished} finished, {summary.failed} failed, {summary.left} left"
    if summary.stopped_by is not None:
        name = signal.Signals(summary.stopped_by).name
        print(f"stopped by {name}: {line}; the same command goes on", file=sys.stderr)
        sys.exit(128 + summary.stopped_by)
    print(line)
    sys.exit(1 if summary.failed else 0)
