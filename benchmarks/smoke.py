"""Takes every table command from nothing to the finished page, on short runs of its own.

Called by `python -m benchmarks.report --smoke`. The sweep trains two presets on two games with two
seeds; the representation experiment trains a third seed, because its figure needs its recordings.
"""

import csv
import pathlib
import subprocess
import sys
import urllib.parse
from typing import NamedTuple

from benchmarks.tables import runs, table

PRESETS = ("erainbow_sa", "rcrl")
GAMES = ("Alien", "Asterix")
"""Games without a fire button to start them, so that episodes of an untrained agent end."""
SEEDS = 2
STEPS = 1_700
"""Agent steps; the presets learn from step 1,600 on."""


class _Step(NamedTuple):
    """One command: module, arguments, and the files that it writes."""

    module: str
    arguments: tuple[str, ...]
    files: tuple[pathlib.Path, ...] = ()


def run(directory: pathlib.Path) -> int:
    """Carries out all commands; returns the exit code, 0 if every file contains the runs.

    Args:
        directory: empty, or missing.

    Raises:
        ValueError: the directory is not empty.
    """
    if directory.exists() and any(directory.iterdir()):
        raise ValueError(f"--workdir: {directory} is not empty")
    for step in steps(directory):
        command = ["-m", step.module, *step.arguments]
        print(f"python {' '.join(command)}", file=sys.stderr, flush=True)
        code = subprocess.run([sys.executable, *command]).returncode
        missing = [str(path) for path in step.files if not path.is_file()]
        if code or missing:
            print(f"failed: exit code {code}; missing: {missing or 'nothing'}", file=sys.stderr)
            return 1
    lacking = check(directory)
    for line in lacking:
        print(line, file=sys.stderr)
    print(f"{directory}: {f'{len(lacking)} things are missing' if lacking else 'complete'}")
    return 1 if lacking else 0


def steps(directory: pathlib.Path) -> list[_Step]:
    """The commands in their order."""
    results, recorded, output = (directory / name for name in ("results", "recorded", "report"))
    training = (f"--steps={STEPS}", "--eval_episodes=2")
    reading = (f"--results={results},{recorded}",)
    writing = (*reading, f"--output={output}")

    def written(stem: str) -> tuple[pathlib.Path, ...]:
        return tuple(output / f"{stem}.{suffix}" for suffix in table.FORMATS)

    return [
        _Step(
            "experiments.sweep",
            (
                f"--presets={','.join(PRESETS)}",
                f"--games={','.join(GAMES)}",
                f"--seeds=0:{SEEDS}",
                f"--max_runs_per_fleet={len(GAMES) * SEEDS}",
                f"--results={results}",
                f"--workdir={directory / 'work'}",
                *training,
            ),
        ),
        _Step(
            "experiments.representation",
            (
                f"--presets={','.join(PRESETS)}",
                f"--game={GAMES[0]}",
                f"--seeds={SEEDS}",
                f"--workdir={recorded}",
                "--snapshot_period=850",
                "--pairs=16",
                "--probe_steps=40",
                *training,
            ),
        ),
        _Step("benchmarks.table1", (*writing, f"--steps={STEPS}"), written("table1")),
        _Step("benchmarks.table2", (*writing, f"--steps={STEPS},{2 * STEPS}"), written("table2")),
        _Step("benchmarks.figure_dmc", writing, written("figure_dmc")),
        _Step("benchmarks.figure_similarity", writing, written(f"figure_similarity_{GAMES[0]}")),
        _Step(
            "benchmarks.report",
            (*reading, f"--output={directory / 'report.html'}"),
            (directory / "report.html",),
        ),
    ]


def check(directory: pathlib.Path) -> list[str]:
    """One line for each run or score that is missing in what the commands wrote."""
    lacking = []
    frame = runs.read(directory / "results", directory / "recorded").frame
    expected = len(PRESETS) * (len(GAMES) * SEEDS + 1)
    if len(frame) != expected:
        lacking.append(f"{len(frame)} of {expected} runs are finished")
    page = (directory / "report.html").read_text(encoding="utf-8")
    for run in frame.directory:
        if f'href="{urllib.parse.quote(str(run.relative_to(directory)))}/"' not in page:
            lacking.append(f"report.html lacks {run}")
    with open(directory / "report" / "table1.csv", newline="", encoding="utf-8") as file:
        rows = {row["game"]: row for row in csv.DictReader(file)}
    for game in GAMES:
        for preset in PRESETS:
            seeds = ((frame.game == game) & (frame.arm == preset)).sum()
            if rows[game].get(f"{preset} ours, seeds") != str(seeds):
                lacking.append(f"table1.csv lacks runs of {preset} on {game}")
    return lacking
