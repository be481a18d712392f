"""Tables of speed and precision: files of `benchmarks.throughput` and `benchmarks.precision`."""

import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.tables.pools import short_commit
from benchmarks.tables.table import Cell, Column, Row, Table


def tables(roots: Sequence[pathlib.Path], problems: list[str]) -> list[Table]:
    """Two tables, of `throughput/*.json` and `precision/*.json` below the roots.

    Args:
        roots: directories that may have these files.
        problems: gets one line for each damaged file.
    """
    kinds = {
        "throughput": (
            "Speed of training",
            "Medians of timed calls, alone on the machine. The matrix product is a large one in "
            "float32, measured beside each row: what the update's rate compares with.",
            _fleets,
        ),
        "precision": (
            "Reduced precision",
            "Relative to float32. The last number is how far the gradients of two batches differ.",
            _precisions,
        ),
    }
    found = []
    for folder, (title, note, read) in kinds.items():
        rows = _read_rows(roots, folder, read, problems)
        if rows:
            label, *names = rows[0]
            cells = [Row(row.pop(label), [*map(Cell, row.values())], digits=3) for row in rows]
            found.append(Table(title, label, [*map(Column, names)], cells, [note]))
    return found


def _read_rows(
    roots: Sequence[pathlib.Path],
    folder: str,
    read: Callable[[Any], list[dict[str, Any]]],
    problems: list[str],
) -> list[dict[str, Any]]:
    rows = []
    paths = {
        path.resolve(): path for root in roots for path in sorted(root.glob(f"{folder}/*.json"))
    }
    for path in paths.values():
        try:
            rows += read(json.loads(path.read_text(encoding="utf-8")))
        except OSError as error:
            problems.append(f"{path} cannot be read: {error.strerror}; change its rights")
        except (
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            RecursionError,
            ArithmeticError,
        ) as error:
            what = str(error) if isinstance(error, ValueError) else "an entry has another form"
            problems.append(f"{path} is damaged: {what}; repeat benchmarks.{folder}")
    return rows


def _fleets(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "command": command,
            "games": str(fleet["games"]),
            "runs": _number(fleet.get("runs")),
            "batch": _number(fleet.get("batch_size")),
            "agent steps/s": _number(fleet.get("agent_steps_per_s")),
            "loop [ms]": _number(fleet.get("loop_ms")),
            "update [ms]": _number(fleet.get("update_ms")),
            "update [GFLOP/s]": _number(fleet.get("update_gflop_per_s")),
            "host [GiB]": _number(fleet.get("host_gib")),
            "device [GiB]": _number(fleet.get("device_gib")),
            "matrix product [GFLOP/s]": _number(entry["machine"].get("matmul_gflop_per_s")),
            "device": str(entry["device"]["kind"]),
            "commit": short_commit(str(entry["versions"].get("git_commit"))),
        }
        for command, entry in found.items()
        for fleet in entry["fleets"]
    ]


def _precisions(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "preset": str(row["preset"]),
            "precision": str(row["precision"]),
            "game": str(found["game"]),
            "error of the loss": f"{row['loss_error']:.1e}",
            "error of the gradient": f"{row['gradient_error']:.1e}",
            "difference of two batches": f"{row['gradient_difference_of_batches']:.2f}",
            "how": str(found["how"]),
            "commit": short_commit(str(found["versions"].get("git_commit"))),
        }
        for row in found["table"]
    ]


def _number(value: Any) -> float | int | None:
    if value is None or isinstance(value, int):
        return value
    return round(float(value), 3)
