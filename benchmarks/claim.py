r"""Tests the claim "`rcrl` scores higher than `erainbow_sa`" on the finished runs.

    python -m benchmarks.claim --results=results/claim

Reads the runs below `<results>/rcrl` and `<results>/erainbow_sa` and writes `<results>/README.md`.
List, test and what counts as a run were fixed beforehand in docs/preregistration.md. No p value is
computed before the list is complete. Which runs may be pooled is the rule of all tables
(`tables/pools.py`): runs on another device get tables of their own below the verdict. A list that
mixes emulators is refused.
"""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from benchmarks.tables import pools, registered, statistics
from benchmarks.tables.registered import GAMES, PAIRS, PRESETS
from benchmarks.tables.run_files import ATTEMPTS
from experiments import markdown
from rcrl_jax import reference

LEVEL = 0.05
PERMUTATIONS = 100_000
RESAMPLES = 50_000
SEED = 0
"""Seed of the permutations, and again of the resamples."""


def decide(first: statistics.Scores, second: statistics.Scores) -> str:
    """The verdict on the complete list, with p value and intervals.

    Args:
        first: raw scores of `rcrl`, `[9]` for each game of the list.
        second: raw scores of `erainbow_sa`, the same.
    """
    test = statistics.stratified_rank_test(
        first, second, np.random.default_rng(SEED), permutations=PERMUTATIONS
    )
    normalised = [
        [reference.human_normalised(game, scores) for game, scores in zip(GAMES, arm, strict=True)]
        for arm in (first, second)
    ]
    intervals = statistics.bootstrap_intervals(
        {
            "iqm": statistics.difference(statistics.interquartile_mean),
            "improvement": statistics.probability_of_improvement,
        },
        normalised,
        np.random.default_rng(SEED),
        resamples=RESAMPLES,
    )
    iqm, improvement = intervals["iqm"], intervals["improvement"]
    if test.p_value > LEVEL:
        verdict = "undecided: the test finds no difference between `rcrl` and `erainbow_sa`"
    elif test.statistic > 0:
        verdict = "supported: `rcrl` scores higher than `erainbow_sa`"
    else:
        verdict = "contradicted: `rcrl` scores lower than `erainbow_sa`"
    return (
        f"{verdict} ({PAIRS} of {PAIRS} pairs finished; stratified rank test, two-sided "
        f"p = {test.p_value:.5f}); beside it, with 95 % intervals: interquartile mean of "
        f"human-normalised scores, `rcrl` less `erainbow_sa`, {iqm.estimate:+.4f} "
        f"[{iqm.low:+.4f}, {iqm.high:+.4f}]; probability of improvement "
        f"{improvement.estimate:.3f} [{improvement.low:.3f}, {improvement.high:.3f}]."
    )


def sentence(frame: pd.DataFrame) -> str:
    """The verdict on the claim: undecided until every pair of the list is finished.

    Args:
        frame: runs of one pool.
    """
    first, second = registered.paired_scores(frame)
    finished = sum(map(len, first))
    if finished < PAIRS:
        return f"undecided: {finished} of {PAIRS} pairs finished."
    return decide(first, second)


def page(frame: pd.DataFrame) -> str:
    """The sentence and the tables, as Markdown."""
    pool = pools.of_list(frame, registered.listed(frame))
    listed = registered.listed(pool.runs)
    lines = [sentence(pool.runs), "", _table(GAMES, pool.runs[listed])]
    diverged = frame[frame.diverged]
    if len(diverged):
        names = [f"{run.preset}/{run.game}/seed_{run.seed}" for run in diverged.itertuples()]
        lines += ["", f"Diverged {ATTEMPTS} times, counted as random play: {', '.join(names)}."]
    for line in pools.unclear_commits(frame):
        lines += ["", line]
    for title, own in [
        ("Outside the list, exploratory", pool.runs[~listed]),
        *zip(pool.left_out, pool.others, strict=True),
    ]:
        if len(own):
            games = [game for game in reference.games() if game in {*own.game}]
            lines += ["", f"{title}, without a part in the claim:", "", _table(games, own)]
    return "\n".join(lines)


def _table(games: Iterable[str], frame: pd.DataFrame) -> str:
    head = ["game", *(cell for preset in PRESETS for cell in (f"`{preset}`, seeds", "mean"))]
    rows = []
    for game in games:
        cells = [game]
        for preset in PRESETS:
            (scores,) = pools.scores(frame, preset, [game])
            cells += [str(len(scores)), f"{scores.mean():.1f}" if len(scores) else ""]
        rows.append(cells)
    return markdown.table(head, rows)


if __name__ == "__main__":
    registered.start(
        "claim",
        PRESETS,
        page,
        title="`rcrl` against `erainbow_sa`",
        note="list and test are those of docs/preregistration.md.",
    )
