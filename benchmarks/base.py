r"""Tests whether our base agent is right: ranks our runs of `curl` among 100 published runs.

    python -m benchmarks.base --results=results/base

Reads the runs below `<results>/curl` and writes `<results>/README.md`. docs/preregistration.md
fixed statistics, levels and looks (one for each seed) beforehand. The p value of a look is computed
only after all its 26 games are finished. Runs are pooled by the rule of all tables
(`tables/pools.py`).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rcrl_jax.programs import markdown
from rcrl_jax.tables import pools, published, registered

if TYPE_CHECKING:
    import pandas as pd

PRESET = "curl"
LOOKS = (0, 1)
"""Seeds of the runs; each has one run a game and one look. Other seeds have no look yet."""
LEVEL = 0.005
"""Level of the test of each of the two statistics of a look."""


class Statistics(NamedTuple):
    """Both statistics, or both p values; arrays keep the leading axes of the places.

    Attributes:
        mean: of the ranks; its test is two-sided.
        squared: mean squared distance of the ranks from 1/2; large values reject.
    """

    mean: np.ndarray
    squared: np.ndarray


def place(score: np.ndarray, others: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """How many of the other scores lie below, `[...]`; the place among equal scores is random.

    Under the null hypothesis every place from 0 to n is equally likely, ties or not.

    Args:
        score: `[...]`.
        others: `[..., n]`.
        rng: draws a place among equal scores, uniformly.
    """
    score = np.asarray(score)[..., None]
    below, equal = np.sum(others < score, axis=-1), np.sum(others == score, axis=-1)
    return below + rng.integers(0, equal, endpoint=True)


def rank(places: np.ndarray, others: int) -> np.ndarray:
    """Places from 0 to `others` as ranks (place + 1/2) / (others + 1), whose null mean is 1/2."""
    return (np.asarray(places) + 0.5) / (others + 1)


def statistics_of(ranks: np.ndarray) -> Statistics:
    """The two statistics of ranks `[..., games]`."""
    return Statistics(np.mean(ranks, axis=-1), np.mean((ranks - 0.5) ** 2, axis=-1))


def p_values(places: np.ndarray, others: int) -> Statistics:
    """Exact p values of both statistics, from the distribution of sums of whole numbers.

    Args:
        places: `[..., games]`, each from 0 to `others`.
        others: published runs of a game, equally many in each.
    """
    places = np.asarray(places)
    games = places.shape[-1]
    # Twice the distance from the middle is whole, whether `others` is odd or even.
    distance = 2 * np.arange(others + 1) - others
    own = 2 * places - others
    one_sided = _tail(np.arange(others + 1), games)
    middle = games * others
    # The sum of places is symmetric about its mean, so both tails are twice the upper one.
    upper = (middle + np.abs(own.sum(-1))) // 2
    two_sided = np.where(own.sum(-1) == 0, 1.0, 2 * one_sided[upper])
    return Statistics(two_sided, _tail(distance**2, games)[np.sum(own**2, axis=-1)])


def _tail(values: np.ndarray, games: int) -> np.ndarray:
    """P(sum >= s) at index s, the sum of `games` values each drawn uniformly from `values`."""
    one = np.bincount(values) / len(values)
    steps, total = np.flatnonzero(one), np.ones(1)
    for _ in range(games):
        longer = np.zeros(len(total) + len(one) - 1)
        for step in steps:
            longer[step : step + len(total)] += one[step] * total
        total = longer
    return np.cumsum(total[::-1])[::-1]


def our_places(frame: "pd.DataFrame", seed: int) -> dict[str, int]:
    """Game -> place of our run among the published ones, for games that are finished.

    The draw among equal scores depends only on the run, not on which other runs are finished.

    Args:
        frame: runs of one pool.
        seed: that of the look.
    """
    own = frame[frame.seed == seed]
    found = {}
    for number, (game, others) in enumerate(published.curl_runs().items()):
        for (score,) in pools.scores(own, PRESET, [game])[0][:, None]:
            found[game] = int(place(score, others, np.random.default_rng([seed, number])))
    return found


def sentence(places: Mapping[str, int]) -> str:
    """The outcome of a look: undecided until every game is finished."""
    scores = published.curl_runs()
    if len(places) < len(scores):
        return f"undecided: {len(places)} of {len(scores)} games finished."
    others = len(next(iter(scores.values())))
    found = np.array([*places.values()])
    values, p = statistics_of(rank(found, others)), p_values(found, others)
    rejected = p.mean <= LEVEL or p.squared <= LEVEL
    verdict = "the base is rejected" if rejected else "the base is not rejected"
    return (
        f"{verdict} ({len(scores)} of {len(scores)} games finished). The mean rank is "
        f"{values.mean:.3f}, two-sided p = {p.mean:.5f}. The mean squared distance of ranks from "
        f"1/2 is {values.squared:.4f}, p = {p.squared:.5f}. A p of at most {LEVEL:g} rejects."
    )


def page(frame: "pd.DataFrame") -> str:
    """The outcome and the ranks of each look, as Markdown."""
    others = published.curl_runs()
    lines, left_out = [], []
    for seed in LOOKS:  # each is judged alone: device and environment may differ
        pool = pools.largest(frame[frame.seed == seed])
        own, places = pool.runs, our_places(pool.runs, seed)
        left_out += pool.left_out
        rows = [
            [
                game,
                f"{pools.scores(own, PRESET, [game])[0].item():.1f}",
                f"{rank(found, len(others[game])):.3f}",
            ]
            for game, found in places.items()
        ]
        lines += [f"Seed {seed}: {sentence(places)}", ""]
        if rows:
            lines += [markdown.table(["game", "our score", "rank among published"], rows), ""]
        diverged = own.game[own.diverged]
        if len(diverged):
            lines += [f"Diverged, counted as random play: {', '.join(diverged)}.", ""]
    later = (~frame.seed.isin(LOOKS)).sum()
    if later:
        lines += [f"{later} runs of other seeds take no part in a look.", ""]
    for line in (*pools.unclear_commits(frame), *left_out):
        lines += [line, ""]
    return "\n".join(lines)


if __name__ == "__main__":
    registered.start(
        "base",
        lambda results: page(registered.read_runs(results, (PRESET,))),
        title="`curl` among published runs of CURL",
        note="what is tested, and when, stands in docs/preregistration.md.",
    )
