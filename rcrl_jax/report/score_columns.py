"""Columns of a score table, and the rows and notes that follow from them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rcrl_jax import reference
from rcrl_jax.report.tables import Cell, Column, Row
from rcrl_jax.results import pools
from rcrl_jax.results.runs import Run


class ScoreColumn(NamedTuple):
    """A column with its cells.

    Attributes:
        column: its heading.
        cells: one for each row.
        contest: the columns among which the best of a row is marked have this in common; empty for
            a column that does not compete.
    """

    column: Column
    cells: Sequence[Cell]
    contest: str = ""


def mean_cell(scores: Sequence[float]) -> Cell:
    """Mean, number and sample standard deviation of the scores; missing if there is none."""
    if not len(scores):
        return Cell()
    deviation = float(np.std(scores, ddof=1)) if len(scores) > 1 else None
    return Cell(float(np.mean(scores)), len(scores), deviation=deviation)


def score_rows(filled: Sequence[ScoreColumn], labels: Sequence[str]) -> list[Row]:
    """The rows of the columns' cells, with the best ones marked."""
    return [
        Row(label, mark_best(filled, [column.cells[number] for column in filled]))
        for number, label in enumerate(labels)
    ]


def mark_best(filled: Sequence[ScoreColumn], cells: Sequence[Cell]) -> list[Cell]:
    """The cells with the best one of each contest marked, where there is a choice."""
    marked = list(cells)
    for contest in {column.contest for column in filled} - {""}:
        numbers = [
            number
            for number, (column, cell) in enumerate(zip(filled, cells, strict=True))
            if column.contest == contest and cell.value is not None
        ]
        values = [cells[number].value for number in numbers]
        for number in numbers:
            is_best = len(values) > 1 and cells[number].value == max(values)
            marked[number] = cells[number]._replace(best=is_best)
    return marked


def protocol_notes(benchmark: str, filled: Sequence[ScoreColumn]) -> list[str]:
    """How each published column was measured; agents with the same note share a line."""
    agents: dict[str, list[str]] = {}
    for column in filled:
        if column.column.source == "published":
            note = reference.protocol_note(benchmark, column.column.name)
            agents.setdefault(note, []).append(column.column.name)
    return [f"{', '.join(names)} (published): {note}." for note, names in agents.items()]


def mixing_notes(runs: Sequence[Run]) -> list[str]:
    """A warning if the runs were not made under the same conditions."""
    if len({pools.conditions_key(run) for run in runs}) > 1:
        return ["Mixed: our runs were made under different conditions."]
    return []


def short_steps(steps: int) -> str:
    """A number of steps in few characters: 300, 100k, 1.5M."""
    if steps % 100_000 == 0 and steps >= 1_000_000:
        return f"{steps / 1_000_000:g}M"
    return f"{steps // 1000}k" if steps and steps % 1000 == 0 else f"{steps}"
