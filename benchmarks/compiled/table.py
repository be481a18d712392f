"""What `benchmarks.compiled` has counted, as tables and as findings."""

import collections
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.compiled import devices
from rcrl_jax import words
from rcrl_jax.programs import markdown

_GIB = 2**30

SMALL_LOOPS = 8
"""Loops of a compiled program that run at most so often are no loops over rows.

They are those over the runs of `map` (two in the check), its inner loop of one iteration, the
vectors of factorised noise (2) and rounds of threefry (5). The smallest batch has 32 rows.
"""

TEMPORARIES = {"tpu": 3.0, "cuda": 1.5}
"""Goal of --check: temporaries of a run, as a multiple of what its program must hold at once.

That is its gradients, the frames of its batch and the results of its forward products. A TPU pads
arrays to tiles.
"""
PADDED = 0.1
"""Goal of --check: share of the bytes moved through memory that only pad layouts.

Only those of the largest kernels count that move more than three times their elements' bytes.
"""
_LEAST_PADDED = 64 * 2**20  # bytes; less is no finding
_SPARE = 4 * 2**20  # of a run, beside the goal: masks, random numbers, indices


def bound_s(row: Mapping[str, Any]) -> float:
    """The roofline of a program on its device: seconds that it cannot fall below."""
    kind = devices.parse(row["device"])[1]
    return max(row["flops"] / kind.flops[row["precision"]], row["memory_bytes"] / kind.bandwidth)


def needed(row: Mapping[str, Any]) -> float:
    """Bytes of memory that a program takes on each device."""
    return row["arguments"] + row["temporaries"] + row["results"]


def runs_that_fit(row: Mapping[str, Any]) -> int:
    """Runs for which all devices together have memory; `map` has the temporaries of one run."""
    number, kind = devices.parse(row["device"])
    shared = row["temporaries"] if row["batching"] == "map" else 0
    each = (needed(row) - shared) / row["runs_on_each_device"]
    return number * int((kind.memory - shared) / each)


def step_bound_s(programs: Sequence[Mapping[str, Any]], update: Mapping[str, Any]) -> float | None:
    """Bound of an agent step of a fleet: its updates, acting, and a write of frames.

    None where a program is missing, or updates are of several kinds.
    """
    own = {
        row["program"]: bound_s(row)
        for row in programs
        if all(row[k] == update[k] for k in ("preset", "runs", "batching")) and "failed" not in row
    }
    if update["updates_a_step"] is None or not {"update", "act", "write"} <= own.keys():
        return None
    return own["update"] * update["updates_a_step"] + own["act"] + own["write"]


