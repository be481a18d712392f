r"""Compiles what a fleet runs for accelerators that are not here, and counts what comes out.

    python -m benchmarks.compiled --devices=h200,v5p --presets=rcrl --runs=1,26,130
    python -m benchmarks.compiled --devices=8xv5e,4xh200 --presets=rcrl --runs=130
    python -m benchmarks.compiled --check

Each compilation is a process of its own. What it counts is written to <output>/<device>.json at
once, so an interrupted command resumes; programs that have changed are compiled again.
Prints and writes a table for each device, and what sets the pace of a fleet on it.

With --check: two runs of every preset on one TPU and one GPU. Prints a line for each finding (a
copy of the stored frames, a loop over rows, too many temporaries, a collective operation, a grouped
convolution, layouts that fill up memory) and exits with 1 if there is one.

`make compilers` installs what is needed.
"""

import hashlib
import importlib.metadata
import itertools
import json
import math
import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from absl import app, flags

from benchmarks.compiled import devices, pace, table
from rcrl_jax import files, words
from rcrl_jax.agents.simple.config import SimpleConfig
from rcrl_jax.agents.slac.config import SlacConfig
from rcrl_jax.config import choices, presets
from rcrl_jax.programs import command_line
from rcrl_jax.training.progress import Progress

_ROOT = pathlib.Path(__file__).parents[2]
_PROGRAMS = ("update", "update_1", "update_2", "act", "write", "embed", "compare")
_LARGEST = 20  # kernels whose bytes are kept, of each program


class Job(NamedTuple):
    """A compilation."""

    device: str
    preset: str
    runs: int
    batching: str
    program: str

    @property
    def key(self) -> str:
        """Its name in the file of its device."""
        return " ".join(str(part) for part in self[1:])


def count(job: Job, known_digest: str | None) -> dict[str, Any] | None:
    """Compiles in this process, whose environment is that of the device, and counts.

    Args:
        job: what to compile.
        known_digest: of the program that was counted before.

    Returns:
        The row of the table; None if the program is still the one with `known_digest`.
    """
    import jax

    from benchmarks.compiled import counting, hlo, programs

    number, kind = devices.parse(job.device)
    config = presets.all_presets()[job.preset]
    absent = devices.describe(job.device)
    fleet = programs.make_fleet(job.preset, job.runs, job.batching, absent)
    lowered = programs.PROGRAMS[job.program](fleet).lower(lowering_platforms=(kind.platform,))
    of_step = {
        "updates_a_step": programs.updates_a_step(fleet),
        "transfers": programs.transfers(fleet),
    }
    digest = hashlib.sha256(f"{lowered.as_text()}{of_step}".encode()).hexdigest()[:16]
    if digest == known_digest:
        return None
    row = {
        **job._asdict(),
        "digest": digest,
        "batching": fleet.batching,
        "runs_on_each_device": fleet.runs_on_each_device,
        **of_step,
        "precision": config.precision,
        "own_loops": programs.own_loops(config, job.program),
    }
    # The first argument of every program is the number of runs; `vmap` does not read it.
    known = {0: fleet.runs_on_each_device} if fleet.batching == "map" else {}
    products = list(counting.products(hlo.module(lowered.as_text("hlo", debug_info=True)), known))
    forward = [p for p in products if "transpose(" not in p.instruction.source]
    activations = sum(p.times * p.instruction.bytes for p in forward)
    row["flops"] = sum(p.flops for p in products)
    row["activations"] = activations
    kind = programs.KINDS.get(job.program)
    row["least"] = None if kind is None else programs.least_bytes(fleet, activations, kind)
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        return {**row, "failed": words.one_line(error)}
    memory, cost = compiled.memory_analysis(), compiled.cost_analysis() or {}
    parsed = hlo.module(compiled.as_text())
    elements = math.prod(fleet.agent.observations.stored.stored_shape)
    slots = programs.store_of(fleet).shape.shape[1]
    counts = counting.count(parsed, known, slots, elements)
    kernels = sorted(counts.kernels, key=lambda k: -k.times * k.traffic.logical)
    of_copies = counting.total(kernels, copies=True)
    of_others = counting.total(kernels, copies=False)
    return row | {
        "arguments": memory.argument_size_in_bytes,
        "temporaries": memory.temp_size_in_bytes,
        "results": memory.output_size_in_bytes - memory.alias_size_in_bytes,
        "kernels": sum(k.times for k in kernels if not k.is_copy),
        "copies": sum(k.times for k in kernels if k.is_copy),
        "bytes": of_others.logical,
        "copied_bytes": of_copies.logical,
        "memory_bytes": of_others.memory + of_copies.memory,
        "compiler": {name: cost.get(name) for name in ("flops", "bytes accessed")},
        "loops": [loop._asdict() for loop in counts.loops],
        "store_copies": counts.store_copies,
        "collectives": counts.collectives,
        "grouped": counts.grouped,
        "largest": [
            {"name": k.name, "operation": k.operation, "times": k.times, **k.traffic._asdict()}
            for k in kernels[:_LARGEST]
        ],
    }


