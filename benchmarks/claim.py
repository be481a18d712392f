r"""Tests the claim "`rcrl` scores higher than `erainbow_sa`" on the finished runs.

    python -m benchmarks.claim --results=results/claim

Reads the runs below `<results>/rcrl` and `<results>/erainbow_sa` and writes `<results>/README.md`.
docs/preregistration.md fixed the list, the test and what counts as a run beforehand. No p value is
computed before the list is complete. If there are runs of the larger experiment on that page, a
separate sentence judges it by the same test. Runs are pooled by the rule of all tables
(`tables/pools.py`): runs on another device get separate tables below the verdict. Results that mix
emulators are refused.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from rcrl_jax import reference
from rcrl_jax.programs import markdown
from rcrl_jax.runs.records import ATTEMPTS
from rcrl_jax.tables import pools, registered, statistics
from rcrl_jax.tables.registered import CLAIM, LARGER, PRESETS, Experiment

if TYPE_CHECKING:
    import pandas as pd

LEVEL = 0.05
PERMUTATIONS = 100_000
RESAMPLES = 50_000
SEED = 0
"""Seed of the permutations, and also of the resamples."""


def decide(games: Iterable[str], first: statistics.Scores, second: statistics.Scores) -> str:
    """The verdict on a complete experiment, with p value and intervals.

    Args:
        games: of the experiment.
        first: raw scores of `rcrl`, one array `[seeds]` for each game.
        second: raw scores of `erainbow_sa`, the same.
    """
    test = statistics.stratified_rank_test(
        first, second, np.random.default_rng(SEED), permutations=PERMUTATIONS
    )
    normalised = [
        [reference.human_normalised(game, scores) for game, scores in zip(games, arm, strict=True)]
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
    verdict, pairs = registered.verdict(test, LEVEL, *PRESETS), sum(map(len, first))
    return (
        f"{verdict} ({pairs} of {pairs} pairs finished; stratified rank test, two-sided "
        f"p = {test.p_value:.5f}); beside it, with 95 % intervals: interquartile mean of "
        f"human-normalised scores, `rcrl` less `erainbow_sa`, {iqm.estimate:+.4f} "
        f"[{iqm.low:+.4f}, {iqm.high:+.4f}]; probability of improvement "
        f"{improvement.estimate:.3f} [{improvement.low:.3f}, {improvement.high:.3f}]."
    )


def sentence(experiment: Experiment, frame: "pd.DataFrame") -> str:
    """The verdict on the claim: undecided until every pair of the experiment is finished.

    Args:
        experiment: whose pairs count.
        frame: runs of one pool.
    """
    first, second = experiment.paired_scores(frame)
    finished = sum(map(len, first))
    if finished < experiment.num_pairs:
        return f"undecided: {finished} of {experiment.num_pairs} pairs finished."
    return decide(experiment.games, first, second)


def page(frame: "pd.DataFrame") -> str:
    """The sentences and the tables, as Markdown."""
    larger = LARGER.holds(frame)
    pool = pools.of_list(frame[~larger], CLAIM.holds(frame[~larger]))
    listed = CLAIM.holds(pool.runs)
    lines = [sentence(CLAIM, pool.runs), "", _table(CLAIM.games, pool.runs[listed])]
    if larger.any():
        of_larger = pools.largest(frame[larger])
        games, seeds = len(LARGER.games), LARGER.seeds
        title = f"The larger experiment, {games} games, seeds {seeds[0]} to {seeds[-1]}"
        lines += ["", f"{title}: {sentence(LARGER, of_larger.runs)}", *of_larger.left_out]
        lines += ["", _table(LARGER.games, of_larger.runs)]
    diverged = frame[frame.diverged]
    if len(diverged):
        names = [f"{run.preset}/{run.game}/seed_{run.seed}" for run in diverged.itertuples()]
        lines += ["", f"Diverged {ATTEMPTS} times, counted as random play: {', '.join(names)}."]
    for line in pools.unclear_commits(frame):
        lines += ["", line]
    for title, own in [
        ("Exploratory runs outside the list", pool.runs[~listed]),
        *zip(pool.left_out, pool.others, strict=True),
    ]:
        if len(own):
            games = [game for game in reference.games() if game in {*own.game}]
            lines += ["", f"{title}, not part of the claim:", "", _table(games, own)]
    return "\n".join(lines)


def _table(games: Iterable[str], frame: "pd.DataFrame") -> str:
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
        lambda results: page(registered.read_runs(results, PRESETS)),
        title="`rcrl` against `erainbow_sa`",
        note="list and test are those of docs/preregistration.md.",
    )
