"""The table of speed: files of `benchmarks.throughput`."""

import json
import pathlib
from collections.abc import Sequence
from typing import Any

from benchmarks.tables.pools import short_commit
from benchmarks.tables.table import Cell, Column, Row, Table

_NAMES = (
    "games", "runs", "batch_size", "agent_steps_per_s", "loop_ms", "update_ms",
    "update_gflop_per_s", "host_gib", "device_gib",
)  # fmt: skip
_NOTE = (
    "Medians of timed calls, alone on the machine. matmul_gflop_per_s is of a large matrix product "
    "in float32, measured beside each row: what the update's rate compares with."
)


def tables(roots: Sequence[pathlib.Path], problems: list[str]) -> list[Table]:
    """One table of speed; none where nothing was recorded.

    Args:
        roots: directories that may have `throughput/*.json`.
        problems: gets one line for each damaged file.
    """
    rows = []
    files = {
        file.resolve(): file for root in roots for file in sorted(root.glob("throughput/*.json"))
    }
    for path in files.values():
        try:
            rows += _rows(json.loads(path.read_text(encoding="utf-8")))
        except OSError as error:
            problems.append(f"{path} cannot be read: {error.strerror}; change its rights")
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            what = str(error) if isinstance(error, ValueError) else "an entry has another form"
            problems.append(f"{path} is damaged: {what}; repeat benchmarks.throughput")
    names = [Column(name) for name in (*_NAMES, "matmul_gflop_per_s", "device", "commit")]
    return [Table("Speed of training", "command", names, rows, [_NOTE])] if rows else []


def _rows(content: dict[str, Any]) -> list[Row]:
    return [
        Row(
            command,
            [
                *(_cell(fleet.get(name)) for name in _NAMES),
                _cell(entry["machine"].get("matmul_gflop_per_s")),
                Cell(str(entry["device"]["kind"])),
                Cell(short_commit(str(entry["versions"].get("git_commit")))),
            ],
            digits=3,
        )
        for command, entry in content.items()
        for fleet in entry["fleets"]
    ]


def _cell(value: Any) -> Cell:
    return Cell(value if value is None or type(value) in (int, float) else str(value))
