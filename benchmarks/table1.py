r"""Table 1 of the paper: 26 games of Atari-100k, published scores with ours beside them.

    python -m benchmarks.table1 --results=results --output=runs/report

Prints the table and what our runs say about the paper's claims. Writes `table1.{csv,md,tex,html,
png}` and `table1_verdicts.*`. Runs that are left out are named on stderr, one line each.
"""

import os
from collections.abc import Sequence

from absl import flags

from benchmarks import table_command
from rcrl_jax import reference
from rcrl_jax.config.presets import ATARI_PRESETS
from rcrl_jax.report import claims, score_tables
from rcrl_jax.report.verdicts import Verdict


def run(
    results: Sequence[str | os.PathLike],
    output: str | os.PathLike,
    *,
    presets: Sequence[str] = (),
    steps: int = score_tables.PUBLISHED_STEPS,
    mixed: bool = False,
) -> list[Verdict]:
    """Shows and writes the table; returns the verdicts.

    Args:
        results: directories of runs.
        output: directory to write to.
        presets: columns of ours; empty for the systems of the paper.
        steps: budget of our runs, in environment steps.
        mixed: whether runs of different conditions are shown together.

    Raises:
        ValueError: a directory does not exist, or a preset is unknown.
        OSError: a file cannot be written.
    """
    table_command.check_presets(presets, ATARI_PRESETS)
    arms = presets or tuple(reference.PAPER_COLUMN)
    selection = table_command.select(results, "atari", arms, budgets=(steps,), mixed=mixed)
    presets = presets or score_tables.default_presets(selection.shown)
    judged = table_command.judge(
        claims.ATARI_CLAIMS, selection, presets, env_steps=steps, mixed=mixed
    )
    table = score_tables.table1(selection.shown, presets, env_steps=steps)
    table_command.show(table, judged, selection.lines, output, "table1")
    return judged


if __name__ == "__main__":
    table_command.define_flags()
    flags.DEFINE_list("presets", [], "columns of ours; without it the systems of the paper")
    flags.DEFINE_integer("steps", 100_000, "budget of our runs [environment steps]", 1)
    table_command.start(
        lambda given: run(
            given.results, given.output, presets=given.presets, steps=given.steps, mixed=given.mixed
        )
    )
