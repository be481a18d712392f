"""The section on speed: files of `benchmarks.throughput`."""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from rcrl_jax.report import markup
from rcrl_jax.report.markup import Markup, Value
from rcrl_jax.report.sections import nothing

_FLEET = {
    "runs": ("runs", "{:.0f}"),
    "batch_size": ("batch", "{:.0f}"),
    "agent_steps_per_s": ("agent steps/s", "{:.1f}"),
    "loop_ms": ("loop [ms]", "{:.2f}"),
    "update_ms": ("update [ms]", "{:.2f}"),
    "update_gflop_per_s": ("update [GFLOP/s]", "{:.0f}"),
    "host_gib": ("host [GiB]", "{:.2f}"),
    "device_gib": ("device [GiB]", "{:.2f}"),
}


def section(roots: Sequence[pathlib.Path], problems: list[str]) -> Markup:
    """A table of speed.

    Args:
        roots: directories that may have `throughput/*.json`.
        problems: gets one line for each damaged file.
    """
    rows = []
    paths = {
        path.resolve(): path for root in roots for path in sorted(root.glob("throughput/*.json"))
    }
    for path in paths.values():
        try:
            rows += _fleets(json.loads(path.read_text(encoding="utf-8")))
        except OSError as error:
            problems.append(f"{path} cannot be read: {error.strerror}; change its rights")
        except (
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            ArithmeticError,
            RecursionError,
        ) as error:
            what = str(error) if isinstance(error, ValueError) else "an entry has another form"
            problems.append(f"{path} is damaged: {what}; repeat benchmarks.throughput")
    if not rows:
        return nothing("No speed has been recorded here yet.")
    heads = ["command", "games", *(name for name, _ in _FLEET.values())]
    heads += ["matrix product [GFLOP/s]", "device", "commit"]
    note = (
        "Medians of timed calls, alone on the machine. The matrix product is a large one in "
        "float32, measured beside each row: what the update's rate compares with."
    )
    return markup.table("Speed of training", heads, rows, [note])


def _fleets(measured: Mapping[str, Any]) -> list[list[object]]:
    return [
        [
            command,
            fleet["games"],
            *(_number(fleet.get(name), form) for name, (_, form) in _FLEET.items()),
            _number(entry["machine"].get("matmul_gflop_per_s"), "{:.0f}"),
            entry["device"]["kind"],
            str(entry["versions"].get("git_commit"))[:10],
        ]
        for command, entry in measured.items()
        for fleet in entry["fleets"]
    ]


def _number(value: Any, form: str) -> Value:
    if value is None:
        return Value(None, "")
    return Value(float(value), form.format(float(value)))
