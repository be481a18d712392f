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
from collections.abc import Callable, Sequence
from typing import NamedTuple

from matplotlib.figure import Figure
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


class Cell(NamedTuple):
    """One number.

    Attributes:
        value: None if it is missing.
        seeds: how many runs it is the mean of; None if that is unknown or makes no sense.
        best: whether the reader's eye should find it.
    """

    value: float | None = None
    seeds: int | None = None
    best: bool = False


class Row(NamedTuple):
    """One line.

    Attributes:
        label: what the line is about.
        cells: one for each column.
        percent: whether values are shares that are shown in percent.
        separated: whether a rule stands above the line.
    """

    label: str
    cells: Sequence[Cell]
    percent: bool = False
    separated: bool = False


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


def show(cell: Cell, *, percent: bool = False) -> str:
    """A cell in words: its value, and in brackets its number of seeds; a dash if missing."""
    if cell.value is None:
        return MISSING
    value = f"{100 * cell.value:.1f} %" if percent else f"{cell.value:.1f}"
    return value if cell.seeds is None else f"{value} ({cell.seeds})"


def to_text(table: Table, width: int | None = None) -> str:
    """The table for a terminal.

    Args:
        table: what to show.
        width: characters of a line; as many as needed if None.
    """
    console = Console(
        file=io.StringIO(), width=width or _WIDE, color_system=None, legacy_windows=False
    )
    shown = RichTable(title=_plain(table.title), title_justify="left", title_style="")
    shown.add_column(_plain(table.label), no_wrap=True)
    for column in table.columns:
        shown.add_column("\n".join(map(_plain, filter(None, column))), justify="right")
    for number, row in enumerate(table.rows):
        following = table.rows[number + 1 : number + 2]
        cells = [_plain(f"{show(c, percent=row.percent)}{'*' * c.best}") for c in row.cells]
        shown.add_row(
            _plain(row.label), *cells, end_section=any(next_.separated for next_ in following)
        )
    console.print(shown)
    for note in table.notes:
        console.print(_plain(note), highlight=False, soft_wrap=width is None)
    lines = console.file.getvalue().splitlines()
    return "\n".join(line.rstrip() for line in lines)


def to_csv(table: Table) -> str:
    """Two columns for each of the table: the value and its number of seeds; empty if missing."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [" ".join(filter(None, column)) for column in table.columns]
    writer.writerow([table.label, *(head for name in names for head in (name, f"{name}, seeds"))])
    for row in table.rows:
        numbers = [n for cell in row.cells for n in (cell.value, cell.seeds)]
        writer.writerow([row.label, *("" if n is None else repr(n) for n in numbers)])
    return text.getvalue()


def to_markdown(table: Table) -> str:
    """A table of GitHub's Markdown, with title and notes."""
    heads = [" ".join(filter(None, column)) for column in table.columns]
    lines = [
        f"**{_escape_markdown(table.title)}**",
        "",
        _markdown_line([table.label, *heads]),
        "| --- |" + " ---: |" * len(heads),
    ]
    for row in table.rows:
        cells = [_bold(show(c, percent=row.percent), c.best, "**{}**") for c in row.cells]
        lines.append(f"| {_escape_markdown(row.label)} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, *(f"\n{_escape_markdown(note)}" for note in table.notes), ""])


def to_latex(table: Table) -> str:
    """A `table*` in the layout of the paper; it needs the package booktabs."""
    heads = [" ".join(filter(None, column)) for column in table.columns]
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
            _bold(_escape_latex(show(c, percent=row.percent)), c.best, r"\textbf{{{}}}")
            for c in row.cells
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
        cells = "".join(_html_cell(cell, row.percent) for cell in row.cells)
        kind = " class=separated" if row.separated else ""
        lines.append(f'<tr{kind}><th scope="row">{html.escape(row.label)}</th>{cells}</tr>')
    lines.append("</tbody></table></div>")
    lines += [f"<p class=note>{html.escape(note)}</p>" for note in table.notes]
    return "\n".join([*lines, "</figure>", ""])


def to_figure(table: Table) -> Figure:
    """The table as a picture; title and notes lie outside the axes."""
    heads = ["\n".join(filter(None, column)) for column in table.columns]
    rows = [[row.label, *(show(c, percent=row.percent) for c in row.cells)] for row in table.rows]
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


def _html_cell(cell: Cell, percent: bool) -> str:
    if cell.value is None:
        return f"<td class=missing>{MISSING}</td>"
    shown = show(cell._replace(seeds=None), percent=percent)
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
    **{character: f"\\{character}" for character in "&%$#_{}"},
}  # fmt: skip


def _escape_latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def _escape_math(text: str) -> str:
    """Matplotlib reads text between dollars as a formula."""
    return text.replace("$", r"\$")
