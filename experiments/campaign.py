r"""Carries out a list of training runs, with one process and one core for each.

    python -m experiments.campaign --spec=campaigns/claim.toml

The same command resumes a campaign that was stopped or killed: it skips finished runs, resumes
unfinished ones and tries failed ones again. A spec is a TOML file:

    experiment = "atari100k"      # or "dmc"
    steps = 100_000               # --steps, --eval_episodes of that program
    eval_episodes = 100
    results = "results/claim"     # directory of finished runs

    [arms.uniform]                # optional: a preset with changed fields, under a name
    preset = "rcrl"
    config = { return_contrast = { anchors = "uniform" } }

    [[blocks]]                    # blocks are carried out in this order
    presets = ["erainbow_sa", "rcrl"]
    arms = ["uniform"]            # names from above
    games = ["Hero", "Asterix"]
    seeds = "0:5"                 # or a list, [0, 1, 2]

Within a block, runs are ordered by seed, then by game, then by preset or arm. A run is called a
unit, <arm>-<game>-<seed>. It has the lowest priority and stays on one core. In
<workdir>/<name of the spec>/:

    <unit>/           its work directory, deleted once the run is in the results
    <unit>.log        what it printed
    failures.jsonl    units that failed: exit code, last lines of the log, time
    lock              process id of the campaign

A finished run's scores.json, evaluations.jsonl, metrics.jsonl, manifest.json and curve.png are
copied to <results>/<preset>/<game>/seed_<n>/, those of an arm to
<results>/<arm>/<preset>/<game>/seed_<n>/. If a run there has another algorithm number (in
manifest.json), the campaign is refused.

After SIGTERM or Ctrl-C, every running unit saves its state first. To pause a campaign, stop its
process group, whose number it prints: kill -STOP -- -PGID; to continue: kill -CONT -- -PGID.
`setsid` before the command gives it its own group and session; then the whole session has the
lowest priority. Exit codes: 0 all finished, 1 some failed, 2 refused, 128 + n stopped by signal n.
"""

import os
import pathlib
import signal
import sys
from typing import NoReturn

from absl import app, flags

from experiments import command_line
from rcrl_jax.config import presets
from rcrl_jax.envs import atari, dmc
from rcrl_jax.training.campaign import results, workers
from rcrl_jax.training.campaign.spec import CampaignError, Experiment, Spec, Unit, read_spec

_SPEC = flags.DEFINE_string("spec", None, "TOML file that lists the runs")
_WORKDIR = flags.DEFINE_string(
    "workdir", "runs/campaign", "directory of unfinished runs, in a folder named after the spec"
)
_WORKERS = flags.DEFINE_integer(
    "workers", None, "runs at a time [default: the cores that this process may use]", lower_bound=1
)
_NICENESS = flags.DEFINE_integer(
    "niceness", 19, "added to this process's niceness for runs; 19 is the lowest priority",
    lower_bound=0, upper_bound=19,
)  # fmt: skip
_DRY_RUN = flags.DEFINE_bool("dry_run", False, "print every run with its state, and start none")

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
"""The programs that a spec may name."""


def main(argv: list[str]) -> None:
    """Carries out the campaign that the flags name."""
    del argv
    try:
        if _SPEC.value is None:
            raise CampaignError("--spec is missing: --spec=campaigns/claim.toml")
        spec = read_spec(_SPEC.value, EXPERIMENTS)
        directory = pathlib.Path(_WORKDIR.value) / pathlib.Path(_SPEC.value).stem
        if _DRY_RUN.value:
            results.check_same_runs(spec, directory)
            for unit in spec.units:
                print(f"{_state(spec, unit, directory):<24}{unit.name}")
            return
        with workers.locked(directory):
            results.check_same_runs(spec, directory)
            summary = _run(spec, directory)
    except (CampaignError, OSError) as error:
        command_line.refuse(str(error))
    _exit(summary)


def _run(spec: Spec, directory: pathlib.Path) -> workers.Summary:
    count = _WORKERS.value or len(workers.available_cores() or range(os.cpu_count() or 1))
    _say(f"{len(spec.units)} units, {count} at a time, process group {os.getpgrp()}")
    return workers.Workers(spec, directory, count, niceness=_NICENESS.value, say=_say).run()


def _say(line: str) -> None:
    print(line, flush=True)


def _state(spec: Spec, unit: Unit, directory: pathlib.Path) -> str:
    if results.is_finished(spec, unit):
        return "finished"
    paths = results.work_paths(directory, unit)
    if not paths.manifest.exists():
        return "to do"
    return f"at step {workers.read_progress(paths).step:,}"


def _exit(summary: workers.Summary) -> NoReturn:
    line = f"{summary.finished} finished, {summary.failed} failed, {summary.left} left"
    if summary.stopped_by is not None:
        name = signal.Signals(summary.stopped_by).name
        print(f"stopped by {name}: {line}; the same command goes on", file=sys.stderr)
        sys.exit(128 + summary.stopped_by)
    print(line)
    sys.exit(1 if summary.failed else 0)


if __name__ == "__main__":
    app.run(main, flags_parser=command_line.parse)
