"""The paper's two score tables on Atari: published figures with ours beside them.

    at_100k = [run for run in reading.runs if run.env_steps == 100_000]
    table = score_tables.table1(pools.of_one_protocol(at_100k).runs)

A cell of ours is the mean of the final scores of an arm's runs, with the number of runs. Aggregates
are taken over game means, as the paper's median is: its columns allow no other. They stand only
where every game has a score; a note says what there is otherwise.
"""

from collections.abc import Callable, Sequence

import numpy as np

from rcrl_jax import reference, statistics
from rcrl_jax.report.score_columns import (
    ScoreColumn,
    mark_best,
    mean_cell,
    mixing_notes,
    protocol_notes,
    score_rows,
    short_steps,
)
from rcrl_jax.report.tables import Cell, Column, Row, Table
from rcrl_jax.results import pools
from rcrl_jax.results.runs import Run

SYSTEMS = ("rainbow", "erainbow", "erainbow_sa", "curl", "rcrl", "rcrl_curl")
"""The paper's systems on Atari that are presets; columns of Table 1 whether or not they have runs.

Other presets with a column in the paper, such as `rcrl_normal`, appear if they have runs.
"""
BUDGET_SYSTEMS = ("erainbow_sa", "rcrl")
"""The systems of Table 2."""
PRINTED_MEDIANS = {
    "SimPLe": 14.4, "Rainbow": 0.0, "ERainbow": 16.1, "ERainbow-sa": 16.7, "CURL": 17.5,
    "RCRL": 18.5, "RCRL+CURL": 19.6,
}  # fmt: skip
"""Median human-normalised score as the paper's Table 1 prints it, in percent."""
PUBLISHED_STEPS = 100_000
_AGGREGATES: dict[str, Callable[[statistics.Scores], np.ndarray]] = {
    "median": statistics.median_of_game_means,
    "mean": statistics.mean_of_game_means,
    "IQM": statistics.interquartile_mean_of_game_means,
}


def table1(
    runs: Sequence[Run], presets: Sequence[str] | None = None, *, env_steps: int = PUBLISHED_STEPS
) -> Table:
    """Table 1: 26 games of Atari-100k, each system of the paper beside ours.

    Args:
        runs: of one protocol and of `env_steps`; those of other arms are left out.
        presets: columns of ours; None for the paper's systems.
        env_steps: budget of the runs, for title and notes.
    """
    games = reference.games()
    presets = presets or default_presets(runs)
    runs = [run for run in runs if run.family == "atari" and run.arm in presets]
    filled = [_published_column(agent, games, source="") for agent in ("Human", "Random")]
    filled += _with_published(runs, games, presets)
    notes = [
        "Ours: mean over runs of the final evaluation's mean return; in brackets the number of "
        "runs. Best of a row marked among published and among ours.",
        *_aggregate_notes(len(games)),
        *_median_notes(filled, games),
        *_incomplete_notes(runs, filled, games),
        *protocol_notes("atari", filled),
        *_warnings(runs, env_steps, PUBLISHED_STEPS),
    ]
    title = f"Atari-100k: scores after {env_steps:,} environment steps, published and ours"
    return Table(
        title,
        "game",
        [column.column for column in filled],
        [*score_rows(filled, games), *_aggregate_rows(filled, games)],
        notes,
    )


def table2(runs: Sequence[Run], *, budgets: Sequence[int] = (100_000, 1_500_000)) -> Table:
    """Table 2: five games after 100,000 and after 1.5 million steps.

    Args:
        runs: of the budgets; those of one budget are of one protocol.
        budgets: of ours, in environment steps, in the order of the published ones.
    """
    published: dict[tuple[str, int], dict[str, float]] = {}
    for row in reference.atari1p5m_scores():
        published.setdefault((row.agent, row.env_interactions), {})[row.game] = row.score
    games = tuple(dict.fromkeys(row.game for row in reference.atari1p5m_scores()))
    runs = [run for run in runs if run.family == "atari" and run.arm in BUDGET_SYSTEMS]
    filled = [_published_column(agent, games, source="") for agent in ("Human", "Random")]
    notes = [
        "Ours: mean over runs of the final evaluation's mean return; in brackets the number of "
        "runs. Published figures of 1.5M: 3 seeds of 10 episodes each (inferred).",
        *_aggregate_notes(len(games)),
    ]
    for budget, steps in zip(sorted({key[1] for key in published}), budgets, strict=True):
        of_budget = [run for run in runs if run.env_steps == steps]
        for preset in BUDGET_SYSTEMS:
            agent = reference.PAPER_COLUMN[preset]
            scores = published[agent, budget]
            filled.append(
                ScoreColumn(
                    Column(f"{agent}\n{short_steps(budget)}", "published"),
                    [Cell(scores[game]) for game in games],
                    f"published {budget}",
                )
            )
            ours = _own_column(of_budget, preset, games)
            column = Column(f"{preset}\n{short_steps(steps)}", "ours")
            filled.append(ours._replace(column=column, contest=f"ours {budget}"))
        notes += _warnings(of_budget, steps, budget)
    return Table(
        "Atari: scores after 100,000 and 1,500,000 environment steps, published and ours",
        "game",
        [column.column for column in filled],
        [*score_rows(filled, games), *_aggregate_rows(filled, games)],
        notes,
    )


def default_presets(runs: Sequence[Run]) -> list[str]:
    """The paper's systems, and other readings of them that have runs."""
    arms = {run.arm for run in runs}
    return [name for name in reference.PAPER_COLUMN if name in SYSTEMS or name in arms]


