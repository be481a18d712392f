r"""The paper's figure of DMControl: our learning curves over published ones, and a table of scores.

    python -m benchmarks.figure_dmc --results=results --output=runs/report

Writes the figure `figure_dmc.png`, the scores at 100,000 and 500,000 environment steps as
`figure_dmc.{csv,md,tex,html}`, with notes on how each published line was measured, and
`figure_dmc_verdicts.*`. Runs that are left out are named on stderr.
"""

import os
import pathlib
from collections.abc import Sequence

from absl import flags

from benchmarks.tables import claims, command, control_figure, runs, scores
from benchmarks.tables.verdicts import Verdict
from rcrl_jax import files
from rcrl_jax.config.presets import DMC_PRESETS


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
        presets: our systems; empty for all arms that have runs.
        steps: budget of our runs, in environment steps; None for that of the paper if a run has it,
            else of most runs.
        mixed: whether runs of different conditions are shown together.

    Raises:
        ValueError: a directory does not exist, or a preset is unknown.
        OSError: a file cannot be written.
    """
    command.check_presets(presets, DMC_PRESETS)
    frame, problems = runs.read(*results)
    budget = steps or command.budget(frame, "dmc")
    selection = command.select(frame, "dmc", (budget,), presets, mixed=mixed)
    judged = command.judge(claims.DMC_CLAIMS, frame, presets, env_steps=budget, mixed=mixed)
    table = scores.control_table(selection.shown, presets)
    table = table._replace(notes=[*table.notes, *control_figure.published_notes()])
    written = command.show(table, judged, [*problems, *selection.lines], output, "figure_dmc")
    path = pathlib.Path(output) / "figure_dmc.png"
    with files.replacing(path) as partial:
        control_figure.draw(selection.shown, end=steps).savefig(partial, format="png", dpi=200)
    print(f"\n{command.stem_line([*written, path])}")
    return judged


if __name__ == "__main__":
    command.define_flags()
    flags.DEFINE_list("presets", [], "our systems; without it all arms that have runs")
    flags.DEFINE_integer(
        "steps", None,
        "budget of our runs [environment steps]; without it that of the paper or of most runs", 1,
    )  # fmt: skip
    command.start(
        lambda given: run(
            given.results, given.output, presets=given.presets, steps=given.steps, mixed=given.mixed
        )
    )
