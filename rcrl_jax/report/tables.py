"""One table, rendered for the terminal and as CSV, Markdown, LaTeX, HTML and a picture.

table = Table("Scores", "game", columns, rows, notes)
print(to_text(table, width=100))
write(table, directory, "table1")
"""

import csv
import html
import io
import os
import pathlib
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from matplotlib.figure import Figure
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable

from rcrl_jax import files

MISSING = "–"
_WIDE = 400
"""Characters of a terminal line that holds every column; used where nothing limits the width."""


class Column(NamedTuple):
    """One column.

    Attributes:
        name: what is scored, a preset or a published agent.
        source: who measured it, `published` or `ours`; empty for neither.
    """

    name: str
    source: str = ""

    def heading(self, separator: str = " ") -> str:
        """Name and source."""
        return separator.join(filter(None, self))


class Cell(NamedTuple):
    """One number.

    Attributes:
        value: None if it is missing; whole numbers are shown without decimals.
        seeds: how many runs it is the mean of; None if that is unknown or makes no sense.
        best: whether the reader's eye should find it.
        deviation: sample standard deviation over runs; None if unknown.
    """

    value: float | int | None = None
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

    def texts(self) -> list[str]:
        """The cells in words."""
        return [show(cell, percent=self.percent, digits=self.digits) for cell in self.cells]


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


def show(cell: Cell, *, percent: bool = False, digits: int = 1) -> str:
    """A cell in words: value, deviation if known, number of seeds in brackets; or a dash."""
    if cell.value is None:
        return MISSING
    if isinstance(cell.value, int):
        digits = 0
    scale, unit = (100, " %") if percent else (1, "")
    text = f"{scale * cell.value:z.{digits}f}"
    if cell.deviation is not None:
        text += f" ± {scale * cell.deviation:.{digits}f}"
    return text + unit + ("" if cell.seeds is None else f" ({cell.seeds})")


def to_text(table: Table, width: int | None = None) -> str:
    """The table for a terminal; `*` marks the best cells.

    Args:
        table: what to show.
        width: characters of a line. A wider table is cut into blocks of columns, each with the
            labels of the rows. As many characters as needed if None.
    """
    console = Console(
        file=io.StringIO(), width=width or _WIDE, color_system=None, legacy_windows=False
    )
    heads = [column.heading("\n") for column in table.columns]
    rows = [
        [text + "*" * cell.best for text, cell in zip(row.texts(), row.cells, strict=True)]
        for row in table.rows
    ]
    console.print(_plain(table.title), highlight=False, soft_wrap=width is None)
    for columns in _blocks(table, heads, rows, console.width):
        shown = RichTable()
        shown.add_column(_plain(table.label), no_wrap=True)
        for column in columns:
            shown.add_column(_plain(heads[column]), justify="right")
        for number, row in enumerate(table.rows):
            shown.add_row(
                _plain(row.label),
                *(_plain(rows[number][column]) for column in columns),
                end_section=any(below.separated for below in table.rows[number + 1 : number + 2]),
            )
        console.print(shown)
    for note in table.notes:
        console.print(_plain(note), highlight=False, soft_wrap=width is None)
    lines = console.file.getvalue().splitlines()
    return "\n".join(line.rstrip() for line in lines)


def _blocks(
    table: Table, heads: Sequence[str], rows: Sequence[Sequence[str]], width: int
) -> list[list[int]]:
    """Cuts the columns into blocks that fit a line; ours stay beside the published one if possible.

    Returns:
        The numbers of the columns of each block.
    """
    # A border and a space on each side of a column.
    own = [3 + _width(texts) for texts in zip(heads, *rows, strict=True)]
    room = width - 4 - _width([table.label, *(row.label for row in table.rows)])
    groups: list[list[int]] = []
    for number, column in enumerate(table.columns):
        if (
            column.source == "ours"
            and groups
            and sum(own[n] for n in groups[-1]) + own[number] <= room
        ):
            groups[-1].append(number)
        else:
            groups.append([number])
    blocks: list[list[int]] = [[]]
    for group in groups:
        if blocks[-1] and sum(own[n] for n in blocks[-1] + group) > room:
            blocks.append([])
        blocks[-1] += group
    return blocks


