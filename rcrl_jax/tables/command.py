"""The paper's tables as programs: their flags, which runs they show, and their output.

`PAPER` holds what differs between `benchmarks.table1`, `table2` and `figure_dmc`. The HTML page
shows the same tables.
"""

import functools
import os
import pathlib
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import pandas as pd
from absl import flags
from matplotlib.figure import Figure

from rcrl_jax import files
from rcrl_jax.config import fields
from rcrl_jax.config import presets as known
from rcrl_jax.programs import command_line
from rcrl_jax.tables import arms, claims, control_figure, pools, runs, scores, table
from rcrl_jax.tables.claims import Claim, Verdict
from rcrl_jax.tables.table import Table

# `--help` lists the flags of the program's own module. Flags defined here count as the caller's.
flags.disclaim_key_flags()


class Kind(NamedTuple):
    """One of the paper's tables.

    Attributes:
        family: `atari` or `dmc`.
        claims: the paper's claims that belong to it.
        presets: those whose runs it can show.
        make: makes the table from the chosen runs and their budgets; Table 1 also takes `others`.
        draw: a figure of the same runs, up to the largest budget; it can show curves of
            unfinished runs.
        budgets: environment steps, where the table has several.
        within: which runs must have equal conditions, as in `pools.largest`. Systems of DMControl
            differ in how they are measured, so each of these arms has its own conditions.
        games: those of the table; empty for all of the family.
    """

    family: str
    claims: Sequence[Claim]
    presets: Mapping[str, object]
    make: Callable[..., Table]
    draw: Callable[[pd.DataFrame, int], Figure] | None = None
    budgets: tuple[int, ...] = ()
    within: str = "family"
    games: tuple[str, ...] = ()


PAPER = {
    "table1": Kind(
        "atari",
        claims.ATARI_CLAIMS,
        known.atari_presets(),
        lambda frame, budgets, **others: scores.table1(frame, env_steps=budgets[0], **others),
    ),
    "table2": Kind(
        "atari",
        claims.BUDGET_CLAIMS,
        scores.BUDGET_SYSTEMS,
        scores.table2,
        budgets=(100_000, 1_500_000),
        games=claims.games(claims.BUDGET_CLAIMS[0]),
    ),
    "figure_dmc": Kind(
        "dmc",
        claims.DMC_CLAIMS,
        known.control_presets(),
        lambda frame, _: scores.control_table(frame),
        draw=control_figure.draw,
        within="arm",
    ),
}
"""Name of the program and of its files -> what it shows."""


class Shown(NamedTuple):
    """One of the paper's tables with our runs.

    Attributes:
        table: the table.
        judged: verdicts on its claims, after the largest budget.
        runs: those of the table.
        drawn: runs of its figure, with unfinished runs of arms that have no finished run.
        budgets: of these runs, in environment steps.
        left_out: one line for each set of runs that is left out, with the flag that shows it.
    """

    table: Table
    judged: Sequence[Verdict]
    runs: pd.DataFrame
    drawn: pd.DataFrame
    budgets: Sequence[int]
    left_out: tuple[str, ...]


def fill(
    kind: Kind,
    frame: pd.DataFrame,
    *,
    presets: Sequence[str] = (),
    budgets: Sequence[int] = (),
) -> Shown:
    """Makes a table and judges its claims.

    Args:
        kind: a value of `PAPER`.
        frame: any runs; for each budget the largest set of finished ones under equal conditions is
            shown. Figures alone also show unfinished runs, of arms that have no finished run.
        presets: those that are shown, whatever fields a run changes; empty for all. Claims that
            compare two of them are judged.
        budgets: in environment steps; empty for those of the table, or of `pools.budget`. Where
            each arm has its own conditions, each then has its own budget, and a claim is judged at
            the budget of its arms.
    """
    own = frame[frame.family == kind.family]
    if kind.games:
        own = own[own.game.isin(kind.games)]
    finished = own[own.score.notna()]
    is_free = not budgets and kind.within == "arm"
    budgets = budgets or kind.budgets or (_usual_budget(kind, finished),)
    is_wanted = finished.settings.map(arms.preset_of).isin(presets or kind.presets)
    wanted = finished[is_wanted]
    sets = [wanted] if is_free else [wanted[wanted.env_steps == steps] for steps in budgets]
    found = [pools.largest(runs_of, kind.within) for runs_of in sets]
    shown = drawn = pd.concat([pool.runs for pool in found])
    lines = _other_presets(finished[~is_wanted])
    if not is_free:
        lines += _other_budgets(wanted, budgets)
    there = {arms.preset_of(settings) for runs_of in sets for settings in runs_of.settings}
    has_steps = "" if is_free else " has these steps"
    lines += [f"no finished run of {name}{has_steps}" for name in presets if name not in there]
    lines += [line for pool in found for line in pool.left_out]
    if kind.draw:
        begun = own[own.score.isna() & ~own.diverged]
        begun = begun[begun.settings.map(arms.preset_of).isin(presets or kind.presets)]
        is_new = ~begun.arm.isin(shown.arm) & (begun.evaluations.map(len) > 0)
        so_far = pools.largest(begun[is_new], kind.within).runs
        drawn = pd.concat([shown, so_far])
        lines += _unfinished(begun, so_far)
    judged = [
        claims.judge(claim._replace(env_steps=budgets[-1]), frame)
        for claim in kind.claims
        if not presets or {claim.first, claim.second} <= {*presets}
    ]
    return Shown(kind.make(shown, budgets), judged, shown, drawn, budgets, tuple(lines))


