r"""Carries out a list of training runs, on a CPU with one process and one core for each.

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

Within a block, runs are ordered by seed, then by game, then by preset or arm. On CPUs a fleet is
one run, <arm>-<game>-<seed>. It has the lowest priority and stays on one core. In
<workdir>/<name of the spec>/:

    <fleet>/          its work directory, deleted once its runs are in the results
    <fleet>.log       what it printed
    failures.jsonl    fleets that failed: exit code, last lines of the log, time
    lock              process id of the campaign

A finished run's scores.json, evaluations.jsonl, metrics.jsonl, manifest.json, curve.png and, unless
the network is large, parameters.npz are copied to <results>/<preset>/<game>/seed_<n>/, those of an
arm to <results>/<arm>/<preset>/<game>/seed_<n>/. If a run there has another algorithm number (in
manifest.json), the campaign is refused.

After SIGTERM or Ctrl-C, every running fleet saves its state first. To pause a campaign, stop its
process group, whose number it prints: kill -STOP -- -PGID; to continue: kill -CONT -- -PGID.
`setsid` before the command gives it its own group and session; then the whole session has the
lowest priority. Exit codes: 0 all finished, 1 some failed, 2 refused, 128 + n stopped by signal n.
"""

import pathlib

from absl import app, flags

from experiments import command_line, sweeps
from rcrl_jax.training.sweep.reading import read_spec
from rcrl_jax.training.sweep.spec import SweepError

flags.adopt_module_key_flags(sweeps)

_SPEC = flags.DEFINE_string("spec", None, "TOML file that lists the runs")
_WORKDIR = flags.DEFINE_string(
    "workdir", "runs/campaign", "directory of unfinished runs, in a folder named after the spec"
)


def main(argv: list[str]) -> None:
    """Carries out the campaign that the flags name."""
    del argv
    try:
        if _SPEC.value is None:
            raise SweepError("--spec is missing: --spec=campaigns/claim.toml")
        spec = read_spec(_SPEC.value, sweeps.EXPERIMENTS)
    except (SweepError, OSError) as error:
        command_line.refuse(str(error))
    sweeps.carry_out(spec, pathlib.Path(_WORKDIR.value) / pathlib.Path(_SPEC.value).stem)


if __name__ == "__main__":
    app.run(main, flags_parser=command_line.parse)