def _width(texts: Iterable[str]) -> int:
    return max(cell_len(line) for text in texts for line in text.split("\n"))


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
        writer.writerow([row.label, *("" if n is None else repr(n) for n in numbers)])
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
    heads = [
        f'<th scope="col" class="{html.escape(column.source or "plain")}">'
        f"{html.escape(column.name)}<small>{html.escape(column.source)}</small></th>"
        for column in table.columns
    ]
    lines = [
        "<figure class=table>",
        f"<figcaption>{html.escape(table.title)}</figcaption>",
        "<div class=scroll><table class=sortable>",
        f'<thead><tr><th scope="col">{html.escape(table.label)}</th>{"".join(heads)}</tr></thead>',
        "<tbody>",
    ]
    for row in table.rows:
        cells = "".join(_html_cell(cell, row) for cell in row.cells)
        kind = " class=separated" if row.separated else ""
        lines.append(f'<tr{kind}><th scope="row">{html.escape(row.label)}</th>{cells}</tr>')
    lines.append("</tbody></table></div>")
    lines += [f"<p class=note>{html.escape(note)}</p>" for note in table.notes]
    return "\n".join([*lines, "</figure>", ""])


def to_figure(table: Table) -> Figure:
    """The table as a picture; title and notes lie outside the axes."""
    heads = [column.heading("\n") for column in table.columns]
    rows = [[row.label, *row.texts()] for row in table.rows]
    widths = [
        max(len(line) for text in texts for line in text.split("\n"))
        for texts in zip([table.label, *heads], *rows, strict=True)
    ]
    figure = Figure(figsize=(0.09 * sum(widths) + 0.15 * len(widths), 0.24 * (len(rows) + 3)))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_title(_escape_math(table.title), fontsize=10)
    drawn = axes.table(
        [[_escape_math(text) for text in row] for row in rows],
        colLabels=[_escape_math(text) for text in (table.label, *heads)],
        colWidths=[width / sum(widths) for width in widths],
        bbox=(0, 0, 1, 1),
        cellLoc="right",
    )
    notes = "\n".join(line for note in table.notes for line in textwrap.wrap(note, sum(widths)))
    axes.text(0, -0.02, _escape_math(notes), fontsize=7, va="top", transform=axes.transAxes)
    drawn.auto_set_font_size(False)
    drawn.set_fontsize(8)
    for (line, column), cell in drawn.get_celld().items():
        cell.set_edgecolor("#dddddd")
        if column == 0:
            cell.get_text().set_horizontalalignment("left")
        best = line > 0 and column > 0 and table.rows[line - 1].cells[column - 1].best
        if line == 0 or best:
            cell.get_text().set_fontweight("bold")
    return figure


WRITERS: dict[str, Callable[[Table], str]] = {
    "csv": to_csv,
    "md": to_markdown,
    "tex": to_latex,
    "html": to_html,
}
"""File suffix -> the text of that format."""


def write(table: Table, directory: str | os.PathLike, stem: str) -> list[pathlib.Path]:
    """Writes the table in every format, each file atomically.

    Returns:
        The files: `<stem>.csv`, `.md`, `.tex`, `.html` and `.png`.

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
    path = directory / f"{stem}.png"
    with files.replacing(path) as partial:
        to_figure(table).savefig(partial, format="png", dpi=150, bbox_inches="tight")
    return [*written, path]


def _html_cell(cell: Cell, row: Row) -> str:
    if cell.value is None:
        return f"<td class=missing>{MISSING}</td>"
    shown = show(cell._replace(seeds=None), percent=row.percent, digits=row.digits)
    seeds = "" if cell.seeds is None else f"<small>({cell.seeds})</small>"
    kind = " class=best" if cell.best else ""
    return f'<td{kind} data-value="{cell.value!r}">{html.escape(shown)}{seeds}</td>'


def _bold(text: str, best: bool, template: str) -> str:
    return template.format(text) if best else text


def _plain(text: str) -> str:
    """Without control characters, and with the brackets that Rich would read as markup escaped."""
    return re.sub(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", "?", text).replace("[", r"\[")


def _escape_markdown(text: str) -> str:
    return re.sub(r"([\\|*_`<>\[\]])", r"\\\1", text.replace("\n", " "))


def _markdown_line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(_escape_markdown, cells)) + " |"


_LATEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--",
    "±": r"$\pm$",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}  # fmt: skip


def _escape_latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def _escape_math(text: str) -> str:
    """Matplotlib reads text between dollars as a formula."""
    return text.replace("$", r"\$")
