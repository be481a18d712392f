r"""Table 1 of the paper: 26 games of Atari-100k, published scores with ours beside them.

    python -m benchmarks.table1 --results=results --output=runs/report

Prints the table and what our runs say about the paper's claims. Writes `table1.{csv,md,tex,html,
png}` and `table1_verdicts.*`. Runs that are left out are named on stderr, one line each.
"""

from absl import app, flags

from benchmarks import table_command
from experiments import command_line
from rcrl_jax import reference
from rcrl_jax.config.presets import ATARI_PRESETS
from rcrl_jax.report import claims, score_tables


def main(argv: list[str]) -> int:
    """Shows the table that the flags describe; returns the exit code."""
    del argv
    given = flags.FLAGS
    try:
        table_command.check_presets(given.presets, ATARI_PRESETS)
        selection = table_command.select(
            given.results,
            "atari",
            given.presets or tuple(reference.PAPER_COLUMN),
            budgets=(given.steps,),
            mixed=given.mixed,
        )
        presets = given.presets or score_tables.default_presets(selection.shown)
        judged = table_command.judge(
            claims.ATARI_CLAIMS, selection, presets, env_steps=given.steps, mixed=given.mixed
        )
        table = score_tables.table1(selection.shown, presets, env_steps=given.steps)
        table_command.show(table, judged, selection.lines, given.output, "table1")
    except (ValueError, OSError) as error:
        command_line.refuse(str(error))
    return table_command.gate(judged) if given.gate else 0


if __name__ == "__main__":
    table_command.define_flags()
    flags.DEFINE_list("presets", [], "columns of ours; without it the systems of the paper")
    flags.DEFINE_integer("steps", 100_000, "budget of our runs [environment steps]", 1)
    app.run(main, flags_parser=command_line.parse)
