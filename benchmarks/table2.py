r"""Table 2 of the paper: five games after 100,000 and after 1.5 million steps.

    python -m benchmarks.table2 --results=results --output=runs/report

Prints the table and what our runs say about the paper's claim at the larger budget. Writes
`table2.{csv,md,tex,html}` and `table2_verdicts.*`. Runs that are left out are named on stderr.
"""

import os
from collections.abc import Sequence

from absl import flags

from benchmarks.tables import claims, command, runs, scores
from benchmarks.tables.verdicts import Verdict


def run(
    results: Sequence[str | os.PathLike],
    output: str | os.PathLike,
    *,
    budgets: tuple[int, int] = (100_000, 1_500_000),
    mixed: bool = False,
) -> list[Verdict]:
    """Shows and writes the table; returns the verdicts.

    Args:
        results: directories of runs.
        output: directory to write to.
        budgets: of our runs, in environment steps.
        mixed: whether runs of different conditions are shown together.

    Raises:
        ValueError: a directory does not exist.
        OSError: a file cannot be written.
    """
    frame, problems = runs.read(*results)
    selection = command.select(frame, "atari", budgets, scores.BUDGET_SYSTEMS, mixed=mixed)
    judged = command.judge(claims.BUDGET_CLAIMS, frame, env_steps=budgets[1], mixed=mixed)
    table = scores.table2(selection.shown, budgets=budgets)
    written = command.show(table, judged, [*problems, *selection.lines], output, "table2")
    print(f"\n{command.stem_line(written)}")
    return judged


def _budgets(texts: list[str]) -> tuple[int, int]:
    if len(texts) != 2 or not all(text.isdecimal() and int(text) for text in texts):
        raise ValueError(f"--steps: {','.join(texts)!r} is not two numbers of environment steps")
    low, high = map(int, texts)
    if low >= high:
        raise ValueError(f"--steps: {low} is not less than {high}")
    return low, high


if __name__ == "__main__":
    command.define_flags()
    flags.DEFINE_list("steps", ["100000", "1500000"], "budgets of our runs [environment steps]")
    command.start(
        lambda given: run(
            given.results, given.output, budgets=_budgets(given.steps), mixed=given.mixed
        )
    )
