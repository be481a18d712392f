"""Compares two arms of runs over several games: a stratified rank test and bootstrap intervals.

The scores of an arm are a list with one array per game. Games are strata: runs are ranked, permuted
and resampled within their game only, and the two arms may have different numbers of runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy import special, stats

Scores = Sequence[np.ndarray]
"""One array per game, `[..., n_g]`: n_g runs on the last axis, data sets on the leading ones."""

_CHUNK = 1 << 22
"""Permuted statistics in memory at once, over all data sets."""


class RankTest(NamedTuple):
    """Outcome of `stratified_rank_test`; every field has the shape of the leading axes.

    Attributes:
        statistic: sum over games of (the first arm's rank sum - its mean under the null
            hypothesis) / (n_g + m_g + 1). Positive if the first arm scores higher.
        z: the statistic in standard deviations of its null distribution.
        p_normal: two-sided p value of `z` by the normal approximation, a check.
        p_value: two-sided p value by permutation, which decides the test.
    """

    statistic: np.ndarray
    z: np.ndarray
    p_normal: np.ndarray
    p_value: np.ndarray


class Interval(NamedTuple):
    """An estimate and the ends of its interval."""

    estimate: float
    low: float
    high: float


def stratified_rank_test(
    first: Scores, second: Scores, rng: np.random.Generator, *, permutations: int = 100_000
) -> RankTest:
    """Tests whether two arms score alike in every game: van Elteren's test, by permutation.

    The Wilcoxon rank sums of the games are added with weights 1 / (n_g + m_g + 1), which are
    locally most powerful when the effect is the same in every game (van Elteren, 1960). Equal
    scores share their mean rank. Scores of different games are never compared, so they need no
    normalisation.

    The deciding p value comes from permutation: the labels of the arms are permuted within each
    game. If b permuted statistics lie at least as far from their mean as the observed one, then
    p = (b + 1) / (permutations + 1). Its level holds exactly for any number of runs, with ties, and
    for any distribution of scores. The normal approximation, with the variance corrected for ties,
    is returned as a check.

    Args:
        first: scores of one arm, `[..., n_g]` each game.
        second: scores of the other arm, `[..., m_g]` each game, same games and leading axes.
        rng: draws the permutations; all data sets of the leading axes share them.
        permutations: number of permutations.

    Returns:
        One test for each data set of the leading axes.

    Raises:
        ValueError: the arms differ in games, a game has no run of an arm, or a score is not finite.
    """
    first, second = _checked(first, second)
    ranks, members, variance = [], [], 0.0
    for x, y in zip(first, second, strict=True):
        n, m = x.shape[-1], y.shape[-1]
        total = n + m
        rank = stats.rankdata(np.concatenate([x, y], axis=-1), axis=-1)
        rank = (rank - (total + 1) / 2) / (total + 1)
        variance = variance + n * m / (total * (total - 1)) * np.sum(rank**2, axis=-1)
        labels = np.broadcast_to(np.arange(total) < n, (permutations, total))
        ranks.append(rank)
        members.append(rng.permuted(labels, axis=1))
    statistic = np.sum(
        [r[..., : x.shape[-1]].sum(-1) for r, x in zip(ranks, first, strict=True)], 0
    )
    # Where all scores of a game are equal, the statistic and its variance are zero: no evidence.
    z = statistic / np.sqrt(np.where(variance > 0, variance, 1.0))
    as_far = _count_as_far(
        np.concatenate(ranks, axis=-1), np.concatenate(members, axis=1), statistic
    )
    return RankTest(statistic, z, 2 * special.ndtr(-np.abs(z)), (as_far + 1) / (permutations + 1))


def interquartile_mean(scores: Scores) -> np.ndarray:
    """Mean of the middle half of all runs of all games.

    Args:
        scores: comparable between games, for example human-normalised; `[..., n_g]` each game.

    Returns:
        `[...]`, the mean without the floor(N / 4) lowest and highest of N runs.
    """
    pooled = np.sort(np.concatenate(scores, axis=-1), axis=-1)
    runs = pooled.shape[-1]
    return pooled[..., runs // 4 : runs - runs // 4].mean(axis=-1)


def iqm_difference(first: Scores, second: Scores) -> np.ndarray:
    """Interquartile mean of the first arm minus that of the second, `[...]`."""
    return interquartile_mean(first) - interquartile_mean(second)


def probability_of_improvement(first: Scores, second: Scores) -> np.ndarray:
    """Mean over games of P(X > Y) + P(X = Y) / 2, for a run X of the first arm and Y of the second.

    Args:
        first: `[..., n_g]` each game.
        second: `[..., m_g]` each game, same games and leading axes.

    Returns:
        `[...]`, 0.5 where neither arm is better.
    """
    games = []
    for x, y in zip(first, second, strict=True):
        x, y = x[..., :, None], y[..., None, :]
        games.append(((x > y).mean(axis=(-2, -1)) + (x >= y).mean(axis=(-2, -1))) / 2)
    return np.mean(games, axis=0)


def bootstrap_interval(
    estimator: Callable[[Scores, Scores], np.ndarray],
    first: Scores,
    second: Scores,
    rng: np.random.Generator,
    *,
    resamples: int = 50_000,
    level: float = 0.95,
) -> Interval:
    """Percentile interval of an estimate; runs are resampled within their arm and game.

    Args:
        estimator: `iqm_difference`, `probability_of_improvement` or another function of two arms
            that keeps leading axes.
        first: scores of one arm, `[n_g]` each game.
        second: scores of the other arm, `[m_g]` each game.
        rng: draws the resamples, all of the first arm before those of the second.
        resamples: number of bootstrap resamples.
        level: share of the bootstrap distribution inside the interval.

    Returns:
        The estimate from the runs themselves, and the interval's ends.

    Raises:
        ValueError: the arms differ in games, a game has no run of an arm, or a score is not finite.
    """
    first, second = _checked(first, second)
    drawn = [
        [x[rng.integers(len(x), size=(resamples, len(x)))] for x in arm] for arm in (first, second)
    ]
    tail = (1 - level) / 2
    low, high = np.quantile(estimator(*drawn), [tail, 1 - tail])
    return Interval(float(estimator(first, second)), float(low), float(high))


def _count_as_far(ranks: np.ndarray, members: np.ndarray, statistic: np.ndarray) -> np.ndarray:
    """Counts the permuted statistics that lie at least as far from zero as `statistic`.

    Args:
        ranks: `[..., runs]` centred and weighted ranks of all games.
        members: `[permutations, runs] bool`, the runs labelled as the first arm's.
        statistic: `[...]`.
    """
    # Sums of the same ranks in another order differ by rounding and must count as equal.
    threshold = np.abs(statistic)[..., None] - 1e-9
    chunk = max(1, _CHUNK // max(1, statistic.size))
    counts = np.zeros(statistic.shape, np.int64)
    for start in range(0, len(members), chunk):
        permuted = ranks @ members[start : start + chunk].T.astype(np.float64)
        counts += (np.abs(permuted) >= threshold).sum(axis=-1)
    return counts


def _checked(first: Scores, second: Scores) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The arms as float64 arrays; raises ValueError where they cannot be compared."""
    if len(first) != len(second) or not len(first):
        raise ValueError(f"arms of {len(first)} and {len(second)} games cannot be compared")
    arms = tuple([np.asarray(game, np.float64) for game in arm] for arm in (first, second))
    for arm in arms:
        for number, game in enumerate(arm):
            if not game.shape or not game.shape[-1]:
                raise ValueError(f"game {number} has no run of an arm")
            if not np.isfinite(game).all():
                raise ValueError(f"game {number} has a score that is not finite")
    return arms
