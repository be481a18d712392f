r"""Table 1 of the paper: 26 games of Atari-100k, published scores with ours beside them.

    python -m benchmarks.table1 --results=results --output=runs/report

Prints the table and what our runs say about the paper's claims. Writes `table1.{csv,md,tex,html}`
and `table1_verdicts.*`. Runs that are left out are named on stderr.
"""

import os
from collections.abc import Sequence

from absl import flags

from benchmarks.tables import claims, command, runs, scores
from benchmarks.tables.verdicts import Verdict
from rcrl_jax.config.presets import ATARI_PRESETS


def run(
    results: Sequence[str | os.PathLike],
    output: str | os.PathLike,
    *,
    presets: Sequence[str] = (),
    steps: int = claims.BUDGET["atari"],
    mixed: bool = False,
) -> list[Verdict]:
    """Shows and writes the table; returns the verdicts.

    Args:
        results: directories of runs.
        output: directory to write to.
        presets: columns of ours; empty for all arms that have runs.
        steps: budget of our runs, in environment steps.
        mixed: whether runs of different conditions are shown together.

    Raises:
        ValueError: a directory does not exist, or a preset is unknown.
        OSError: a file cannot be written.
    """
    command.check_presets(presets, ATARI_PRESETS)
    frame, problems = runs.read(*results)
    selection = command.select(frame, "atari", (steps,), presets, mixed=mixed)
    judged = command.judge(claims.ATARI_CLAIMS, frame, presets, env_steps=steps, mixed=mixed)
    table = scores.table1(selection.shown, presets, env_steps=steps)
    written = command.show(table, judged, [*problems, *selection.lines], output, "table1")
    print(f"\n{command.stem_line(written)}")
    return judged


if __name__ == "__main__":
    command.define_flags()
    flags.DEFINE_list("presets", [], "columns of ours; without it all arms that have runs")
    flags.DEFINE_integer("steps", 100_000, "budget of our runs [environment steps]", 1)
    command.start(
        lambda given: run(
            given.results, given.output, presets=given.presets, steps=given.steps, mixed=given.mixed
        )
    )