def compile_apart(job: Job, known_digest: str | None) -> dict[str, Any] | None:
    """`count` in a process of its own.

    Raises:
        RuntimeError: it has failed; the message is one line.
    """
    process = subprocess.run(
        [sys.executable, "-m", "benchmarks.compiled", f"--one={json.dumps([job, known_digest])}"],
        cwd=_ROOT,
        env=devices.environment(devices.parse(job.device)[1]),
        capture_output=True,
        text=True,
    )
    if process.returncode:
        lines = process.stderr.strip().splitlines() or [f"exit code {process.returncode}"]
        raise RuntimeError(f"{job.device} {job.key}: {lines[-1]}")
    return json.loads(process.stdout.splitlines()[-1])


def counting_digest() -> str:
    """Digest of what compiles and of the code that counts."""
    compilers = sorted(_ROOT.glob("requirements-*.lock"))
    names = ("__main__", "counting", "devices", "hlo", "programs")
    digest = hashlib.sha256(importlib.metadata.version("jax").encode())
    for path in (*compilers, *(pathlib.Path(__file__).with_name(f"{name}.py") for name in names)):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def compile_all(jobs: Sequence[Job], directory: pathlib.Path) -> dict[str, dict[str, Any]]:
    """Compiles what the files of `directory` do not hold yet.

    Returns:
        For each device the rows of its file, by `Job.key`.
    """
    from rcrl_jax.runs import manifest

    counted_by, commit = counting_digest(), manifest.git_commit()
    rows = {}
    for device in dict.fromkeys(job.device for job in jobs):
        path = directory / f"{device}.json"
        kept = files.read_json(path, lambda found: found["programs"]) if path.exists() else {}
        rows[device] = kept

    with Progress(len(jobs), unit="programs") as bar:
        for job in jobs:
            known = rows[job.device].get(job.key, {})
            digest = known.get("digest") if known.get("counted_by") == counted_by else None
            row = compile_apart(job, digest)
            if row is not None:
                rows[job.device][job.key] = row | {"counted_by": counted_by, "commit": commit}
                _write(directory, job.device, rows[job.device])
            bar.advance()
    return rows


