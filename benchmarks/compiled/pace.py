"""What sets the pace of a fleet: the host's thread, the emulators, the transfers or the device."""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.compiled import devices, table
from rcrl_jax.config.presets import ATARI_PRESETS, ATARI_WORLD_MODEL_PRESETS
from rcrl_jax.programs import markdown

_HOST = pathlib.Path(__file__).parents[2] / "results" / "host"
_CORES = (4, 16, 64)
_COLUMN_RUNS, _COLUMN_STEPS = 26 * 5, 100_000


class StepTime(NamedTuple):
    """Milliseconds of the parts of an agent step of a whole fleet."""

    thread: float
    emulators: float
    transfers: float
    device: float

    @property
    def least(self) -> float:
        """The longest chain: emulators wait for the thread, which waits for the emulators."""
        return max(self.thread + self.emulators, self.transfers, self.device)

    @property
    def pace(self) -> str:
        """The part that sets the pace."""
        if self.least == self.device:
            return "device"
        if self.least == self.transfers:
            return "transfers"
        return "host's thread" if self.thread >= self.emulators else "emulators"


def step_of(
    host: Mapping[str, float], cores: int, runs: int, moved: float, device_s: float, link: float
) -> StepTime:
    """A step from its parts.

    Args:
        host: milliseconds of CPU of the loop's `thread` and of the whole `process`.
        cores: of the host.
        runs: R; each has one emulator, which runs on one core.
        moved: bytes between the host and each device.
        device_s: seconds of the device.
        link: bytes/s between the host and each device.
    """
    emulators = (host["process"] - host["thread"]) / min(cores, runs)
    return StepTime(host["thread"], emulators, 1e3 * moved / link, 1e3 * device_s)


def tables(device: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The pace on a device, and the time of a column of the Atari table; none without figures."""
    measured = _read_host()
    if measured is None:
        return []
    processor, preset, fleets = measured
    kind = devices.parse(device)[1]
    cells, columns = [], []
    for row in rows:
        if row["program"] != "update" or row["preset"] not in ATARI_PRESETS or "failed" in row:
            continue
        bound = table.step_bound_s(rows, row)
        if bound is None or row["runs"] not in fleets:
            continue
        moved, runs = sum(row["transfers"].values()), row["runs"]
        fits = table.needed(row) <= kind.memory
        name = row["preset"] if fits else f"{row['preset']}, does not fit in memory"
        for cores in _CORES:
            step = step_of(fleets[runs], cores, runs, moved, bound, kind.link)
            cells.append([
                name, str(runs), str(cores),
                *(f"{value:.3f}" for value in (*step, step.least)),
                f"{1e3 * runs / step.least:,.0f}", step.pace,
            ])  # fmt: skip
            if runs == _COLUMN_RUNS:
                hours = step.least * _COLUMN_STEPS / 3.6e6
                alone = bound * _COLUMN_STEPS / 3600
                columns.append(
                    f"* {name}, {cores} cores: {hours:.2f} h; the device's bound alone "
                    f"{alone:.2f} h; sets the pace: {step.pace}"
                )
    if not cells:
        return []
    head = [
        "preset", "runs", "host cores", "thread ms", "emulators ms", "transfers ms", "device ms",
        "step ms", "agent steps/s", "sets the pace",
    ]  # fmt: skip
    texts = [
        f"## What sets the pace on {device}\n",
        markdown.table(head, cells, numbers=True),
        f"""
* **thread**, **emulators**: CPU time of `{preset}`, in all rows, measured by `benchmarks.host` with
  emulators on {processor}; that of the emulators is divided by the cores, or by the runs where
  there are fewer.
* **transfers**: a bound, bytes of a step by the link's {kind.link / 1e9:g} GB/s one way.
* **device**: a bound, see above. **step**: an estimate, the largest of thread plus emulators
  (which wait for each other), transfers, and device.""",
    ]
    if columns:
        texts += [
            f"\n## One column of the Atari table on {device}\n\n26 games, 5 seeds, "
            f"{_COLUMN_STEPS:,} agent steps each; estimated, without evaluations:\n",
            *columns,
        ]
    return ["\n".join(texts)]


def full_runs(device: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What a full run of SimPLe costs on a device; none where a kind of update is missing."""
    from benchmarks.compiled.programs import KINDS  # late: these import JAX
    from rcrl_jax.agents.simple.settings import Rounds

    compiled = {
        row["program"]: row for row in rows if row["preset"] == "simple" and row["runs"] == 1
    }
    config = ATARI_WORLD_MODEL_PRESETS["simple"]
    counts = Rounds(config).counts(0, config.total_steps)
    if not all("memory_bytes" in compiled.get(program, {}) for program in KINDS):
        return []
    cells, flops, seconds = [], 0.0, 0.0
    for program, kind in KINDS.items():
        number = counts[kind]
        bound = table.bound_s(compiled[program])
        flops += number * compiled[program]["flops"]
        seconds += number * bound
        cells.append([
            f"simple {program}", f"{number:,}", f"{compiled[program]['flops'] / 1e9:,.1f}",
            f"{1e3 * bound:.3f}", f"{number * bound / 60:.2f}",
        ])  # fmt: skip
    head = ["program", "in a full run", "GFLOP", "bound ms", "bound minutes"]
    return [
        f"## A full run of SimPLe on {device}\n\nThe deterministic model, one game, alone: "
        f"{flops / 1e15:.1f} PFLOP, at least {seconds / 60:.1f} minutes; a bound, without acting "
        f"and evaluations. `update` is of the model, `update_1` of the policy in the real game, "
        f"`update_2` of the policy in the model.",
        markdown.table(head, cells, numbers=True),
    ]


def _read_host() -> tuple[str, str, dict[int, Mapping[str, float]]] | None:
    """The first file in `results/host`: processor, preset, and number of runs -> times of a step.

    The times are with emulators, on the largest number of cores.
    """
    path = next(iter(sorted(_HOST.glob("*.json"))), None)
    if path is None:
        return None
    found = json.loads(path.read_text())
    fleets = {
        fleet["runs"]: fleet["with"][max(fleet["with"], key=int)] for fleet in found["fleets"]
    }
    return found["processor"], found["preset"], fleets
