"""Sweeps of fake runs. `python -m tests.programs.toy_sweep DIRECTORY [OPTIONS]` is one."""

import argparse
import contextlib
import functools
import json
import pathlib
import subprocess
import sys
import time
from typing import Any
from unittest import mock

from rcrl_jax import files
from rcrl_jax.config import base
from rcrl_jax.programs.sweeps import driver, local, ray_launcher, work
from rcrl_jax.programs.sweeps import spec as specs
from rcrl_jax.programs.sweeps.spec import FleetPlan, Spec, Unit
from rcrl_jax.runs import manifest, records

ROOT = pathlib.Path(__file__).parents[2]

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


COLLECTED = {
    "scores.json", "evaluations.jsonl", "metrics.jsonl", "manifest.json", "curve.png",
    "parameters.npz",
}  # fmt: skip
"""Names of a finished run's files in the results."""


def make_spec(directory: pathlib.Path, *, seeds="0:1", steps=5) -> Spec:
    """Results and spec are in `directory`, the work directories of fleets in `directory / runs`."""
    path = directory / "spec.toml"
    path.write_text(TEXT.format(results=directory / "results", seeds=seeds, steps=steps))
    return read_spec(path)


def read_spec(path: pathlib.Path) -> Spec:
    """A spec whose runs may end before their first update."""
    with mock.patch.object(base, "check_run"):
        return specs.read_spec(path)


def alone(unit: Unit) -> FleetPlan:
    """The fleet of one run."""
    return FleetPlan(unit.arm, (unit.game,), (unit.seed,))


def describe(spec: Spec, unit: Unit, **changes) -> dict:
    """The section `run` of a unit's manifest."""
    config, steps = spec.make_config(unit), spec.agent_steps(unit)
    run = manifest.describe_run(unit.arm.preset, config, unit.game, unit.seed, steps, "toy")
    return {**run, **changes}


def write_manifest(path: pathlib.Path, run: dict, launch: Any) -> None:
    """Writes a manifest with these sections; the others are empty."""
    sections = dict.fromkeys(manifest.SECTIONS, {}) | {"run": run, "launch": launch}
    files.write_json_atomically(path, sections)


def begin(spec, fleet, directory, *, manifests=1, **changes):
    """Writes the manifests of some of a fleet's runs, as the training program does."""
    for unit in fleet.units[:manifests]:
        paths = work.paths_of(directory, fleet, unit)
        paths.directory.mkdir(parents=True)
        launch = {"runs": [[unit.game, unit.seed] for unit in fleet.units]}
        run = describe(spec, unit, **changes)
        write_manifest(paths.manifest, run, launch)


def write_work(spec, unit, directory, *, episodes=3, **changes):
    """A finished run in the unit's work directory."""
    begin(spec, alone(unit), directory, **changes)
    paths = work.paths_of(directory, alone(unit), unit)
    run = describe(spec, unit, **changes)
    returns = {"returns": [1.0] * episodes, "mean": 1.0, "episodes_cut": 0}
    final = {"agent_steps": run["steps"], "env_steps": run["steps"], **returns}
    place = {name: run[name] for name in ("preset", "game", "seed")}
    files.write_json_atomically(paths.scores, {**place, **final, "episodes": episodes})
    paths.evaluations.write_text(json.dumps(final) + "\n")
    paths.metrics.write_text('{"agent_steps": 1, "wall_s": 0.5}\n')
    for path in (paths.curve, paths.parameters):
        path.write_text(path.name)
    paths.checkpoints.mkdir()
    (paths.checkpoints / "100").write_text("large")
    paths.tensorboard.mkdir()
    return paths


def fake_command(spec: Spec, step_s: float = 0.0, save_every: int = 0):
    """Returns a function that makes the command of a fake fleet."""

    def make_command(fleet: FleetPlan, workdir: pathlib.Path) -> list[str]:
        program = pathlib.Path(__file__).with_name("fake_fleet.py")
        described = {
            "runs": [describe(spec, unit) for unit in fleet.units],
            "eval_episodes": spec.eval_episodes,
            "step_s": step_s,
            "save_every": save_every,
        }
        return [sys.executable, "-S", str(program), str(workdir), json.dumps(described)]

    return make_command