def _write(directory: pathlib.Path, device: str, rows: dict[str, Any]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    kind = devices.parse(device)[1]
    about = {name: getattr(kind, name) for name in ("flops", "memory", "bandwidth", "link")}
    files.write_json_atomically(
        directory / f"{device}.json",
        {"device": {"name": device, **about, "source": kind.source}, "programs": rows},
    )


def _define_flags() -> None:
    """Not called at import: tests import several modules that define flags of the same names."""
    flags.DEFINE_list("devices", None, f"of {', '.join(devices.KINDS)}; 8xv5e: eight of them")
    flags.DEFINE_list("presets", None, "presets; by default rcrl, with --check all")
    flags.DEFINE_list("runs", None, "runs of a fleet; by default 1,26,130, with --check 2")
    flags.DEFINE_list("programs", list(_PROGRAMS), "what to compile")
    flags.DEFINE_enum("batching", "auto", choices.BATCHINGS, "how the fleet computes")
    flags.DEFINE_boolean("check", False, "exit with 1 if a compiled program has a known defect")
    flags.DEFINE_integer("kernels", 0, "print so many kernels of each program, largest first", 0)
    flags.DEFINE_string("output", "results/compiled", "directory of tables and JSON files")
    flags.DEFINE_string("one", None, "used by this program: the compilation of this process")


def read_jobs() -> list[Job]:
    """The compilations that the flags ask for.

    Raises:
        ValueError: a flag is wrong.
        devices.Missing: a compiler is not installed.
    """
    values, check = flags.FLAGS, flags.FLAGS.check
    if values.devices is None:
        values.devices = ["v5e", "h200"] if check else list(devices.KINDS)
    known = presets.all_presets()
    if values.presets is None:
        values.presets = list(known) if check else ["rcrl"]
    if values.runs is None:
        values.runs = ["2"] if check else ["1", "26", "130"]
    for name, allowed in (("presets", known), ("programs", _PROGRAMS)):
        for value in values[name].value:
            if value not in allowed:
                raise ValueError(f"--{name}: {value!r} is none of {', '.join(allowed)}")
    for device in values.devices:
        devices.environment(devices.parse(device)[1])
    return [
        Job(device, preset, runs, values.batching, program)
        for device, preset, runs, program in itertools.product(
            values.devices,
            values.presets,
            command_line.read_numbers("runs", 10_000),
            values.programs,
        )
        if _exists(known[preset], program)
    ]


def _read_one(text: str) -> tuple[Job, str | None]:
    """What `compile_apart` asks this process for.

    Raises:
        ValueError: `text` is no such request.
    """
    try:
        parts, digest = json.loads(text)
        job = Job(*parts)
        devices.parse(job.device)
        jobs_of = presets.all_presets(), _PROGRAMS, choices.BATCHINGS
        for value, allowed in zip((job.preset, job.program, job.batching), jobs_of, strict=True):
            if value not in allowed:
                raise ValueError(value)
        if type(job.runs) is not int or job.runs < 1:
            raise ValueError(job.runs)
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError("--one: is for this program's own processes; leave it out") from error
    return job, digest


def _exists(config: presets.Config, program: str) -> bool:
    """Whether an agent has a program on its devices."""
    if program == "write":  # states are stored on the host
        return config.observation != "state"
    of_several_kinds = {"update_1": SimpleConfig | SlacConfig, "update_2": SimpleConfig}
    return isinstance(config, of_several_kinds.get(program, object))


def main(argv: list[str]) -> int:
    """Compiles, prints and writes."""
    del argv
    values = flags.FLAGS
    try:
        if values.one:
            print(json.dumps(files.to_json_value(count(*_read_one(values.one)))))
            return 0
        jobs = read_jobs()
        directory = pathlib.Path(values.output)
        files.check_writable(directory)
        rows = compile_all(jobs, directory)
    except (ValueError, OSError, RuntimeError) as error:
        command_line.refuse(str(error))
    own = [rows[job.device][job.key] for job in jobs]
    if values.kernels:
        for row in own:
            print(table.kernels(row, values.kernels))
    if values.check:
        findings = [line for row in own for line in table.findings(row)]
        print("\n".join(findings) or f"{len(own)} programs, no finding")
        return 1 if findings else 0
    for device, programs in rows.items():
        counted = list(programs.values())
        parts = [table.table(device, counted), *pace.tables(device, counted)]
        text = "\n\n".join([*parts, *pace.full_runs(device, counted)])
        print(text)
        with files.replacing(directory / f"{device}.md") as page:
            page.write_text(text + "\n")
    print(f"written to {directory}{os.sep}")
    return 0


if __name__ == "__main__":
    _define_flags()
    app.run(main, flags_parser=command_line.parse)
