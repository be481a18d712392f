"""One table, rendered as CSV, Markdown, LaTeX, HTML and text.

    table = Table("Scores", "game", columns, rows, notes)
    print(to_text(table, width=100))
    write(table, directory, "table1")

Markdown, LaTeX and HTML are templates (`templates/`), in which all text is escaped.
"""

import functools
import os
import pathlib
import re
import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

import jinja2
import markupsafe
import numpy as np
import pandas as pd

from rcrl_jax import files, words

FORMATS = ("csv", "md", "tex", "html")
MISSING = "–"


class Column(NamedTuple):
    """One column.

    Attributes:
        name: what is scored, a preset or a published agent; may have two lines.
        source: who measured it, `published`, `ours` or `yours`; empty for none.
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
        best: whether it is marked.
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
        """A cell in words: value, deviation if known, seeds in brackets; a dash if missing."""
        if cell.value is None:
            return MISSING
        if isinstance(cell.value, str):
            return cell.value
        digits = 0 if isinstance(cell.value, int) else self.digits
        scale, unit = (100, " %") if self.percent else (1, "")
        text = f"{scale * cell.value:z.{digits}f}"
        if cell.deviation is not None:
            text += f" ± {scale * cell.deviation:.{digits}f}"
        return text + unit + ("" if cell.seeds is None else f" ({cell.seeds})")


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


def short(value: float, position: int | None = None) -> str:
    """A number in few characters, also at a tick of a figure: 0.5, 20, 100k, 1.5M."""
    del position
    for scale, unit in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= scale:
            return f"{value / scale:g}{unit}"
    return f"{value:g}"


def to_csv(table: Table) -> str:
    """For each column of the table the value and its number of seeds; empty if missing.

    Where a cell of the table has a deviation, every column has a third one for it.
    """
    kinds = ["value", "seeds"]
    if any(cell.deviation is not None for row in table.rows for cell in row.cells):
        kinds.append("deviation")
    names = [column.heading() for column in table.columns]
    heads = [name if kind == "value" else f"{name}, {kind}" for name in names for kind in kinds]
    rows = [
        [row.label, *(getattr(cell, kind) for cell in row.cells for kind in kinds)]
        for row in table.rows
    ]
    # As objects, whole numbers stay whole where another row has none.
    frame = pd.DataFrame(rows, columns=[table.label, *heads], dtype=object)
    return frame.to_csv(index=False, lineterminator="\n")


def to_text(table: Table, width: int) -> str:
    """The table for a terminal; `*` marks the best cells.

    Args:
        table: what to show.
        width: characters of a line. A wider table is cut into blocks of columns, each with the
            labels of the rows.
    """
    heads = [column.heading("\n").split("\n") for column in table.columns]
    levels = max(map(len, heads), default=1)
    frame = pd.DataFrame(
        [[row.text(cell) + "*" * cell.best for cell in row.cells] for row in table.rows],
        index=pd.Index([row.label for row in table.rows], name=table.label),
        columns=pd.MultiIndex.from_tuples([[""] * (levels - len(h)) + h for h in heads]),
    )
    shown = frame.to_string(line_width=width, sparsify=False)
    lines = [line.rstrip(" \\") for line in shown.split("\n")]
    notes = [textwrap.fill(note, width) for note in table.notes]
    return _printable("\n".join([table.title, *lines, *notes]))


def to_format(table: Table, suffix: str) -> str:
    """The text of a file of one of `FORMATS`.

    LaTeX is a `table*` that needs the package booktabs. Cells of HTML carry their plain number in
    `data-value`, for sorting.
    """
    return to_csv(table) if suffix == "csv" else render(f"table.{suffix}", table=table)


def write(table: Table, directory: str | os.PathLike, stem: str) -> None:
    """Writes the table as `<stem>.csv`, `.md`, `.tex` and `.html`, each file atomically.

    Raises:
        OSError: a file cannot be written.
    """
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    for suffix in FORMATS:
        with files.replacing(directory / f"{stem}.{suffix}") as partial:
            partial.write_text(to_format(table, suffix), encoding="utf-8")


def render(name: str, **values: Any) -> str:
    """One of `templates/` with its values. In HTML text is escaped; `Markup` is taken as it is."""
    return _environment().get_template(name).render(values)


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("rcrl_jax.tables"),
        autoescape=jinja2.select_autoescape(["html"]),
        undefined=jinja2.StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"markdown": _escape_markdown, "latex": _escape_latex}
    return environment


def _printable(value: Any) -> Any:
    """Text as `words.printable` shows it; other values, and markup of ours, as they are."""
    if not isinstance(value, str) or isinstance(value, markupsafe.Markup):
        return value
    return words.printable(value)


def _escape_markdown(text: str) -> str:
    return re.sub(r"([\\|*_`<>\[\]])", r"\\\1", text.replace("\n", " "))


_LATEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "±": r"\textpm{}", "–": "--",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}  # fmt: skip


def _escape_latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