def history(directory: pathlib.Path, fleet: FleetPlan) -> list[str]:
    """The lines that the processes of a fleet have written, except those about cores."""
    path = directory / "runs" / f"{fleet.name}.history"
    lines = path.read_text().splitlines() if path.exists() else []
    return [line for line in lines if not line.startswith("core")]


def scores(spec: Spec) -> dict[Unit, list[float]]:
    """The returns of every finished run."""
    paths = {unit: spec.result_paths(unit).scores for unit in spec.units}
    return {u: json.loads(p.read_text())["returns"] for u, p in paths.items() if p.exists()}


def step(directory: pathlib.Path, fleet: FleetPlan) -> int:
    """How far a fleet is."""
    paths = work.paths_of(directory / "runs", fleet, fleet.units[-1])
    return records.read_progress(paths)[0]


def carry_out(
    spec: Spec, directory: pathlib.Path, *, max_runs=1, make_command=None, start=None, workers=2
) -> tuple[driver.Summary, list[str]]:
    """Runs a sweep in this process; returns its summary and the lines that it printed.

    Not at a lower priority, because tests would be slow beside other programs.
    """
    lines: list[str] = []
    runs = directory / "runs"
    with files.locked(runs, "sweep"), mock.patch.object(driver, "_POLL_S", 0.02):
        work.tidy(spec, runs)
        sweep = driver.Sweep(
            spec,
            work.plan(spec, runs, max_runs),
            runs,
            start=start or functools.partial(local.start_process, cores=0, niceness=0),
            workers=workers,
            make_command=make_command or fake_command(spec),
            say=lines.append,
        )
        return sweep.run(), lines


def start(directory: pathlib.Path, *options: str, **how) -> subprocess.Popen:
    """Starts a sweep in a separate process."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.programs.toy_sweep", str(directory), *options],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **how,
    )  # fmt: skip


def finish(process: subprocess.Popen) -> int:
    """Waits for the end of a sweep that `start` has started; its exit code."""
    print(process.communicate(timeout=120)[0])  # for a test that fails
    return process.returncode


def wait_until(process: subprocess.Popen, condition) -> None:
    """Waits while the process runs."""
    end = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end
        time.sleep(0.01)


def assert_complete(spec: Spec, directory: pathlib.Path, planned: list[FleetPlan]) -> None:
    """All results exist, all work directories are deleted, no work was repeated or lost.

    Each process of a fleet began where the previous one had saved, and none ran at the same time.
    """
    assert len(scores(spec)) == len(spec.units)
    assert all(work.is_finished(spec, unit) for unit in spec.units)
    assert not list(spec.results.rglob(".partial.*"))
    assert not [path for path in (directory / "runs").iterdir() if path.is_dir()]
    for fleet in planned:
        lines = history(directory, fleet)
        assert lines[-1] == "finished"
        lines = [line.split() for line in lines if line != "finished"]
        assert {words[0] for words in lines[0::2]} == {"begin"}, lines
        assert {words[0] for words in lines[1::2]} == {"saved"}, lines
        began, saved = ([words[1] for words in lines[i::2]] for i in (0, 1))
        assert began == ["0", *saved[:-1]] and saved[-1] == str(spec.steps), lines


def main(argv: list[str]) -> int:
    """Carries out the sweep of `directory / spec.toml`; the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--max_runs", type=int, default=1)
    parser.add_argument("--ray")
    parser.add_argument("--step_s", type=float, default=0.01)
    options = parser.parse_args(argv)
    spec = read_spec(options.directory / "spec.toml")
    make_command = fake_command(spec, options.step_s, save_every=10 * bool(options.ray))
    with contextlib.ExitStack() as stack:
        start = options.ray and stack.enter_context(
            ray_launcher.connected(options.ray, cpus=1, gpus=0, niceness=0)
        )
        summary, lines = carry_out(
            spec,
            options.directory,
            max_runs=options.max_runs,
            make_command=make_command,
            start=start,
            workers=None if start else 2,
        )
    print(*lines, summary, sep="\n")
    return 128 + summary.stopped_by if summary.stopped_by else bool(summary.failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
