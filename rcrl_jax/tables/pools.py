"""Which runs may be pooled: those whose conditions (`arms.conditions_of`) are equal.

    pool = pools.largest(frame[frame.env_steps == 100_000])
    for line in pool.left_out:               # one line for each set of runs with other conditions
        print(line)
    scores = pools.scores(pool.runs, "rcrl", reference.games())
    first, second = pools.paired_scores(pool.runs, "rcrl", "erainbow_sa", reference.games())

`runs.read` numbers these sets in the column `pool`; every program that averages or compares scores
groups by it.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from rcrl_jax import reference, words
from rcrl_jax.tables import published
from rcrl_jax.tables.runs import COLUMNS


class Pool(NamedTuple):
    """Runs that may be pooled.

    Attributes:
        runs: these runs, in the order given.
        left_out: one line for each set of runs with other conditions.
        others: these sets.
    """

    runs: pd.DataFrame
    left_out: tuple[str, ...] = ()
    others: tuple[pd.DataFrame, ...] = ()


def of_list(frame: pd.DataFrame, listed: pd.Series) -> Pool:
    """The pool with the most runs of a list; it keeps its runs that are not on the list.

    Args:
        frame: any runs of one family.
        listed: which of them are on the list; with none, the largest set is kept.
    """
    if not listed.any():
        return largest(frame)
    kept = largest(frame[listed]).runs.pool.iloc[0]
    others = [own for number, own in frame.groupby("pool", sort=False) if number != kept]
    runs = frame[frame.pool == kept]
    return Pool(runs, tuple(_describe(own, runs) for own in others), tuple(others))


def largest(frame: pd.DataFrame, within: str = "family") -> Pool:
    """Keeps the largest set of runs with equal conditions; one set of each family, or of each arm.

    The budget is a condition, so a table of one budget passes runs of that budget. Sets of a
    published budget come before all others. Of sets of one size, the one with longer runs is kept,
    then the one with the higher algorithm number.

    Args:
        frame: any runs.
        within: `family`, where the scores of arms are compared; `arm`, where each arm stands alone.
    """
    kept, left_out, rest = [], [], []
    for _, whole in frame.groupby(within, sort=False):
        sets = [own for _, own in whole.groupby("pool", sort=False)]
        best, *others = sorted(sets, key=_rank, reverse=True)
        kept += [*best.index]
        left_out += [_describe(own, best) for own in others]
        rest += others
    return Pool(frame[frame.index.isin(kept)], tuple(left_out), tuple(rest))


def largest_of_one_benchmark(frame: pd.DataFrame, what: str) -> Pool:
    """`largest`, for what no page shows benchmark by benchmark.

    Args:
        frame: any runs.
        what: the runs are, for the message.

    Raises:
        ValueError: the runs are of several benchmarks.
    """
    pool = largest(frame)
    if len(families := pool.runs.family.unique()) > 1:
        raise ValueError(f"{what} of {' and '.join(families)}: name one benchmark's folders")
    return pool


def budget(frame: pd.DataFrame, family: str) -> int:
    """The budget of a family's tables, figures and verdicts, in environment steps.

    It is that of the largest set of finished runs with equal conditions; sets of a published budget
    come before all others.
    """
    chosen = largest(frame[(frame.family == family) & frame.score.notna()]).runs
    return published.BUDGETS[family][0] if chosen.empty else int(chosen.env_steps.iloc[0])


def differing(frame: pd.DataFrame) -> list[str]:
    """The names of the conditions in which runs differ."""
    names = frame.columns.difference(COLUMNS, sort=False)
    return [name for name in names if frame[name].nunique(dropna=False) > 1]


def text(value: Any) -> str:
    """The value of a condition in words."""
    return "not stated" if pd.isna(value) else str(value)


def scores(
    frame: pd.DataFrame, arm: str, games: Sequence[str], *, normalised: bool = False
) -> list[np.ndarray]:
    """The final scores of an arm, `[n_g]` each game; n_g can be 0.

    Args:
        frame: of one pool; unfinished runs are left out.
        arm: its label.
        games: in the order wanted.
        normalised: whether scores are comparable between games (`reference.normalised`).
    """
    own = frame[(frame.arm == arm) & frame.score.notna()].sort_values("seed", kind="stable")
    arrays = [own.score[own.game == game].to_numpy(np.float64) for game in games]
    if normalised:
        return [reference.normalised(*one) for one in zip(games, arrays, strict=True)]
    return arrays


def pairs(frame: pd.DataFrame, first: str, second: str) -> pd.DataFrame:
    """The finished runs of two arms whose game, seed and conditions both arms have."""
    own = frame[frame.arm.isin([first, second]) & frame.score.notna()]
    # One agent may have several names, and copies of a run one in each; a run counts once.
    own = own.drop_duplicates(["arm", "game", "seed", "pool"])
    return own[own.groupby(["game", "seed", "pool"]).arm.transform("nunique") == 2]


def paired_scores(
    frame: pd.DataFrame, first: str, second: str, games: Sequence[str], *, normalised: bool = False
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The final scores of two arms on the seeds that both have under the same conditions.

    Returns:
        For each arm one array `[n_g]` for each game. Position i of both is the same seed; n_g is
        equal and can be 0.
    """
    both = pairs(frame, first, second).sort_values("pool", kind="stable")
    return tuple(scores(both, arm, games, normalised=normalised) for arm in (first, second))


def unclear_commits(frame: pd.DataFrame) -> list[str]:
    """A line that names the runs whose code no commit tells, if there are any."""
    unclear = frame[frame.commit.str.contains("dirty|unknown")]
    if unclear.empty:
        return []
    places = ", ".join(f"{run.directory} ({run.commit})" for run in unclear.itertuples())
    return [f"Made at a dirty or unknown commit: {places}."]


def _rank(runs: pd.DataFrame) -> tuple[bool, int, int, int]:
    first = runs.iloc[0]
    is_published = first.env_steps in published.BUDGETS[first.family]
    algorithm = first.algorithm if type(first.algorithm) is int else 0
    return is_published, len(runs), first.env_steps, algorithm


def _describe(runs: pd.DataFrame, kept: pd.DataFrame) -> str:
    """One line on runs that are left out because they differ from those kept."""
    own, others = runs.iloc[0], kept.iloc[0]
    name = differing(pd.concat([runs.iloc[:1], kept.iloc[:1]]))[0]
    return (
        f"{words.count('run', len(runs))} left out: {name} is {text(own[name])}, not "
        f"{text(others[name])} as in the {words.count('run', len(kept))} kept "
        f"(for example {own.directory})"
    )
