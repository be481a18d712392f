"""Reads the package's tables: CSV files, maybe compressed, into typed rows."""

from __future__ import annotations

import csv
import gzip
import importlib.resources
import io
import typing
from importlib.resources.abc import Traversable

Row = typing.TypeVar("Row", bound=tuple)


def read(name: str, row_type: type[Row]) -> tuple[Row, ...]:
    """Reads `data/<name>`; see `read_file`."""
    return read_file(importlib.resources.files("rcrl_jax.reference") / "data" / name, row_type)


def read_file(file: Traversable, row_type: type[Row]) -> tuple[Row, ...]:
    """Reads a CSV whose header is exactly the fields of `row_type`, converting by annotation.

    Args:
        file: a CSV in UTF-8, compressed by gzip if its name ends with `.gz`.
        row_type: a NamedTuple of strings and numbers; `float | None` is None for an empty cell.

    Raises:
        ValueError: another header, a row of another length, or a cell of another type; the message
            names file, line and column.
    """
    types = typing.get_type_hints(row_type)
    content = file.read_bytes()
    if file.name.endswith(".gz"):
        content = gzip.decompress(content)
    reader = csv.reader(io.StringIO(content.decode(), newline=""))
    header = next(reader, [])
    if header != list(types):
        raise ValueError(f"{file.name}: columns are {header}, expected {list(types)}")
    rows = []
    for cells in reader:
        where = f"{file.name}, line {reader.line_num}"
        if len(cells) != len(header):
            raise ValueError(f"{where}: {len(cells)} cells, expected {len(header)}")
        rows.append(
            row_type(
                *(
                    _cell(text, types[column], f"{where}, column {column}")
                    for column, text in zip(header, cells, strict=True)
                )
            )
        )
    return tuple(rows)


def _cell(text: str, cell_type: typing.Any, where: str) -> str | int | float | None:
    if cell_type == float | None:
        return _cell(text, float, where) if text else None
    try:
        return cell_type(text)
    except ValueError:
        raise ValueError(f"{where}: {text!r} is not of type {cell_type.__name__}") from None
