r"""Trains the arms of the study: `experiments.atari100k` with one more preset, the control.

    python -m experiments.returns.train --preset=rcrl_permuted --game=Alien --seed=0 --steps=10000

`rcrl_permuted` has positives of equal return and negatives of another one, where the returns are
permuted among similar segments (permuted.py). `campaigns/returns.toml` lists the study's runs.
"""

import dataclasses
import sys
from typing import TYPE_CHECKING

from absl import app, flags

from experiments import atari100k, command_line
from experiments.returns import arms

if TYPE_CHECKING:
    from rcrl_jax.training.plan import Plan

flags.adopt_module_key_flags(atari100k)


def main(argv: list[str]) -> None:
    """Runs the experiment that the flags describe."""
    del argv
    atari100k.train(arms.PRESETS, _with_sampler)


def _with_sampler(plan: "Plan") -> "Plan":
    # Imported late, see `atari100k.make_plan`.
    from experiments.returns import permuted

    if plan.preset != arms.CONTROL:
        return plan
    return dataclasses.replace(plan, sampler=permuted.PermutedReturns)


if __name__ == "__main__":
    command_line.define_config(arms.PRESETS, "rcrl", sys.argv)
    app.run(main, flags_parser=command_line.parse)
