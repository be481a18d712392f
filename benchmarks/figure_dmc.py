r"""The paper's figure of DMControl: our learning curves over published ones, and a table of scores.

    python -m benchmarks.figure_dmc --results=results --output=runs/report

Writes the figure `figure_dmc.png`, the scores at 100,000 and 500,000 environment steps as
`figure_dmc.{csv,md,tex,html}`, with notes on how each published line was measured, and
`figure_dmc_verdicts.*`. Runs that are left out are named on stderr, one line each.
"""

from absl import app, flags

from benchmarks import table_command
from experiments import command_line
from rcrl_jax.config.presets import DMC_PRESETS
from rcrl_jax.report import claims, dmc_table, figures


def main(argv: list[str]) -> int:
    """Draws the figure that the flags describe; returns the exit code."""
    del argv
    given = flags.FLAGS
    try:
        table_command.check_presets(given.presets, DMC_PRESETS)
        presets = given.presets or tuple(DMC_PRESETS)
        selection = table_command.select(
            given.results,
            "dmc",
            given.presets or None,
            budgets=(given.steps,) if given.steps else (),
            mixed=given.mixed,
        )
        steps = given.steps or claims.DMC_CLAIMS[0].env_steps
        judged = table_command.judge(
            claims.DMC_CLAIMS, selection, presets, env_steps=steps, mixed=given.mixed
        )
        table = dmc_table.dmc_table(selection.shown, presets)
        table = table._replace(notes=[*table.notes, *figures.published_notes()])
        figure = figures.dmc_curves(selection.shown)
        table_command.show(table, judged, selection.lines, given.output, "figure_dmc", figure)
    except (ValueError, OSError) as error:
        command_line.refuse(str(error))
    return table_command.gate(judged) if given.gate else 0


if __name__ == "__main__":
    table_command.define_flags()
    flags.DEFINE_list("presets", [], "our systems; without it all of DMControl")
    flags.DEFINE_integer(
        "steps", None, "budget of our runs [environment steps]; without it that of most runs", 1
    )
    app.run(main, flags_parser=command_line.parse)