def _usual_budget(kind: Kind, finished: pd.DataFrame) -> int:
    """The budget of the runs; where each arm has its own conditions, of the arms in claims."""
    compared = {preset for claim in kind.claims for preset in (claim.first, claim.second)}
    is_compared = finished.settings.map(arms.preset_of).isin(compared)
    of_arms = kind.within == "arm" and is_compared.any()
    return pools.budget(finished[is_compared] if of_arms else finished, kind.family)


def _other_presets(others: pd.DataFrame) -> list[str]:
    counts = others.arm.value_counts(sort=False)
    texts = ", ".join(f"{arm} ({count})" for arm, count in counts.items())
    return [f"not shown here, runs of {texts}"] if texts else []


def _other_budgets(wanted: pd.DataFrame, budgets: Sequence[int]) -> list[str]:
    """A line on the runs that have none of these budgets, with the flag that shows most of them."""
    counts = wanted.env_steps[~wanted.env_steps.isin(budgets)].value_counts().sort_index()
    if counts.empty:
        return []
    texts = ", ".join(f"{count} of {steps:,}" for steps, count in counts.items())
    most = counts.idxmax()
    shows = [most, *budgets[1:]] if most < budgets[0] else [*budgets[:-1], most]
    flag = f"--steps={','.join(map(str, shows))}"
    return [f"runs of other budgets left out, {texts} steps; for example {flag} shows them"]


def _unfinished(begun: pd.DataFrame, drawn: pd.DataFrame) -> list[str]:
    where = {True: "only the figure shows it", False: "it is left out"}
    return [
        f"{run.directory} is not finished: {where[run.Index in drawn.index]}"
        for run in begun.itertuples()
    ]


def run(
    name: str,
    results: Sequence[str | os.PathLike],
    output: str | os.PathLike,
    *,
    presets: Sequence[str] = (),
    budgets: Sequence[int] = (),
    others: Sequence[str | os.PathLike] = (),
) -> None:
    """Prints and writes one of `PAPER`; what is left out goes to stderr.

    Args:
        name: of the program and of its files.
        results: directories of runs.
        output: directory to write to.
        presets: as in `fill`.
        budgets: as in `fill`.
        others: files of scores beside the runs, as `scores.read_others` takes them; Table 1 alone.

    Raises:
        ValueError: a directory does not exist, a preset is unknown or stands twice, or a file of
            scores is wrong.
        OSError: a file cannot be read or written.
    """
    kind = PAPER[name]
    for preset in presets:
        if preset not in kind.presets:
            raise ValueError(f"--presets: {preset!r} is none of {', '.join(kind.presets)}")
        if presets.count(preset) > 1:
            raise ValueError(f"--presets: {preset} stands twice")
    if others:
        kind = kind._replace(make=functools.partial(kind.make, others=scores.read_others(others)))
    files.check_writable(output)  # before the runs are read, which takes seconds
    frame, problems = runs.read(*results, unfinished=kind.draw is not None)
    if frame.score.isna().all():
        print(f"no finished run below {', '.join(map(str, results))}", file=sys.stderr)
    shown = fill(kind, frame, presets=presets, budgets=budgets)
    table.write(shown.table, output, name)
    if kind.draw:
        path = pathlib.Path(output) / f"{name}.png"
        with files.replacing(path) as partial:
            kind.draw(shown.drawn, shown.budgets[-1]).savefig(partial, format="png", dpi=200)
    if shown.judged:
        table.write(claims.to_table(shown.judged), output, f"{name}_verdicts")
    for line in (*problems, *shown.left_out):
        print(line, file=sys.stderr)
    width = shutil.get_terminal_size().columns
    print(table.to_text(shown.table, width))
    for verdict in shown.judged:
        print("\n" + textwrap.fill(verdict.text, width, break_on_hyphens=False))
    print(f"\nwritten to {output}")


def start(name: str) -> None:
    """Runs the program of one of `PAPER`."""
    flags.DEFINE_list("results", ["results"], "directories of runs, at any depth")
    flags.DEFINE_string("output", "runs/report", "directory to write to")
    number = max(len(PAPER[name].budgets), 1)
    whose = "most runs" if PAPER[name].within == "family" else "most runs of each arm"
    usual = ",".join(map(str, PAPER[name].budgets)) or f"a published one, or that of {whose}"
    noun = "budget" if number == 1 else f"{number} budgets"
    flags.DEFINE_list("steps", [], f"{noun} of our runs [environment steps]; without it {usual}")
    flags.DEFINE_list("presets", [], "our systems; without it all that this table has")
    if name == "table1":
        flags.DEFINE_list(
            "scores", [],
            "CSV files with columns game, seed, score: agents of yours, named as their files",
        )  # fmt: skip

    def command(given: flags.FlagValues) -> None:
        run(
            name, given.results, given.output, presets=given.presets,
            budgets=_budgets(given.steps, number),
            others=given.scores if name == "table1" else (),
        )  # fmt: skip

    command_line.run(command)


def _budgets(texts: Sequence[str], number: int) -> list[int]:
    budgets = command_line.read_numbers("steps", fields.LARGEST_INT)
    if texts and (len(budgets) != number or sorted({*budgets}) != budgets):
        raise ValueError(
            f"--steps: {','.join(texts)!r} is not {number} rising numbers of environment steps"
        )
    return budgets
