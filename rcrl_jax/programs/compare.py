r"""Compares two arms of your runs on the games that both have, with 95 % intervals.

    python -m benchmarks.compare --results=results/mine --first=rcrl --second=erainbow_sa
    python -m benchmarks.compare --results=results/search --first=small_batch --second=rcrl
    python -m benchmarks.compare --results=runs --first='rcrl(n_step=5)' --second=rcrl
    python -m benchmarks.compare --results=runs --csv=scores.csv

An arm is a preset, or a preset with changed fields; its name is that of your sweep or --arm, else
names these fields. Runs of both arms that share game, seed and conditions form pairs; only pairs
count. Prints a table, with a line for each game and estimates over all of them, and writes it as
`compare.{csv,md,tex,html}`.

Exploratory: nothing is tested, since a test repeated after every pair errs too often. The paper's
claims are judged by `benchmarks.table1` and `benchmarks.claim`.
"""

import pathlib
import shutil
import sys
from typing import TYPE_CHECKING

from absl import flags

from rcrl_jax import files, words
from rcrl_jax.programs import command_line
from rcrl_jax.tables import arms, claims, pools, registered, runs, statistics, summary, table
from rcrl_jax.tables.table import Cell, Column, Row, Table, mean_cell

if TYPE_CHECKING:
    import pandas as pd

flags.DEFINE_list("results", ["results"], "directories of runs, at any depth")
flags.DEFINE_string("first", "rcrl", "an arm")
flags.DEFINE_string("second", "erainbow_sa", "the other arm")
flags.DEFINE_integer(
    "steps", None,
    "budget [environment steps]; without it a published one, or that of most pairs", lower_bound=1,
)  # fmt: skip
flags.DEFINE_string("output", "runs/report", "directory to write to")
flags.DEFINE_string(
    "csv",
    None,
    "a file for the scores of all arms, a row a run; without --first and --second nothing else",
)

_AGGREGATES = {
    "mean": statistics.mean_of_game_means,
    "IQM": statistics.interquartile_mean,
}


def choose(frame: "pd.DataFrame", first: str, second: str) -> pools.Pool:
    """The largest set of pairs under equal conditions; a published budget comes first.

    Raises:
        ValueError: there is none, or there are pairs on several benchmarks.
    """
    for arm in (first, second):
        if not (frame.arm == arm).any():
            there = ", ".join(sorted({*frame.arm})) or "none"
            raise ValueError(f"no finished run of {arm}; the arms there are: {there}")
    paired = pools.pairs(frame, first, second)
    if paired.empty:
        raise ValueError(f"no run of {first} has game, seed and conditions of one of {second}")
    return pools.largest_of_one_benchmark(paired, "pairs")


def is_early_look(pairs: "pd.DataFrame", frame: "pd.DataFrame") -> bool:
    """Whether intervals of `pairs` would judge a pre-registered list before it is finished.

    They would where one of the pairs is listed.

    Args:
        pairs: the runs compared.
        frame: all runs.
    """
    if {*pairs.settings} != {*registered.PRESETS}:
        return False
    listed = registered.LARGER.holds(pairs)
    if not registered.CLAIM.is_finished(frame):
        listed |= registered.CLAIM.holds(pairs)
    return bool(listed.any())


def to_table(
    frame: "pd.DataFrame", first: str, second: str, *, with_intervals: bool = True
) -> Table:
    """The comparison of two arms.

    Args:
        frame: pairs of runs, of one family and under equal conditions.
        first: an arm.
        second: the other one.
        with_intervals: where there are three pairs of each game; False for an early look.
    """
    games = sorted({*frame.game}, key=runs.game_order)
    raw = pools.paired_scores(frame, first, second, games)
    family = frame.family.iloc[0]
    has_scale = family in summary.UNITS
    normalised = pools.paired_scores(frame, first, second, games, normalised=has_scale)
    rows = [
        Row(game, [mean_cell(of_arm[number]) for of_arm in raw])
        for number, game in enumerate(games)
    ]
    fewest = min(map(len, raw[0]))
    has_intervals = with_intervals and fewest >= statistics.FEWEST_FOR_INTERVAL
    unit = summary.UNITS.get(family, "return")
    estimated = [
        summary.estimate_texts(_AGGREGATES, scores, has_intervals) for scores in normalised
    ]
    for name in _AGGREGATES:
        cells = [Cell(of_arm[name]) for of_arm in estimated]
        rows.append(Row(f"{name} {unit}", cells, separated=name == "mean"))
    notes = [
        "Mean of the final scores ± standard deviation over runs; in brackets the number of pairs. "
        f"{unit}: over {words.count('game', len(games))}"
        + (", with 95 % bootstrap intervals." * has_intervals or "."),
        *arms.notes(frame),
    ]
    if not has_scale:
        notes.append("These games have no reference scores: nothing is normalised.")
    if has_intervals:
        evidence = claims.compare(*normalised, with_test=False)
        notes.append(f"{first} against {second}: {claims.describe(evidence, unit)}.")
        notes.append("Intervals of few runs are too narrow, and nothing is tested: exploratory.")
    elif not with_intervals:
        notes.append(
            "No intervals: some of these runs belong to a pre-registered experiment, which is "
            "judged once (docs/preregistration.md)."
        )
    else:
        notes.append(
            f"No intervals: a game has {words.count('pair', fewest)}, fewer than "
            f"{statistics.FEWEST_FOR_INTERVAL}."
        )
    steps = frame.env_steps.iloc[0]
    title = f"{first} and {second} after {steps:,} environment steps"
    return Table(title, "game", [Column(first), Column(second)], rows, notes)


def run(given: flags.FlagValues) -> None:
    """Prints and writes what the flags ask for; what is left out goes to stderr.

    Raises:
        ValueError: there are no such runs, or a flag is wrong.
        OSError: a file cannot be read or written.
    """
    if given.first == given.second:
        raise ValueError(f"--second: {given.second} is the first arm, too")
    compares = not given.csv or given["first"].present or given["second"].present
    # Before the runs are read, which takes seconds.
    if compares:
        files.check_writable(given.output)
    if given.csv:
        files.check_writable(pathlib.Path(given.csv).parent)
    frame, problems = runs.read(*given.results)
    for line in problems:
        print(line, file=sys.stderr)
    frame = frame[frame.score.notna()]
    if given.steps:
        frame = frame[frame.env_steps == given.steps]
    pool = choose(frame, given.first, given.second) if compares else None
    if given.csv:
        files.make_writable(pathlib.Path(given.csv).parent)
        with files.replacing(given.csv) as partial:
            runs.scores(frame).to_csv(partial, index=False)
        print(f"scores of {words.count('run', len(frame))} in {given.csv}")
    if pool is None:
        return
    for line in pool.left_out:
        print(line, file=sys.stderr)
    shown = to_table(
        pool.runs, given.first, given.second, with_intervals=not is_early_look(pool.runs, frame)
    )
    table.write(shown, given.output, "compare")
    print(table.to_text(shown, shutil.get_terminal_size().columns))
    print(f"\nwritten to {given.output}")


if __name__ == "__main__":
    command_line.run(run)
