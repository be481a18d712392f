"""What the table commands share: their flags, which runs they show, and their output."""

import os
import pathlib
import shutil
import sys
import textwrap
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import pandas as pd
from absl import app, flags

from benchmarks.tables import claims, pools, table, verdicts
from benchmarks.tables.claims import Claim
from benchmarks.tables.table import Table
from benchmarks.tables.verdicts import Verdict
from experiments import command_line
from rcrl_jax import files

# `--help` lists the flags of the program's own module. Flags defined here belong to the caller's.
flags.disclaim_key_flags()

CONTRADICTED, UNDECIDED = 3, 4
"""Exit codes of --gate."""


class Selection(NamedTuple):
    """The runs of a table.

    Attributes:
        shown: those of the table.
        lines: one for each arm or set of runs that is left out.
    """

    shown: pd.DataFrame
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
    frame: pd.DataFrame,
    family: str,
    budgets: Sequence[int],
    arms: Sequence[str] = (),
    *,
    mixed: bool = False,
) -> Selection:
    """Keeps, for each budget, the largest set of finished runs under equal conditions.

    Args:
        frame: any runs.
        family: `atari` or `dmc`.
        budgets: in environment steps.
        arms: labels of the arms that the table shows; empty for all.
        mixed: whether runs of all conditions are kept.
    """
    own = frame[(frame.family == family) & frame.score.notna()]
    lines = []
    if arms:
        others = own.arm[~own.arm.isin(arms)].value_counts(sort=False)
        lines += [f"{arm} is not shown here (runs: {count})" for arm, count in others.items()]
        own = own[own.arm.isin(arms)]
    others = own.env_steps[~own.env_steps.isin(budgets)].value_counts().sort_index()
    if len(others):
        counts = ", ".join(f"{count} of {steps:,}" for steps, count in others.items())
        lines.append(f"runs of other budgets left out: {counts} steps; --steps shows them")
    shown = [
        pools.largest(own[own.env_steps == budget], mixed=mixed)
        for budget in dict.fromkeys(budgets)
    ]
    lines += [f"{line}; --mixed shows them" for pool in shown for line in pool.left_out]
    return Selection(pd.concat([pool.runs for pool in shown]), tuple(lines))


def budget(frame: pd.DataFrame, family: str) -> int:
    """The budget that a family's table and claims are of.

    The published one if a finished run has it, else that of the largest set of equal conditions.
    """
    published = claims.BUDGET[family]
    own = frame[(frame.family == family) & frame.score.notna()]
    if own.empty or (own.env_steps == published).any():
        return published
    return int(pools.largest(own).runs.env_steps.iloc[0])


def judge(
    judged: Sequence[Claim],
    frame: pd.DataFrame,
    presets: Collection[str] = (),
    *,
    env_steps: int,
    mixed: bool = False,
) -> list[Verdict]:
    """The verdicts on claims after a budget; of chosen presets, those that compare two of them."""
    return [
        verdicts.judge(claim._replace(env_steps=env_steps), frame, mixed=mixed)
        for claim in judged
        if not presets or {claim.first, claim.second} <= set(presets)
    ]


def show(
    shown: Table,
    judged: Sequence[Verdict],
    lines: Sequence[str],
    output: str | os.PathLike,
    stem: str,
) -> list[pathlib.Path]:
    """Prints and writes a table and its verdicts; returns the files.

    What was left out goes to stderr.

    Args:
        shown: the table.
        judged: printed below, and written as `<stem>_verdicts.*`.
        lines: what was left out.
        output: directory to write to.
        stem: name of the files without their suffix.

    Raises:
        OSError: a file cannot be written.
    """
    width = shutil.get_terminal_size().columns
    written = table.write(shown, output, stem)
    if judged:
        written += table.write(verdicts.to_table(judged), output, f"{stem}_verdicts")
    for line in lines:
        print(line, file=sys.stderr)
    print(table.to_text(shown, width))
    for verdict in judged:
        text = f"{verdict.sentence} {claims.published(verdict.claim)}"
        print("\n" + textwrap.fill(text, width, break_on_hyphens=False))
    return written


def write_page(path: pathlib.Path, mark: str, rest: str) -> None:
    """Writes a page that begins with `mark`; replaces its earlier version and no other file.

    Raises:
        ValueError: the file there does not begin with `mark`.
        OSError: it cannot be read or written.
    """
    if path.exists() and not path.read_text(encoding="utf-8").startswith(mark):
        raise ValueError(f"{path} was not written by this program; move it away")
    with files.replacing(path) as partial:
        partial.write_text(mark + rest, encoding="utf-8")


def stem_line(written: Sequence[pathlib.Path]) -> str:
    """The files in one line, those of one stem together: `runs/report/table1.{csv,md}`."""
    suffixes: dict[pathlib.Path, list[str]] = {}
    for path in written:
        suffixes.setdefault(path.with_suffix(""), []).append(path.suffix.removeprefix("."))
    return "written: " + " ".join(
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
