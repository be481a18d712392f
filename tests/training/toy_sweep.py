"""Sweeps of fake runs. `python -m tests.training.toy_sweep DIRECTORY [OPTIONS]` is one.

With --moment it kills itself at the function of that name, before (`-rename`) or after it
(`+rename`).
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import sys

from rcrl_jax.config import presets
from rcrl_jax.training import manifest
from rcrl_jax.training.sweep import driver, fleets, launchers, ray_launcher
from rcrl_jax.training.sweep.display import Lines
from rcrl_jax.training.sweep.reading import read_spec
from rcrl_jax.training.sweep.spec import Experiment, Fleet, Spec, SweepError, Unit

EXPERIMENTS = {
    "atari100k": Experiment(
        "experiments.atari100k",
        "game",
        ("Pong", "Alien", "Hero"),
        lambda game: presets.ATARI_PRESETS,
        lambda game: 1,
    ),
    "dmc": Experiment(
        "experiments.dmc",
        "task",
        ("cheetah_run", "walker_walk"),
        presets.dmc_presets_of,
        {"cheetah_run": 4, "walker_walk": 2}.get,
    ),
}

TEXT = """
experiment = "atari100k"
steps = {steps}
eval_episodes = 3
results = "{results}"

[arms.small]
preset = "rcrl"
config = {{ hidden_size = 16 }}

[[blocks]]
presets = ["erainbow_sa", "rcrl"]
arms = ["small"]
games = ["Pong", "Alien"]
seeds = "{seeds}"
"""


def make_spec(directory: pathlib.Path, *, seeds="0:1", steps=5) -> Spec:
    """Results and spec are in `directory`, the work directories of fleets in `directory / runs`."""
    path = directory / "spec.toml"
    path.write_text(TEXT.format(results=directory / "results", seeds=seeds, steps=steps))
    return read_spec(path, EXPERIMENTS)


def alone(unit: Unit) -> Fleet:
    """The fleet of one run."""
    return Fleet(unit.arm, (unit.game,), (unit.seed,))


def describe(spec: Spec, unit: Unit, **changes) -> dict:
    """The section `run` of a unit's manifest."""
    run = manifest.describe_run(
        unit.arm.preset,
        spec.make_config(unit),
        unit.game,
        unit.seed,
        spec.agent_steps(unit.game),
        "toy",
    )
    return {**run, **changes}


def fake_command(spec: Spec, step_s: float = 0.0, save_every: int = 0):
    """Returns a function that makes the command of a fake fleet."""

    def make_command(fleet: Fleet, workdir: pathlib.Path) -> list[str]:
        program = pathlib.Path(__file__).with_name("fake_fleet.py")
        described = {
            "runs": [describe(spec, unit) for unit in fleet.units],
            "eval_episodes": spec.eval_episodes,
            "step_s": step_s,
            "save_every": save_every,
        }
        return [sys.executable, "-S", str(program), str(workdir), json.dumps(described)]

    return make_command


def history(directory: pathlib.Path, fleet: Fleet) -> list[str]:
    """The lines that the processes of a fleet have written, except those about cores."""
    path = directory / "runs" / f"{fleet.name}.history"
    lines = path.read_text().splitlines() if path.exists() else []
    return [line for line in lines if not line.startswith("core")]


def scores(spec: Spec) -> dict[Unit, list[float]]:
    """The returns of every finished run."""
    paths = {unit: spec.result_paths(unit).scores for unit in spec.units}
    return {u: json.loads(p.read_text())["returns"] for u, p in paths.items() if p.exists()}


class Recorded(Lines):
    """A display that remembers its lines."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def say(self, line):
        self.lines.append(line)


def _kill_at(moment: str) -> None:
    when, name = moment[0], moment[1:]
    module = os if name == "rename" else shutil
    function = getattr(module, name)

    def killing(*arguments, **options):
        if name == "rmtree" and ".partial." in str(arguments[0]):
            return function(*arguments, **options)
        if when == "+":
            function(*arguments, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(module, name, killing)


def local(count: int, niceness: int = 0) -> launchers.LocalLauncher:
    """Not at a lower priority, because tests would be slow beside other programs."""
    shares = launchers.share_cores(count, one_each=True)
    return launchers.LocalLauncher(shares, niceness=niceness)


def main(argv: list[str]) -> int:
    """Carries out the sweep of `directory / spec.toml`; the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--moment")
    parser.add_argument("--max_runs", type=int, default=1)
    parser.add_argument("--address")
    parser.add_argument("--step_s", type=float, default=0.01)
    options = parser.parse_args(argv)
    driver._POLL_S = 0.02
    spec = read_spec(options.directory / "spec.toml", EXPERIMENTS)
    directory = options.directory / "runs"
    if options.moment:
        _kill_at(options.moment)
    connected = (
        ray_launcher.connected(options.address, cpus=1, gpus=0, niceness=0, say=print)
        if options.address
        else contextlib.nullcontext(local(2))
    )
    try:
        with driver.locked(directory), connected as launcher:
            planned = fleets.plan(spec, directory, options.max_runs)
            fleets.tidy(spec, directory)
            summary = driver.Sweep(
                spec,
                planned,
                directory,
                launcher,
                Lines(),
                make_command=fake_command(
                    spec, step_s=options.step_s, save_every=20 * bool(options.address)
                ),
            ).run()
    except SweepError as error:
        print(error, file=sys.stderr)
        return 2
    return 128 + summary.stopped_by if summary.stopped_by else bool(summary.failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