def _with_published(
    runs: Sequence[Run], games: Sequence[str], presets: Sequence[str]
) -> list[ScoreColumn]:
    """SimPLe, then each system of the paper followed by its presets, then the other presets."""
    filled = [_published_column("SimPLe", games)]
    for agent in dict.fromkeys(reference.PAPER_COLUMN.values()):
        own = [name for name in presets if reference.PAPER_COLUMN.get(name) == agent]
        if own:
            filled.append(_published_column(agent, games))
            filled += [_own_column(runs, name, games) for name in own]
    others = [name for name in presets if name not in reference.PAPER_COLUMN]
    return filled + [_own_column(runs, name, games) for name in others]


def _published_column(
    agent: str, games: Sequence[str], *, source: str = "published"
) -> ScoreColumn:
    cells = [Cell(reference.published(game, agent)) for game in games]
    return ScoreColumn(Column(agent, source), cells, source)


def _own_column(runs: Sequence[Run], arm: str, games: Sequence[str]) -> ScoreColumn:
    scores = pools.scores(runs, [arm], games)[arm]
    cells = [mean_cell(own)._replace(deviation=None) for own in scores]
    return ScoreColumn(Column(arm, "ours"), cells, "ours")


def _aggregate_rows(filled: Sequence[ScoreColumn], games: Sequence[str]) -> list[Row]:
    """Median, mean and IQM over games of the human-normalised game means, and games at human level.

    Missing where a game is missing. Seeds are those of the game that has the fewest.
    """
    complete = [all(cell.value is not None for cell in column.cells) for column in filled]
    rows = []
    for name, estimator in {**_AGGREGATES, "at human level": _games_at_human_level}.items():
        cells = []
        for column, is_complete in zip(filled, complete, strict=True):
            if not is_complete:
                cells.append(Cell())
                continue
            seeds = [cell.seeds for cell in column.cells]
            value = estimator(_normalised(column, games)).item()
            cells.append(Cell(value, None if None in seeds else min(seeds)))
        is_share = name in _AGGREGATES
        label = f"{name} HNS" if is_share else f"games {name}"
        marked = mark_best(filled, cells) if is_share else cells
        rows.append(Row(label, marked, is_share, separated=not rows, digits=2))
    return rows


def _games_at_human_level(scores: statistics.Scores) -> np.ndarray:
    return np.sum([game.mean() >= 1 for game in scores])


def _normalised(column: ScoreColumn, games: Sequence[str]) -> list[np.ndarray]:
    """Human-normalised game means, `[1]` each game that has one."""
    return [
        np.array([reference.human_normalised(game, cell.value)])
        for game, cell in zip(games, column.cells, strict=True)
        if cell.value is not None
    ]


def _aggregate_notes(games: int) -> list[str]:
    return [
        "HNS: human-normalised score (score - random) / (human - random) of game means. Median and "
        f"mean are over the {games} games; IQM is the mean of the middle "
        f"{games - 2 * (games // 4)} game means, not of runs."
    ]


def _median_notes(filled: Sequence[ScoreColumn], games: Sequence[str]) -> list[str]:
    """Where the paper's printed median does not follow from its own cells."""
    notes = []
    for column in filled:
        printed = PRINTED_MEDIANS.get(column.column.name)
        if column.column.source == "published" and printed is not None:
            median = 100 * statistics.median_of_game_means(_normalised(column, games)).item()
            if abs(round(median, 1) - printed) > 0.01:
                notes.append(
                    f"{column.column.name}: the paper prints a median of {printed} %, its own "
                    f"cells give {median:.2f} %; the rounding of one cell can explain it."
                )
    return notes


def _incomplete_notes(
    runs: Sequence[Run], filled: Sequence[ScoreColumn], games: Sequence[str]
) -> list[str]:
    """For each column of ours that lacks games: how many it has, and the means over these."""
    notes, without = [], []
    published = {c.column.name: c for c in filled if c.column.source == "published"}
    for column in filled:
        present = [n for n, cell in enumerate(column.cells) if cell.value is not None]
        if column.column.source != "ours" or len(present) == len(games):
            continue
        if not present:
            without.append(column.column.name)
            continue
        note = f"{column.column.name}: {len(present)} of {len(games)} games"
        own = [games[n] for n in present]
        means = {"ours": statistics.mean_of_game_means(_normalised(column, games)).item()}
        agent = reference.PAPER_COLUMN.get(column.column.name)
        if agent in published:
            cells = [published[agent].cells[n] for n in present]
            shared = ScoreColumn(published[agent].column, cells)
            means["published"] = statistics.mean_of_game_means(_normalised(shared, own)).item()
        texts = ", ".join(f"{name} {100 * mean:.1f} %" for name, mean in means.items())
        notes.append(f"{note}, so no aggregate. Mean HNS over these games: {texts}.")
    if without:
        notes.append(f"No run of {', '.join(without)}.")
    diverged = sum(run.diverged for run in runs)
    if diverged:
        notes.append(f"{diverged} of our runs diverged and count as random play.")
    return notes


def _warnings(runs: Sequence[Run], env_steps: int, published: int) -> list[str]:
    notes = []
    if env_steps != published:
        notes.append(
            f"Ours after {env_steps:,} environment steps, published after {published:,}: not "
            "comparable."
        )
    return notes + mixing_notes(runs)
