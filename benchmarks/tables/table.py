"""One table, rendered as CSV, Markdown, LaTeX, HTML and text.

    table = Table("Scores", "game", columns, rows, notes)
    print(to_text(table, width=100))
    write(table, directory, "table1")

Text from files is escaped in every format.
"""

import csv
import io
import os
import pathlib
import re
import textwrap
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from benchmarks.tables import rendering
from rcrl_jax import files

MISSING = "–"


class Column(NamedTuple):
    """One column.

    Attributes:
        name: what is scored, a preset or a published agent; may have two lines.
        source: who measured it, `published` or `ours`; empty for neither.
    """

    name: str
    source: str = ""

    def heading(self, separator: str = " ") -> str:
        """Name and source."""
        return separator.join(filter(None, [*self.name.split("\n"), self.source]))


class Cell(NamedTuple):
    """One number, or text.

    Attributes:
        value: None if it is missing; whole numbers are shown without decimals, text as it is.
        seeds: how many runs it is the mean of; None if that is unknown or makes no sense.
        best: whether the reader's eye should find it.
        deviation: sample standard deviation over runs; None if unknown.
    """

    value: float | int | str | None = None
    seeds: int | None = None
    best: bool = False
    deviation: float | None = None


class Row(NamedTuple):
    """One line.

    Attributes:
        label: what the line is about.
        cells: one for each column.
        percent: whether values are shares that are shown in percent.
        separated: whether a rule stands above the line.
        digits: decimals that are shown.
    """

    label: str
    cells: Sequence[Cell]
    percent: bool = False
    separated: bool = False
    digits: int = 1

    def text(self, cell: Cell) -> str:
        """A cell of this row in words."""
        return show(cell, percent=self.percent, digits=self.digits)

    def texts(self) -> list[str]:
        """The cells in words."""
        return [*map(self.text, self.cells)]


class Table(NamedTuple):
    """A table, independent of how it is shown.

    Attributes:
        title: one line above it.
        label: heading of the first column.
        columns: the other columns.
        rows: the lines.
        notes: sentences below it.
    """

    title: str
    label: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    notes: Sequence[str] = ()


def mean_cell(scores: Sequence[float]) -> Cell:
    """Mean, number and sample standard deviation of the scores; missing if there is none."""
    if not len(scores):
        return Cell()
    deviation = float(np.std(scores, ddof=1)) if len(scores) > 1 else None
    return Cell(float(np.mean(scores)), len(scores), deviation=deviation)


def short_steps(steps: int) -> str:
    """A number of steps in few characters: 300, 100k, 1.5M."""
    if steps % 100_000 == 0 and steps >= 1_000_000:
        return f"{steps / 1_000_000:g}M"
    return f"{steps // 1000}k" if steps and steps % 1000 == 0 else f"{steps}"


def show(cell: Cell, *, percent: bool = False, digits: int = 1) -> str:
    """A cell in words: value, deviation if known, number of seeds in brackets; or a dash."""
    if cell.value is None:
        return MISSING
    if isinstance(cell.value, str):
        return cell.value
    if isinstance(cell.value, int):
        digits = 0
    scale, unit = (100, " %") if percent else (1, "")
    text = f"{scale * cell.value:z.{digits}f}"
    if cell.deviation is not None:
        text += f" ± {scale * cell.deviation:.{digits}f}"
    return text + unit + ("" if cell.seeds is None else f" ({cell.seeds})")


