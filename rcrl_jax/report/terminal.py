"""A table for the terminal, cut into blocks of columns where it is wider than a line."""

import io
import re
from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable

from rcrl_jax.report.tables import Table

_WIDE = 400
"""Characters of a terminal line that holds every column; used where nothing limits the width."""


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


def _plain(text: str) -> str:
    """Without control characters, and with the brackets that Rich would read as markup escaped."""
    return re.sub(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", "?", text).replace("[", r"\[")
