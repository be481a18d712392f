"""What one's own runs say, for any number of arms: scores by game, and estimates over the games.

    table = summary.score_table(frame)
    if comparison := summary.compare(frame):
        tables = summary.estimates(comparison), summary.improvements(comparison)

Frames are finished runs of one pool. Estimates are exploratory: nothing is tested.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from rcrl_jax import words
from rcrl_jax.tables import pools, registered, runs, statistics
from rcrl_jax.tables.statistics import Interval, Scores
from rcrl_jax.tables.table import Cell, Column, Row, Table, mean_cell

UNITS = {"atari": "HNS", "dmc": "return / 1000"}
"""Families whose games have a common scale, and what it is called."""
RESAMPLES = 2_000
"""Resamples of intervals that are many, or in a figure."""

_ESTIMATES = {
    "IQM": statistics.interquartile_mean,
    "mean": statistics.mean_of_game_means,
    "optimality gap": statistics.optimality_gap,
}
_OF_A_GAME = {name: _ESTIMATES[name] for name in ("IQM", "mean")}


class Comparison(NamedTuple):
    """Arms with several runs of the same games.

    Attributes:
        scores: arm -> its final scores, `[n_g]` each game; on the common scale where there is one.
        games: in their order in `scores`.
        unit: of the scale; None without one.
        has_intervals: whether there are runs enough for intervals, and none is pre-registered.
        left_out: arms that lack one of the games.
    """

    scores: Mapping[str, Scores]
    games: Sequence[str]
    unit: str | None
    has_intervals: bool
    left_out: Sequence[str]


def score_table(frame: pd.DataFrame) -> Table:
    """Mean, deviation and number of the final scores by arm and game; rows are whichever are more.

    Args:
        frame: runs of one pool; unfinished ones are counted in a note.
    """
    finished = frame[frame.score.notna()]
    games = sorted({*finished.game}, key=runs.game_order)
    names = [*finished.arm.unique()]
    cells = {name: [*map(mean_cell, pools.scores(finished, name, games))] for name in names}
    notes = ["Mean of the final scores ± standard deviation over seeds; in brackets the seeds."]
    for name, arm in frame.groupby("arm", sort=False):
        counts = {
            "unfinished, in the curves alone": int(arm.score.isna().sum()),
            "diverged, counted as random play": int(arm.diverged.sum()),
        }
        texts = [
            f"{words.count('run', number)} {state}" for state, number in counts.items() if number
        ]
        notes += [f"{name}: {', '.join(texts)}."] if texts else []
    if len(names) > len(games):
        rows = [Row(name, cells[name]) for name in names]
        return Table("Scores", "arm", [*map(Column, games)], rows, notes)
    rows = [Row(game, [cells[name][i] for name in names]) for i, game in enumerate(games)]
    return Table("Scores", "game", [*map(Column, names)], rows, notes)


def compare(frame: pd.DataFrame) -> Comparison | None:
    """The arms and games that make the largest grid with several runs everywhere.

    Tried are the games that two arms share, and those that the arms with the most games share.

    Returns:
        None where no two arms have a game with several runs each.
    """
    finished = frame[frame.score.notna()]
    counts = finished.groupby(["arm", "game"], sort=False).size()
    games_of = counts[counts > 1].reset_index().groupby("arm", sort=False).game.agg(set)
    order = sorted(games_of, key=len, reverse=True)
    grids = [one & other for one, other in itertools.combinations(order, 2)]
    grids += [*itertools.accumulate(order, set.intersection)][2:]
    shared = max(
        grids, key=lambda own: len(own) * sum(own <= games for games in order), default=set()
    )
    if not shared:
        return None
    games = sorted(shared, key=runs.game_order)
    names = [name for name in finished.arm.unique() if shared <= games_of.get(name, set())]
    unit = UNITS.get(finished.family.iloc[0])
    scores = {
        name: pools.scores(finished, name, games, normalised=unit is not None) for name in names
    }
    fewest = min(len(game) for arm in scores.values() for game in arm)
    is_open = not registered.holds_any(finished)
    left_out = [name for name in finished.arm.unique() if name not in names]
    return Comparison(
        scores, games, unit, fewest >= statistics.FEWEST_FOR_INTERVAL and is_open, left_out
    )


def estimates(comparison: Comparison) -> Table:
    """One row per arm: aggregates of its scores; without a common scale, those of each game."""
    if comparison.unit is None:
        return _estimates_by_game(comparison)
    rows = []
    for name, scores in comparison.scores.items():
        texts = estimate_texts(_ESTIMATES, scores, comparison.has_intervals)
        rows.append(Row(name, [Cell(texts[estimate]) for estimate in _ESTIMATES]))
    title = f"Over {words.count('game', len(comparison.games))}, in {comparison.unit}"
    notes = [
        *_notes(comparison),
        "IQM: mean of the middle half of all runs. Optimality gap: what runs lack to 1 in the "
        "mean; less is better.",
    ]
    return Table(title, "arm", [*map(Column, _ESTIMATES)], rows, notes)


def _estimates_by_game(comparison: Comparison) -> Table:
    """Two rows per game, of its raw scores; one column per arm."""
    rows = []
    for i, game in enumerate(comparison.games):
        texts = [
            estimate_texts(_OF_A_GAME, [scores[i]], comparison.has_intervals, digits=2)
            for scores in comparison.scores.values()
        ]
        rows += [Row(f"{game}, {name}", [Cell(own[name]) for own in texts]) for name in _OF_A_GAME]
    notes = [
        *_notes(comparison),
        "IQM: mean of the middle half of a game's runs. Scores of different games have no common "
        "scale, so there is no aggregate over games.",
    ]
    return Table("By game, raw scores", "", [*map(Column, comparison.scores)], rows, notes)


def improvements(comparison: Comparison) -> Table:
    """Probability that a run of the row's arm scores higher than a run of the column's."""
    names = [*comparison.scores]
    cells = {(name, name): Cell() for name in names}
    for first, second in itertools.combinations(names, 2):
        found = estimate(
            {"": statistics.probability_of_improvement},
            [comparison.scores[first], comparison.scores[second]],
            comparison.has_intervals,
        )[""]
        mirrored = Interval(1 - found.estimate, 1 - found.high, 1 - found.low)
        for pair, one in (((first, second), found), ((second, first), mirrored)):
            cells[pair] = Cell(_text(one, comparison.has_intervals, digits=2))
    rows = [Row(first, [cells[first, second] for second in names]) for first in names]
    notes = [
        "Probability that a run of the row's arm scores higher than one of the column's, in the "
        "mean over the games.",
    ]
    return Table("Probability of improvement", "arm", [*map(Column, names)], rows, notes)


def estimate_texts(
    estimators: Mapping[str, Callable[..., np.ndarray]],
    scores: Scores,
    has_interval: bool,
    digits: int = 3,
) -> dict[str, str]:
    """Estimates of an arm in words, by name."""
    found = estimate(estimators, [scores], has_interval, 10_000)
    return {name: _text(one, has_interval, digits) for name, one in found.items()}


def estimate(
    estimators: Mapping[str, Callable[..., np.ndarray]],
    arms: Sequence[Scores],
    has_interval: bool,
    resamples: int = RESAMPLES,
) -> dict[str, Interval]:
    """As `statistics.bootstrap_intervals`; without `has_interval` the ends mean nothing."""
    resamples = resamples if has_interval else 1
    rng = np.random.default_rng(0)
    return statistics.bootstrap_intervals(estimators, arms, rng, resamples=resamples)


def _text(one: Interval, has_interval: bool, digits: int) -> str:
    text = f"{one.estimate:.{digits}f}"
    return text + (f" [{one.low:.{digits}f}, {one.high:.{digits}f}]" if has_interval else "")


def _notes(comparison: Comparison) -> list[str]:
    """Which games and arms count, and what intervals are worth."""
    notes = [f"Games that these arms have with several seeds: {', '.join(comparison.games)}."]
    if comparison.left_out:
        notes.append(f"Not here, because they lack one: {', '.join(comparison.left_out)}.")
    if comparison.unit is None:
        notes.append("These games have no reference scores: nothing is normalised.")
    if comparison.has_intervals:
        notes.append("95 % bootstrap intervals, too narrow for few runs. Nothing is tested.")
    else:
        notes.append(
            "No intervals: these runs are pre-registered, or a game has fewer than "
            f"{statistics.FEWEST_FOR_INTERVAL} seeds."
        )
    return notes
