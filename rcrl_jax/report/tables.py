"""One table, rendered as CSV, Markdown, LaTeX, HTML and a picture.

    table = Table("Scores", "game", columns, rows, notes)
    print(terminal.to_text(table, width=100))
    write(table, directory, "table1")

Text from files is escaped in every format.
"""

import csv
import html
import io
import itertools
import os
import pathlib
import re
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

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
    """The table as a picture: horizontal rules, columns of ours shaded, best cells bold."""
    heads = [column.heading("\n").split("\n") for column in table.columns]
    rows = [[row.label, *row.texts()] for row in table.rows]
    columns = [[table.label], *heads]
    widths = [
        2 + max(len(text) for text in (*head, *cells))
        for head, cells in zip(columns, zip(*rows, strict=True), strict=True)
    ]
    rights, head_lines = list(itertools.accumulate(widths)), max(map(len, columns))
    notes = [line for note in table.notes for line in textwrap.wrap(note, int(1.5 * rights[-1]))]
    # Coordinates are characters to the right and lines downwards, the first row at 0.
    bottom = len(rows) + 0.3
    top, end = -head_lines - 1.6, bottom + 0.72 * len(notes)
    figure = Figure(figsize=(0.083 * rights[-1], 0.19 * (end - top)))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, rights[-1]), ylim=(end, top))
    axes.set_axis_off()

    def draw(x: float, y: float, text: str, **style: Any) -> None:
        axes.text(x, y, escape_math(text), **{"fontsize": 8, "va": "center", **style})

    draw(0.5, top + 0.5, table.title, fontsize=9)
    for number, column in enumerate(table.columns, start=1):
        if column.source == "ours":
            spot = (rights[number - 1], -head_lines - 0.4)
            size = (widths[number], bottom + head_lines + 0.25)
            axes.add_patch(Rectangle(spot, *size, color="#eef3f8", linewidth=0))
    for head, right, is_label in zip(columns, rights, [True, *[False] * len(heads)], strict=True):
        for line, text in enumerate(reversed(head)):
            x, side = (0.5, "left") if is_label else (right - 0.7, "right")
            draw(x, -line - 0.8, text, ha=side, fontweight="bold")
    for number, (row, texts) in enumerate(zip(table.rows, rows, strict=True)):
        draw(0.5, number + 0.5, texts[0])
        for cell, text, right in zip(row.cells, texts[1:], rights[1:], strict=True):
            weight = "bold" if cell.best else "normal"
            draw(right - 0.7, number + 0.5, text, ha="right", fontweight=weight)
        if row.separated:
            axes.axhline(number, color="black", linewidth=0.5)
    for y, width in ((-head_lines - 0.4, 1.0), (-0.15, 0.5), (bottom - 0.15, 1.0)):
        axes.axhline(y, color="black", linewidth=width)
    for number, note in enumerate(notes):
        draw(0.5, bottom + 0.72 * number + 0.5, note, fontsize=6.5)
    return figure


WRITERS: dict[str, Callable[[Table], str]] = {
    "csv": to_csv,
    "md": to_markdown,
    "tex": to_latex,
    "html": to_html,
}
"""File suffix -> the text of that format."""


def write(
    table: Table, directory: str | os.PathLike, stem: str, figure: Figure | None = None
) -> list[pathlib.Path]:
    """Writes the table in every format, each file atomically.

    Args:
        table: what to write.
        directory: made if it does not exist.
        stem: name of the files without their suffix.
        figure: the picture; None for one of the table.

    Returns:
        The files: `<stem>.csv`, `.md`, `.tex`, `.html` and `.png`.

    Raises:
        OSError: a file cannot be written.
    """
    written = write_texts(table, directory, stem)
    path = pathlib.Path(directory) / f"{stem}.png"
    with files.replacing(path) as partial:
        picture = figure or to_figure(table)
        picture.savefig(partial, format="png", dpi=200, bbox_inches="tight", pad_inches=0.05)
    return [*written, path]


def write_texts(table: Table, directory: str | os.PathLike, stem: str) -> list[pathlib.Path]:
    """Writes the table in every format but the picture; see `write`."""
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for suffix, render in WRITERS.items():
        path = directory / f"{stem}.{suffix}"
        with files.replacing(path) as partial:
            partial.write_text(render(table), encoding="utf-8")
        written.append(path)
    return written


def _html_cell(cell: Cell, row: Row) -> str:
    if cell.value is None:
        return f"<td class=missing>{MISSING}</td>"
    shown = show(cell._replace(seeds=None), percent=row.percent, digits=row.digits)
    seeds = "" if cell.seeds is None else f"<small>({cell.seeds})</small>"
    kind = " class=best" if cell.best else ""
    return f'<td{kind} data-value="{cell.value!r}">{html.escape(shown)}{seeds}</td>'


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


def escape_math(text: str) -> str:
    """Matplotlib reads text between dollars as a formula."""
    return text.replace("$", r"\$")
