r"""The paper's figure of DMControl: our learning curves over published ones, and a table of scores.

    python -m benchmarks.figure_dmc --results=results --output=runs/report

Writes the figure `figure_dmc.png`, the scores at 100,000 and 500,000 environment steps as
`figure_dmc.{csv,md,tex,html}`, with notes on how each published line was measured, and
`figure_dmc_verdicts.*`. Runs that are left out are named on stderr, one line each.
"""

import os
from collections.abc import Sequence

from absl import flags

from benchmarks import table_command
from rcrl_jax.config.presets import DMC_PRESETS
from rcrl_jax.report import claims, dmc_table, figures
from rcrl_jax.report.verdicts import Verdict


def run(
    results: Sequence[str | os.PathLike],
    output: str | os.PathLike,
    *,
    presets: Sequence[str] = (),
    steps: int | None = None,
    mixed: bool = False,
) -> list[Verdict]:
    """Draws and writes figure and table; returns the verdicts.

    Args:
        results: directories of runs.
        output: directory to write to.
        presets: our systems; empty for all presets as columns and all arms as curves.
        steps: budget of our runs, in environment steps; None for that of most runs.
        mixed: whether runs of different conditions are shown together.

    Raises:
        ValueError: a directory does not exist, or a preset is unknown.
        OSError: a file cannot be written.
    """
    table_command.check_presets(presets, DMC_PRESETS)
    selection = table_command.select(
        results, "dmc", presets or None, budgets=(steps,) if steps else (), mixed=mixed
    )
    columns = presets or tuple(DMC_PRESETS)
    judged = table_command.judge(
        claims.DMC_CLAIMS,
        selection,
        columns,
        env_steps=steps or claims.DMC_CLAIMS[0].env_steps,
        mixed=mixed,
    )
    table = dmc_table.dmc_table(selection.shown, columns)
    table = table._replace(notes=[*table.notes, *figures.published_notes()])
    figure = figures.dmc_curves(selection.shown, end=steps)
    table_command.show(table, judged, selection.lines, output, "figure_dmc", figure)
    return judged


if __name__ == "__main__":
    table_command.define_flags()
    flags.DEFINE_list("presets", [], "our systems; without it all of DMControl")
    flags.DEFINE_integer(
        "steps", None, "budget of our runs [environment steps]; without it that of most runs", 1
    )
    table_command.start(
        lambda given: run(
            given.results, given.output, presets=given.presets, steps=given.steps, mixed=given.mixed
        )
    )
