"""Tables of speed and precision: files of `benchmarks.throughput` and `benchmarks.precision`."""

import json
import pathlib
from collections.abc import Sequence
from typing import Any

from benchmarks.tables.pools import short_commit
from benchmarks.tables.table import Cell, Column, Row, Table

_TITLES = {
    "throughput": (
        "Speed of training",
        "Medians of timed calls, alone on the machine. matmul_gflop_per_s is of a large matrix "
        "product in float32, measured beside each row: what the update's rate compares with.",
    ),
    "precision": (
        "Reduced precision",
        "Relative to float32. gradient_difference_of_batches is how far the gradients of two "
        "batches differ.",
    ),
}
_SPEEDS = (
    "games", "runs", "batch_size", "agent_steps_per_s", "loop_ms", "update_ms",
    "update_gflop_per_s", "host_gib", "device_gib",
)  # fmt: skip
_ERRORS = (
    "precision", "loss_error", "gradient_error", "gradient_difference_of_batches"
)  # fmt: skip


def tables(roots: Sequence[pathlib.Path], problems: list[str]) -> list[Table]:
    """A table of speed and one of precision, where there are some.

    Args:
        roots: directories that may have `throughput/*.json` and `precision/*.json`.
        problems: gets one line for each damaged file.
    """
    found = []
    for folder, (title, note) in _TITLES.items():
        rows = []
        files = {f.resolve(): f for root in roots for f in sorted(root.glob(f"{folder}/*.json"))}
        for path in files.values():
            try:
                content = json.loads(path.read_text(encoding="utf-8"))
                rows += _fleets(content) if folder == "throughput" else _precisions(content)
            except OSError as error:
                problems.append(f"{path} cannot be read: {error.strerror}; change its rights")
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
                what = str(error) if isinstance(error, ValueError) else "an entry has another form"
                problems.append(f"{path} is damaged: {what}; repeat benchmarks.{folder}")
        if rows:
            label, *names = rows[0]
            cells = [[_cell(row[name]) for name in names] for row in rows]
            shown = [
                Row(str(row[label]), own, digits=3) for row, own in zip(rows, cells, strict=True)
            ]
            found.append(Table(title, label, [*map(Column, names)], shown, [note]))
    return found


def _fleets(content: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"command": command}
        | {name: fleet.get(name) for name in _SPEEDS}
        | {"matmul_gflop_per_s": entry["machine"].get("matmul_gflop_per_s")}
        | {"device": str(entry["device"]["kind"])}
        | {"commit": short_commit(str(entry["versions"].get("git_commit")))}
        for command, entry in content.items()
        for fleet in entry["fleets"]
    ]


def _precisions(content: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"preset": row["preset"]}
        | {name: row.get(name) for name in _ERRORS}
        | {"game": str(content["game"]), "how": str(content["how"])}
        | {"commit": short_commit(str(content["versions"].get("git_commit")))}
        for row in content["table"]
    ]


def _cell(value: Any) -> Cell:
    if isinstance(value, float):
        return Cell(round(value, 3) if abs(value) >= 0.01 else f"{value:.1e}")
    return Cell(value if value is None or type(value) is int else str(value))
