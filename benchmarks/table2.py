r"""Table 2 of the paper: five games after 100,000 and after 1.5 million steps.

    python -m benchmarks.table2 --results=results --output=runs/report

Prints the table and what our runs say about the paper's claim at the larger budget. Writes
`table2.{csv,md,tex,html,png}` and `table2_verdicts.*`. Runs that are left out are named on stderr.
"""

from absl import app, flags

from benchmarks import table_command
from experiments import command_line
from rcrl_jax.report import claims, score_tables


def main(argv: list[str]) -> int:
    """Shows the table that the flags describe; returns the exit code."""
    del argv
    given = flags.FLAGS
    try:
        budgets = _budgets(given.steps)
        selection = table_command.select(
            given.results, "atari", score_tables.BUDGET_SYSTEMS, budgets=budgets, mixed=given.mixed
        )
        judged = table_command.judge(
            claims.BUDGET_CLAIMS,
            selection,
            score_tables.BUDGET_SYSTEMS,
            env_steps=budgets[1],
            mixed=given.mixed,
        )
        table = score_tables.table2(selection.shown, budgets=budgets)
        table_command.show(table, judged, selection.lines, given.output, "table2")
    except (ValueError, OSError) as error:
        command_line.refuse(str(error))
    return table_command.gate(judged) if given.gate else 0


def _budgets(texts: list[str]) -> tuple[int, int]:
    if len(texts) != 2 or not all(text.isdecimal() and int(text) for text in texts):
        raise ValueError(f"--steps: {','.join(texts)!r} is not two numbers of environment steps")
    low, high = map(int, texts)
    if low >= high:
        raise ValueError(f"--steps: {low} is not less than {high}")
    return low, high


if __name__ == "__main__":
    table_command.define_flags()
    flags.DEFINE_list("steps", ["100000", "1500000"], "budgets of our runs [environment steps]")
    app.run(main, flags_parser=command_line.parse)
