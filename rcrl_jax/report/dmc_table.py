"""The table of DMControl: published figures with ours beside them."""

from collections.abc import Sequence

from rcrl_jax import reference
from rcrl_jax.config.presets import DMC_PRESETS
from rcrl_jax.report.score_columns import (
    ScoreColumn,
    mean_cell,
    mixing_notes,
    protocol_notes,
    score_rows,
    short_steps,
)
from rcrl_jax.report.tables import Cell, Column, Table
from rcrl_jax.results.runs import Run

DMC_COLUMN = {
    "state_sac": "State SAC",
    "pixel_sac": "Pixel SAC",
    "sac_ae": "SAC+AE",
    "curl_sac": "CURL",
}
"""Preset -> the same system in the DMControl table of CURL's paper; RCRL's prints only curves."""
DMC_OTHERS = ("PlaNet", "Dreamer", "SLACv1", "DrQ")
"""Published systems on DMControl that are no preset."""
_SKYLINE = ("State SAC", "state_sac")


def dmc_table(
    runs: Sequence[Run],
    presets: Sequence[str] | None = None,
    *,
    budgets: Sequence[int] = (100_000, 500_000),
) -> Table:
    """DMControl: six tasks at 100,000 and 500,000 environment steps.

    Args:
        runs: of one protocol, of any budget: an evaluation at a budget counts as the score there.
            Those of other arms are left out.
        presets: columns of ours; None for all.
        budgets: in environment steps.
    """
    presets = presets or tuple(DMC_PRESETS)
    runs = [run for run in runs if run.family == "dmc" and run.arm in presets]
    tasks = reference.tasks()
    places = [(task, budget) for budget in budgets for task in tasks]
    published = {(row.agent, row.task, row.env_steps): row for row in reference.dmc_scores()}

    def column_of(agent: str) -> ScoreColumn:
        rows = [published.get((agent, *place)) for place in places]
        cells = [Cell() if row is None else Cell(row.mean, deviation=row.std) for row in rows]
        return ScoreColumn(Column(agent, "published"), cells, _contest(agent, "published"))

    filled = [column_of(agent) for agent in DMC_OTHERS]
    for preset in presets:
        if preset in DMC_COLUMN:
            filled.append(column_of(DMC_COLUMN[preset]))
        own = [run for run in runs if run.arm == preset]
        scores = [
            [
                score
                for run in own
                if run.game == task
                if (score := score_at(run, steps)) is not None
            ]
            for task, steps in places
        ]
        filled.append(
            ScoreColumn(Column(preset, "ours"), [*map(mean_cell, scores)], _contest(preset, "ours"))
        )
    labels = [f"{task}, {short_steps(steps)}" for task, steps in places]
    rows = [
        row._replace(digits=0, separated=number > 0 and number % len(tasks) == 0)
        for number, row in enumerate(score_rows(filled, labels))
    ]
    notes = [
        "Mean return ± standard deviation over runs; in brackets the number of ours. At a step "
        "before their end, runs are scored by their evaluation there, which has fewer episodes.",
        "Best of a row marked among published and among ours; agents that read the state do not "
        "compete.",
        "The paper prints no figure of RCRL on DMControl, only curves.",
        *protocol_notes("dmc", filled),
        *mixing_notes(runs),
    ]
    title = "DMControl: return, published and ours"
    return Table(title, "task, steps", [column.column for column in filled], rows, notes)


def score_at(run: Run, env_steps: int) -> float | None:
    """A run's score at a number of environment steps; None if it was not evaluated there."""
    if run.env_steps == env_steps:
        return run.score
    return next((e.score for e in run.evaluations if e.env_steps == env_steps), None)


def _contest(agent: str, source: str) -> str:
    return "" if agent in _SKYLINE else source
