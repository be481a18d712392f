"""What one run a game can say: the spread of aggregates over single published runs of CURL.

One run a game has no bootstrap interval: resampling within a game has no width.
"""

from collections.abc import Sequence

import numpy as np

from benchmarks.tables import published, statistics
from benchmarks.tables.table import Cell, Row, Table
from rcrl_jax import reference

DRAWS = 50_000
SEED = 0
ESTIMATORS = {
    "median HNS": statistics.median_of_game_means,
    "mean HNS": statistics.mean_of_game_means,
}
"""Label of a row -> the estimator of its cells."""


def intervals(games: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Where 95 % of aggregates of one published run of CURL a game lie, by label of the row.

    Args:
        games: of Atari-100k.
    """
    rng = np.random.default_rng(SEED)
    runs = published.atari_runs().query("agent == 'CURL [rliable, final]'")
    drawn = [
        rng.choice(
            reference.human_normalised(game, runs.score[runs.game == game].to_numpy()), (DRAWS, 1)
        )
        for game in games
    ]
    return {
        label: tuple(np.quantile(estimator(drawn), [0.025, 0.975]).tolist())
        for label, estimator in ESTIMATORS.items()
    }


def beside(shown: Table, games: Sequence[str]) -> Table:
    """Table 1 with that spread below the median and the mean of columns of ours with single runs.

    Args:
        shown: its aggregates have the number of runs of the game that has the fewest.
        games: that the aggregates are over.
    """
    rows, texts = [], {}
    for row in shown.rows:
        rows.append(row)
        single = [
            column.source == "ours" and cell.seeds == 1
            for column, cell in zip(shown.columns, row.cells, strict=True)
        ]
        if row.label in ESTIMATORS and any(single):
            if not texts:
                texts = {
                    label: f"{100 * low:.1f} to {100 * high:.1f} %"
                    for label, (low, high) in intervals(games).items()
                }
            cells = [Cell(texts[row.label]) if own else Cell() for own in single]
            rows.append(Row(f"{row.label}, one run of CURL", cells))
    if not texts:
        return shown
    note = (
        "One run of CURL: where 95 % of the values lie that one run a game gives, drawn from the "
        "100 published runs of CURL. Columns with a single run of a game cannot be ranked by their "
        "aggregates."
    )
    return shown._replace(rows=rows, notes=[*shown.notes, note])
