"""Builds HTML whose text is always escaped.

    row = element("tr", element("td", run.game), element("td", "12.5", data_value=12.5))

A child that is a plain string is text. Only `Markup` is taken as HTML.
"""

import html
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

MISSING = "–"


class Markup(str):
    """Text that is HTML already; what it was made from is escaped."""


class Value(NamedTuple):
    """A number of a table, sorted by its value.

    Attributes:
        number: None or NaN if it is missing.
        shown: its text; missing numbers are shown as a dash.
    """

    number: float | None
    shown: str


def escape(text: object) -> Markup:
    """Text as HTML, for content and for attributes in double quotes.

    Characters that do not print become question marks, for example those that reverse the direction
    of writing, and halves of a surrogate pair, which no file can hold; line breaks stay.
    """
    if isinstance(text, Markup):
        return text
    text = str(text)
    if not text.isprintable():
        text = "".join(c if c.isprintable() or c == "\n" else "?" for c in text)
    return Markup(html.escape(text))


def element(tag: str, *children: object, **attributes: object) -> Markup:
    """One element.

    Args:
        tag: its name, never from a file.
        *children: `Markup`, or text, which is escaped.
        **attributes: `class_` is `class`, `data_value` is `data-value`; None leaves one out, True
            writes the name alone.
    """
    written = "".join(
        f" {name}" if value is True else f' {name}="{escape(value)}"'
        for name, value in (
            (key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items()
        )
        if value is not None
    )
    return Markup(f"<{tag}{written}>{''.join(map(escape, children))}</{tag}>")


def join(parts: Iterable[object]) -> Markup:
    """Children without an element around them."""
    return Markup("".join(map(escape, parts)))


def table(
    caption: str, heads: Sequence[str], rows: Iterable[Sequence[object]], notes: Sequence[str] = ()
) -> Markup:
    """A sortable table like those of `tables.to_html`, for cells of any kind.

    Args:
        caption: its title.
        heads: of the columns.
        rows: their cells: `Value`, `Markup` or text; the first one of a row is its heading.
        notes: sentences below it.
    """
    rows = list(rows)
    is_text = [type(cell) is str for cell in rows[0]] if rows else [False] * len(heads)
    head = element(
        "tr",
        *(
            element("th", name, scope="col", class_="text" if text else None)
            for name, text in zip(heads, is_text, strict=True)
        ),
    )
    body = (
        element("tr", element("th", first, scope="row"), *map(_cell, others))
        for first, *others in rows
    )
    return element(
        "figure",
        element("figcaption", caption),
        element(
            "div",
            element("table", element("thead", head), element("tbody", *body), class_="sortable"),
            class_="scroll",
        ),
        *(element("p", note, class_="note") for note in notes),
        class_="table",
    )


def _cell(value: object) -> Markup:
    if not isinstance(value, Value):
        return element("td", value, class_=None if isinstance(value, Markup) else "text")
    if value.number is None or math.isnan(value.number):
        return element("td", MISSING, class_="missing")
    return element("td", value.shown, data_value=repr(value.number))