def table(device: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """The table of a device, with what its columns mean."""
    number, kind = devices.parse(device)
    head = [
        "program", "runs", "arguments GiB", "temporaries GiB", "fits", "runs that fit", "kernels",
        "async copies", "GFLOP", "GB moved", "GB of async copies", "GB of the memory",
        "compiler: GB", "least GB", "bound ms", "agent steps/s at the bound",
    ]  # fmt: skip
    cells = []
    for row in rows:
        name = f"{row['preset']} {row['program']}, {row['batching']}"
        if "failed" in row:
            cells.append([f"{name}: {row['failed'][:100]}", str(row["runs"]), *[""] * 14])
            continue
        step = step_bound_s(rows, row) if row["program"] == "update" else None
        accessed = row["compiler"]["bytes accessed"]
        least = row["least"]
        fit = runs_that_fit(row)
        cells.append([
            name, str(row["runs"]), f"{row['arguments'] / _GIB:.2f}",
            f"{row['temporaries'] / _GIB:.3f}", "yes" if needed(row) <= kind.memory else "**no**",
            f"{fit:,}", f"{row['kernels']:,}", f"{row['copies'] // 2:,}",
            f"{row['flops'] / 1e9:.2f}", _gb(row["bytes"]), _gb(row["copied_bytes"]),
            _gb(row["memory_bytes"]), _gb(accessed), _gb(least and sum(least.values())),
            f"{1e3 * bound_s(row):.4f}", f"{row['runs'] / step:,.0f}" if step else "",
        ])  # fmt: skip
    title = f"# {device}: compiled, not run\n"
    return "\n".join(
        [title, markdown.table(head, cells, numbers=True), "", _legend(number, kind, rows)]
    )


def _gb(value: float | None) -> str:
    return "" if value is None else f"{value / 1e9:.4f}"


def _legend(number: int, kind: devices.Kind, rows: Sequence[Mapping[str, Any]]) -> str:
    rates = ", ".join(f"{name} {value / 1e12:g}" for name, value in kind.flops.items())
    commits = sorted({str(row["commit"])[:12] + str(row["commit"])[40:] for row in rows})
    parts = next((row["least"] for row in rows if row.get("least")), {})
    whose = "; `runs` are those of the\nwhole fleet."
    if number > 1:
        whose = f""" of {number}, except `runs`, runs that fit and
agent steps/s, which are those of all devices together."""
    return f"""\
All figures are those of one device{whose}\
 Loops count as often as they run. One execution of each program.

* **GB moved**: operands and results of all kernels. Of an operand from which a kernel only takes
  slices or rows, such as the stored frames, what it takes counts; of a result that replaces a part
  in place, that part; a copy counts as a whole. **async copies** run beside kernels and are counted
  apart. **GB of the memory**: both, with the padding of a TPU's tiles, without arrays that stay on
  the chip: on a TPU it can be below the least. **compiler: GB** is the compiler's own figure, in
  which a loop's body counts once.
* **GFLOP**: matrix products and convolutions of the program before the compiler's passes.
* **least GB**: {"; ".join(parts)}.
* **bound ms** is a bound, not a time: the larger of FLOP by peak and GB of the memory by bandwidth.
  Agent steps/s: an agent step is its updates (or its share of one), acting and a write of frames;
  none where updates are of several kinds.
* Peak TFLOP/s of products: {rates}. Memory {kind.memory / 1e9:g} GB, {kind.bandwidth / 1e9:g} GB/s.
  Source: {kind.source}.
* Commits: {", ".join(commits)}."""


def kernels(row: Mapping[str, Any], number: int) -> str:
    """The kernels of a program that move the most bytes."""
    name = f"{row['device']} {row['preset']} {row['program']}, {words.count('run', row['runs'])}"
    if "failed" in row:
        return f"{name}: {row['failed']}"
    lines = [f"{name}: {row['bytes'] / 1e9:.3f} GB in {row['kernels']:,} kernels"]
    for kernel in row["largest"][:number]:
        moved, memory = (kernel["times"] * kernel[k] / 1e6 for k in ("logical", "memory"))
        lines.append(
            f"  {moved:9.1f} MB ({memory:9.1f} of the memory)  x {kernel['times']:<5} "
            f"{kernel['operation']:20} {kernel['name']}"
        )
    return "\n".join(lines)


def findings(row: Mapping[str, Any]) -> list[str]:
    """One line for each defect of a compiled program."""
    name = f"{row['device']} {row['preset']} {row['program']}, {words.count('run', row['runs'])}"
    if "failed" in row:
        return [f"{name}: does not compile: {row['failed']}"]
    over_runs = row["runs_on_each_device"] if row["batching"] == "map" else 0
    found = [f"copies stored frames: {text}" for text in row["store_copies"]]
    own = collections.Counter(row["own_loops"])
    for loop in row["loops"]:
        length = loop["iterations"]
        if own[length]:
            own[length] -= 1
        elif length > max(SMALL_LOOPS, over_runs):
            found.append(f"loop of {length} iterations: {loop['name']} ({loop['source']})")
    found += [f"collective operation: {text}" for text in row["collectives"]]
    found += [f"grouped convolution: {text}" for text in row["grouped"]]
    goal = temporaries_goal(row)
    if row["temporaries"] > goal:
        found.append(
            f"{row['temporaries'] / 2**20:.0f} MiB of temporaries, goal {goal / 2**20:.0f}"
        )
    filled = sum(
        kernel["times"] * (kernel["memory"] - kernel["logical"])
        for kernel in row["largest"]
        if kernel["memory"] > 3 * kernel["logical"]
    )
    if filled > max(_LEAST_PADDED, PADDED * row["memory_bytes"]):
        found.append(f"layouts fill up {filled / 1e9:.1f} of {row['memory_bytes'] / 1e9:.1f} GB")
    return [f"{name}: {text}" for text in found]


def temporaries_goal(row: Mapping[str, Any]) -> float:
    """Bytes of temporaries that a program may need on each device; see `TEMPORARIES`."""
    runs = row["runs_on_each_device"]
    held = row["activations"]
    if row["least"]:
        held += row["least"]["gradients, written and read"] / 2
        held += row["least"]["frames of the batch, read"]
    factor = TEMPORARIES[devices.parse(row["device"])[1].platform]
    at_once = 1 if row["batching"] == "map" else runs
    return at_once * (factor * held / runs + _SPARE)
