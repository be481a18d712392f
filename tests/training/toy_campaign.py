"""Campaigns of fake runs. `python -m tests.training.toy_campaign DIRECTORY [MOMENT]` is one.

It kills itself at MOMENT, the name of a function, before (`-rename`) or after it (`+rename`).
"""

import json
import os
import pathlib
import shutil
import signal
import sys

from rcrl_jax.config import presets
from rcrl_jax.training import manifest
from rcrl_jax.training.campaign import workers
from rcrl_jax.training.campaign.spec import CampaignError, Experiment, Spec, Unit, read_spec

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
    """Results and spec are in `directory`, the work directories of units in `directory / runs`."""
    path = directory / "spec.toml"
    path.write_text(TEXT.format(results=directory / "results", seeds=seeds, steps=steps))
    return read_spec(path, EXPERIMENTS)


def describe(spec: Spec, unit: Unit, **changes) -> dict:
    """The section `run` of a unit's manifest."""
    run = manifest.describe_run(
        unit.arm.preset, spec.make_config(unit), unit.game, unit.seed, spec.agent_steps(unit), "toy"
    )
    return {**run, **changes}


def fake_command(spec: Spec, step_s: float = 0.0):
    """Returns a function that makes the command of a fake run."""

    def make_command(unit: Unit, workdir: pathlib.Path) -> list[str]:
        program = pathlib.Path(__file__).with_name("fake_unit.py")
        described = {
            "run": describe(spec, unit), "eval_episodes": spec.eval_episodes, "step_s": step_s
        }  # fmt: skip
        return [sys.executable, "-S", str(program), str(workdir), json.dumps(described)]

    return make_command


def history(directory: pathlib.Path, unit: Unit) -> list[str]:
    """The lines that the processes of a unit have written, except those about cores."""
    path = directory / "runs" / f"{unit.name}.history"
    lines = path.read_text().splitlines() if path.exists() else []
    return [line for line in lines if not line.startswith("core")]


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


def main(directory: pathlib.Path, moment: str | None = None) -> int:
    """Carries out the campaign of `directory / spec.toml`; the exit code."""
    spec = read_spec(directory / "spec.toml", EXPERIMENTS)
    if moment:
        _kill_at(moment)
    try:
        with workers.locked(directory / "runs"):
            # Not at a lower priority, because tests would be slow beside other programs.
            summary = workers.Workers(
                spec,
                directory / "runs",
                2,
                niceness=0,
                make_command=fake_command(spec, step_s=0.01),
            ).run()
    except CampaignError as error:
        print(error, file=sys.stderr)
        return 2
    return 128 + summary.stopped_by if summary.stopped_by else bool(summary.failed)


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), *sys.argv[2:]))
