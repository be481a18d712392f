"""Renders `templates/*.html` with every text escaped."""

import functools
from typing import Any

import jinja2
import markupsafe


def render(name: str, **values: Any) -> markupsafe.Markup:
    """A template with its values; text is escaped, `Markup` is taken as it is."""
    return markupsafe.Markup(_environment().get_template(name).render(values))


@functools.cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("benchmarks.tables"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _printable(value: Any) -> Any:
    """Text whose characters that do not print are question marks; line breaks stay.

    Among these are those that reverse the direction of writing, and halves of a surrogate pair,
    which no file can hold.
    """
    if not isinstance(value, str) or isinstance(value, markupsafe.Markup):
        return value
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in value)
