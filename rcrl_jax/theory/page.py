"""Writes the measured tables into a Markdown page, between its markers."""

import pathlib
import re

from rcrl_jax import files

_MARKED = re.compile(r"<!-- measured:(\w+) -->\n.*?<!-- end -->", re.DOTALL)


def check(path: pathlib.Path) -> None:
    """Checks that a page has a place for a table.

    Raises:
      OSError: if the page cannot be read.
      ValueError: if it has no markers.
    """
    if not _MARKED.search(path.read_text()):
        raise ValueError(f"{path} has no <!-- measured:NAME --> ... <!-- end -->")


def fill(path: pathlib.Path, report: dict) -> None:
    """Replaces the text between `<!-- measured:NAME -->` and `<!-- end -->` by the table NAME.

    Args:
      path: the page, which is rewritten.
      report: the contents of `theory.json`.

    Raises:
      ValueError: if the page names a table that the report does not have.
    """
    tables = _tables(report)

    def replace(match):
        name = match[1]
        if name not in tables:
            raise ValueError(f"{path} asks for {name!r}; measured are {sorted(tables)}")
        return f"<!-- measured:{name} -->\n{tables[name]}\n<!-- end -->"

    text = _MARKED.sub(replace, path.read_text())
    with files.replacing(path) as partial:
        partial.write_text(text)


def table(rows: list[dict]) -> str:
    """A Markdown table whose columns are the keys of the first row."""
    keys = list(rows[0])
    lines = [keys, ["---"] * len(keys), *([_cell(row.get(key)) for key in keys] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(value) -> str:
    if value is None:
        return "—"
    if isinstance(value, bool) or not isinstance(value, float):
        return str(value)
    if abs(value) < 1e-12:  # a rounding error of float64
        return "0"
    return f"{value:.3g}"


def _tables(report: dict) -> dict[str, str]:
    results, manifest = report["results"], report["manifest"]
    flat = {name: rows for name, rows in results.items() if isinstance(rows, list)}
    for name in ("theorem", "rare_probe", "segment_sampling"):
        flat[name] = results[name]["rows"]
        flat[f"{name}_summary"] = [
            {k: v for k, v in results[name].items() if not isinstance(v, list)}
        ]
    flat["rare_probe_proof"] = results["rare_probe"]["proof"]
    flat["segment_sampling_sizes"] = results["segment_sampling"]["sizes"]
    flat["representation"] = [
        row for row in results["representation"] if row["bins"] in (2, 8, 32, 128)
    ]
    # Only networks have cosines, but every row needs the two columns.
    flat["deep"] = [
        {**row, **{key: row.get(key) for key in ("cosine_same_class", "cosine_other_class")}}
        for row in results["deep"]
    ]
    pi = results["pi_bisimulation"]
    flat["pi_bisimulation"] = [
        {
            "rewards equal in": reading,
            "MDPs": pi["mdps"],
            "some states merge": pi["merging"][reading],
            "proposition fails": pi["failing"][reading],
        }
        for reading in pi["merging"]
    ]
    flat["counterexamples"] = [
        {"case": case, "measured": _sentence(value)}
        for case, value in results["counterexamples"].items()
    ]
    flat["manifest"] = [{"what": key, "value": _sentence(value)} for key, value in manifest.items()]
    return {name: table(rows) for name, rows in flat.items()}


def _sentence(value) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{key}: {_sentence(inner)}" for key, inner in value.items())
    return _cell(value)