def to_csv(table: Table) -> str:
    """For each column of the table the value and its number of seeds; empty if missing.

    Where a cell of the table has a deviation, every column has a third one for it.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    kinds = ["value", "seeds"]
    if any(cell.deviation is not None for row in table.rows for cell in row.cells):
        kinds.append("deviation")
    names = [column.heading() for column in table.columns]
    heads = [name if kind == "value" else f"{name}, {kind}" for name in names for kind in kinds]
    writer.writerow([table.label, *heads])
    for row in table.rows:
        numbers = [getattr(cell, kind) for cell in row.cells for kind in kinds]
        writer.writerow([row.label, *("" if n is None else str(n) for n in numbers)])
    return text.getvalue()


def to_markdown(table: Table) -> str:
    """A table of GitHub's Markdown, with title and notes."""
    heads = [column.heading() for column in table.columns]
    lines = [
        f"**{_escape_markdown(table.title)}**",
        "",
        _markdown_line([table.label, *heads]),
        "| --- |" + " ---: |" * len(heads),
    ]
    for row in table.rows:
        cells = [
            _bold(text, cell.best, "**{}**")
            for text, cell in zip(row.texts(), row.cells, strict=True)
        ]
        lines.append(f"| {_escape_markdown(row.label)} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, *(f"\n{_escape_markdown(note)}" for note in table.notes), ""])


def to_latex(table: Table) -> str:
    """A `table*` in the layout of the paper; it needs the package booktabs."""
    heads = [column.heading() for column in table.columns]
    lines = [
        r"\begin{table*}[t]",
        r"\centering\small",
        rf"\begin{{tabular}}{{l{'r' * len(heads)}}}",
        r"\toprule",
        " & ".join(map(_escape_latex, [table.label, *heads])) + r" \\",
        r"\midrule",
    ]
    for row in table.rows:
        if row.separated:
            lines.append(r"\midrule")
        cells = [
            _bold(_escape_latex(text), cell.best, r"\textbf{{{}}}")
            for text, cell in zip(row.texts(), row.cells, strict=True)
        ]
        lines.append(" & ".join([_escape_latex(row.label), *cells]) + r" \\")
    caption = " ".join(map(_escape_latex, [f"{table.title}.", *table.notes]))
    return "\n".join(
        [*lines, r"\bottomrule", r"\end{tabular}", rf"\caption{{{caption}}}", r"\end{table*}", ""]
    )


def to_html(table: Table) -> str:
    """A `<table>` whose cells carry their plain number in `data-value`, for sorting."""
    return rendering.render("table.html", table=table)


def to_text(table: Table, width: int | None = None) -> str:
    """The table for a terminal; `*` marks the best cells.

    Args:
        table: what to show.
        width: characters of a line. A wider table is cut into blocks of columns, each with the
            labels of the rows. As many characters as needed if None.
    """
    heads = [column.heading("\n").split("\n") for column in table.columns]
    levels = max(map(len, heads), default=1)
    cells = [
        [text + "*" * cell.best for text, cell in zip(row.texts(), row.cells, strict=True)]
        for row in table.rows
    ]
    frame = pd.DataFrame(
        cells,
        index=pd.Index([row.label for row in table.rows], name=table.label),
        columns=pd.MultiIndex.from_tuples([[""] * (levels - len(h)) + h for h in heads]),
    )
    shown = frame.to_string(line_width=width, sparsify=False)
    lines = [line.rstrip(" \\") for line in shown.split("\n")]
    notes = table.notes if width is None else [textwrap.fill(note, width) for note in table.notes]
    text = "\n".join([table.title, *lines, *notes])
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)


WRITERS: dict[str, Callable[[Table], str]] = {
    "csv": to_csv,
    "md": to_markdown,
    "tex": to_latex,
    "html": to_html,
}
"""File suffix -> the text of that format."""


def write(table: Table, directory: str | os.PathLike, stem: str) -> list[pathlib.Path]:
    """Writes the table in every format, each file atomically.

    Args:
        table: what to write.
        directory: made if it does not exist.
        stem: name of the files without their suffix.

    Returns:
        The files: `<stem>.csv`, `.md`, `.tex` and `.html`.

    Raises:
        OSError: a file cannot be written.
    """
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for suffix, render in WRITERS.items():
        path = directory / f"{stem}.{suffix}"
        with files.replacing(path) as partial:
            partial.write_text(render(table), encoding="utf-8")
        written.append(path)
    return written


def _bold(text: str, best: bool, template: str) -> str:
    return template.format(text) if best else text


def _escape_markdown(text: str) -> str:
    return re.sub(r"([\\|*_`<>\[\]])", r"\\\1", text.replace("\n", " "))


def _markdown_line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(_escape_markdown, cells)) + " |"


_LATEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "±": r"\textpm{}", "–": "--",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}  # fmt: skip


def _escape_latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
