"""Writes the measured tables into a Markdown page, between its markers."""

import pathlib
import re
from collections.abc import Collection

from rcrl_jax import files
from rcrl_jax.programs import markdown

_SUMMARISED = "theorem", "rare_probe", "segment_sampling"  # studies of rows and single numbers
_OTHERS = "rare_probe_proof", "segment_sampling_sizes"  # further tables
_MARKED = re.compile(r"<!-- measured:(\w+) -->\n.*?<!-- end -->", re.DOTALL)


def check(path: pathlib.Path, studies: Collection[str]) -> None:
    """Checks that a page has markers, and none for a table that `studies` do not make.

    Raises:
      OSError: if the page cannot be read, or its folder not written.
      ValueError: if it has no markers, or a marker names no table.
    """
    marked = {match[1] for match in _MARKED.finditer(path.read_text(encoding="utf-8"))}
    if not marked:
        raise ValueError(f"{path} has no <!-- measured:NAME --> ... <!-- end -->")
    known = {*studies, *(f"{name}_summary" for name in _SUMMARISED), *_OTHERS}
    if unknown := sorted(marked - known):
        raise ValueError(f"{path}: there is no table {', '.join(unknown)}")
    files.make_writable(path.parent)


def fill(path: pathlib.Path, report: dict) -> None:
    """Puts the table NAME between each `<!-- measured:NAME -->` and `<!-- end -->`."""
    tables = _tables(report["results"])

    def replace(match):
        return f"<!-- measured:{match[1]} -->\n{table(tables[match[1]])}\n<!-- end -->"

    text = _MARKED.sub(replace, path.read_text(encoding="utf-8"))
    with files.replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def table(rows: list[dict]) -> str:
    """A Markdown table whose columns are the keys of the first row."""
    keys = list(rows[0])
    return markdown.table(keys, ([_cell(row[key]) for key in keys] for row in rows))


def _cell(value) -> str:
    if value is None:
        return "—"
    if isinstance(value, dict):
        return "; ".join(f"{key}: {_cell(inner)}" for key, inner in value.items())
    if not isinstance(value, float):
        return str(value)
    return "0" if abs(value) < 1e-12 else f"{value:.3g}"  # below is a rounding error of float64


def _tables(results: dict) -> dict[str, list[dict]]:
    """The rows of every table of the page, by its name."""
    tables = {name: rows for name, rows in results.items() if isinstance(rows, list)}
    for name in _SUMMARISED:
        own = results[name]
        tables[name] = own["rows"]
        tables[f"{name}_summary"] = [{k: v for k, v in own.items() if not isinstance(v, list)}]
    tables["rare_probe_proof"] = results["rare_probe"]["proof"]
    tables["segment_sampling_sizes"] = results["segment_sampling"]["sizes"]
    errors = {}
    for row in results["representation"]:  # one row per family, not per K
        own = errors.setdefault(row["family"], {"family": row["family"]})
        own[f"K = {row['bins']}"] = row["worst"]
    for row in results["representation"]:
        errors[row["family"]]["slack"] = row["slack"]
    tables["representation"] = list(errors.values())
    return tables
