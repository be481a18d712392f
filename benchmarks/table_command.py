"""What the table commands share: their flags, which runs they show, and their output."""

import collections
import os
import pathlib
import shutil
import sys
import textwrap
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from absl import app, flags
from matplotlib.figure import Figure

from experiments import command_line
from rcrl_jax.report import tables, terminal, verdicts
from rcrl_jax.report.claims import Claim
from rcrl_jax.report.tables import Table
from rcrl_jax.report.verdicts import Verdict
from rcrl_jax.results import pools, store
from rcrl_jax.results.runs import Run

# `--help` lists the flags of the program's own module. Flags defined here belong to the caller's.
flags.disclaim_key_flags()

CONTRADICTED, UNDECIDED = 3, 4
"""Exit codes of --gate."""


class Selection(NamedTuple):
    """The runs of a table.

    Attributes:
        runs: all that were read, whatever their budget and arm.
        shown: those of the table.
        lines: one for each run, directory or set of runs that is left out.
    """

    runs: tuple[Run, ...]
    shown: tuple[Run, ...]
    lines: tuple[str, ...]


def define_flags(*, judges: bool = True) -> None:
    """Defines the flags of all table commands; --mixed and --gate where claims are judged."""
    flags.DEFINE_list("results", ["results"], "directories of runs, at any depth")
    flags.DEFINE_string("output", "runs/report", "directory to write to")
    if judges:
        flags.DEFINE_boolean(
            "mixed", False, "also show runs of other conditions (algorithm, evaluation, ...)"
        )
        flags.DEFINE_boolean(
            "gate", False,
            "exit with 0 if all claims that are judged here are supported, with "
            f"{CONTRADICTED} if one is contradicted, else with {UNDECIDED}; the pre-registered "
            "claim is judged by benchmarks.claim alone",
        )  # fmt: skip


def start(command: Callable[[flags.FlagValues], Sequence[Verdict] | None]) -> None:
    """Parses the flags, runs `command` on them and exits; a mistake is one line and exit code 2.

    Args:
        command: returns the verdicts, or None if it judges nothing.
    """

    def main(argv: list[str]) -> int:
        del argv
        try:
            judged = command(flags.FLAGS)
        except (ValueError, OSError) as error:
            command_line.refuse(str(error))
        return gate(judged) if judged is not None and flags.FLAGS.gate else 0

    app.run(main, flags_parser=command_line.parse)


def check_presets(names: Sequence[str], known: Collection[str]) -> None:
    """Raises ValueError for a name that is no preset, or stands twice."""
    for name in names:
        if name not in known:
            raise ValueError(f"--presets: {name!r} is none of {', '.join(known)}")
    if len(set(names)) < len(names):
        raise ValueError(f"--presets: a name stands twice in {','.join(names)}")


def select(
    results: Sequence[str | os.PathLike],
    family: str,
    arms: Collection[str] | None,
    *,
    budgets: Sequence[int] = (),
    mixed: bool = False,
) -> Selection:
    """Reads all runs and keeps, for each budget, the largest set of equal conditions.

    Args:
        results: directories of runs.
        family: `atari` or `dmc`.
        arms: labels of the arms that the table shows; None for all.
        budgets: in environment steps; empty for any, of which one set is kept.
        mixed: whether runs of all conditions are kept.

    Raises:
        ValueError: a directory does not exist.
    """
    reading = store.read_runs(*results)
    lines = list(reading.problems)
    candidates = [
        run
        for run in reading.runs
        if run.family == family and (not budgets or run.env_steps in budgets)
    ]
    if arms is not None:
        others = collections.Counter(run.arm for run in candidates if run.arm not in arms)
        lines += [f"{arm} is not shown here (runs: {count})" for arm, count in others.items()]
        candidates = [run for run in candidates if run.arm in arms]
    shown: list[Run] = []
    for budget in budgets or [None]:
        own = [run for run in candidates if budget in (None, run.env_steps)]
        pool = pools.of_one_protocol(own, mixed=mixed)
        shown += pool.runs
        lines += [f"{line}; --mixed shows them" for line in pool.left_out]
    return Selection(reading.runs, tuple(shown), tuple(lines))


def judge(
    published: Sequence[Claim],
    selection: Selection,
    columns: Collection[str],
    *,
    env_steps: int,
    mixed: bool,
) -> list[Verdict]:
    """The verdicts on the claims whose arms are both columns of the table."""
    return [
        verdicts.judge(claim._replace(env_steps=env_steps), selection.runs, mixed=mixed)
        for claim in published
        if claim.first in columns and claim.second in columns
    ]


def show(
    table: Table,
    judged: Sequence[Verdict],
    lines: Sequence[str],
    output: str | os.PathLike,
    stem: str,
    figure: Figure | None = None,
) -> None:
    """Prints and writes a table and its verdicts.

    What was left out goes to stderr.

    Args:
        table: the table.
        judged: printed below, and written as `<stem>_verdicts.*`.
        lines: what was left out.
        output: directory to write to.
        stem: name of the files without their suffix.
        figure: the picture `<stem>.png`; None for one of the table.

    Raises:
        OSError: a file cannot be written.
    """
    width = shutil.get_terminal_size().columns
    written = tables.write(table, output, stem, figure)
    if judged:
        written += tables.write(verdicts.to_table(judged), output, f"{stem}_verdicts")
    for line in lines:
        print(line, file=sys.stderr)
    print(terminal.to_text(table, width))
    for verdict in judged:
        text = f"{verdict.sentence} {verdict.published}"
        print("\n" + textwrap.fill(text, width, break_on_hyphens=False))
    print(f"\nwritten: {stem_line(written)}")


def stem_line(written: Sequence[pathlib.Path]) -> str:
    """The files in one line, those of one stem together: `runs/report/table1.{csv,md}`."""
    suffixes: dict[pathlib.Path, list[str]] = {}
    for path in written:
        suffixes.setdefault(path.with_suffix(""), []).append(path.suffix.removeprefix("."))
    return " ".join(
        f"{stem}.{{{','.join(own)}}}" if len(own) > 1 else f"{stem}.{own[0]}"
        for stem, own in suffixes.items()
    )


def gate(judged: Sequence[Verdict]) -> int:
    """The exit code of --gate.

    The pre-registered claim takes no part: `benchmarks.claim` alone decides it.
    """
    states = [verdict.state for verdict in judged if not verdict.claim.decided_by]
    if verdicts.CONTRADICTED in states:
        return CONTRADICTED
    return 0 if states and set(states) == {verdicts.SUPPORTED} else UNDECIDED
