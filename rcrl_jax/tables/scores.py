"""The paper's score tables on Atari and on DMControl: published figures with ours beside them.

    pool = pools.largest(frame[frame.env_steps == 100_000])
    table = scores.table1(pool.runs)

A cell of ours is the mean of the final scores of an arm's runs, with the number of runs; an arm
without runs has no column. Aggregates are taken over game means, as the paper's median is: its
columns allow no other. Columns that lack a game have no aggregate; a note gives what they have.
"""

import io
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from rcrl_jax import files, reference, words
from rcrl_jax.tables import arms, control_figure, pools, published, runs, statistics
from rcrl_jax.tables.table import Cell, Column, Row, Table, mean_cell, short

BUDGET_SYSTEMS = {"erainbow_sa": "ERainbow-sa", "rcrl": "RCRL"}
"""Preset of Table 2 -> name of the published system."""
PRINTED_MEDIANS = {
    "SimPLe": 14.4, "Rainbow": 0.0, "ERainbow": 16.1, "ERainbow-sa": 16.7, "CURL": 17.5,
    "RCRL": 18.5, "RCRL+CURL": 19.6,
}  # fmt: skip
"""Median human-normalised score as the paper's Table 1 prints it, in percent."""
DMC_OTHERS = ("SLACv1", "DrQ")
"""Published systems on DMControl that are no preset."""

_AGGREGATES: dict[str, Callable[[statistics.Scores], np.ndarray]] = {
    "median": statistics.median_of_game_means,
    "mean": statistics.mean_of_game_means,
    "IQM": statistics.interquartile_mean_of_game_means,
    "at human level": lambda scores: np.sum([game.mean() >= 1 for game in scores]),
}
_OURS_NOTE = (
    "Best of a row marked among published and among ours, not among ours where an arm has a single "
    "run."
)
# By 50,000 draws with seed 0; tests draw again.
_SINGLE_NOTE = (
    "One run a game, drawn from the 100 published runs of CURL, has a median HNS of 5.3 to 15.2 % "
    "and a mean of 18.1 to 35.4 % in 95 % of draws: columns with a single run of a game cannot be "
    "ranked by their aggregates."
)

_CHANCE_DRAWS = 1000
_NO_SIMPLE_NOTE = (
    "SimPLe: none of our runs here is one. What was run, small versions that are not SimPLe, is in "
    "results/simple."
)


class _Filled(NamedTuple):
    """A column with its cells.

    In each row, the best cell among columns of equal `contest` is marked; a column without one does
    not compete. `peer` is the published system that an arm of ours is like.
    """

    column: Column
    cells: Sequence[Cell]
    contest: str = ""
    peer: str = ""


def read_others(paths: Sequence[str | os.PathLike]) -> pd.DataFrame:
    """Final scores of other agents on Atari-100k: `arm, game, seed, score`.

    Args:
        paths: CSV files with columns `game, seed, score`; an agent is named as its file.

    Raises:
        ValueError: a file lacks a column, has an unknown game, a score that is no finite number, or
            a seed of a game twice; or two files have the same name.
        OSError: a file cannot be read.
    """
    found = []
    for path in map(pathlib.Path, paths):
        with files.reading(path):
            content = io.BytesIO(files.read_bytes(path))  # pandas would open a pipe or an address
            own = pd.read_csv(content, dtype={"game": str, "score": np.float64})
        name = f"--scores: {path}"
        if missing := {"game", "seed", "score"} - {*own.columns}:
            raise ValueError(f"{name} has no column {', '.join(sorted(missing))}")
        if unknown := {*own.game} - {*reference.games()}:
            raise ValueError(f"{name}: {min(map(str, unknown))!r} is no game of Atari-100k")
        if (
            not len(own)
            or not np.isfinite(own.score).all()
            or own.seed.isna().any()
            or own.duplicated(["game", "seed"]).any()
        ):
            raise ValueError(f"{name}: one finite score is expected for each game and seed")
        if path.stem in (one.arm.iat[0] for one in found):
            raise ValueError(f"--scores: two files are named {path.stem}")
        found.append(own.assign(arm=path.stem))
    return pd.concat(found)


def table1(
    frame: pd.DataFrame, *, env_steps: int = 100_000, others: pd.DataFrame | None = None
) -> Table:
    """Table 1: 26 games of Atari-100k, each system of the paper beside ours.

    Args:
        frame: finished Atari runs of one pool and of `env_steps`.
        env_steps: budget of the runs, for title and notes.
        others: scores of other agents, as `read_others` returns them.
    """
    games = reference.games()
    filled = [_published_atari(agent, games, contest="") for agent in ("Human", "Random")]
    filled += _beside_published(
        frame,
        reference.PAPER_COLUMN,
        lambda agent: _published_atari(agent, games),
        lambda arm: _Filled(Column(arm, "ours"), _means(frame, arm, games), "ours"),
    )
    if others is not None:
        filled += [
            _Filled(Column(arm, "yours"), _means(others, arm, games)) for arm in others.arm.unique()
        ]
    aggregates = _aggregate_rows(filled, games)
    is_single = any(
        column.column.source in ("ours", "yours") and cell.seeds == 1
        for column, cell in zip(filled, aggregates[0].cells, strict=True)
    )
    notes = [
        "Ours: mean over runs of the final evaluation's mean return; in brackets the number of "
        f"runs. {_OURS_NOTE}",
        *arms.notes(frame),
        _aggregate_note(len(games)),
        *_median_notes(filled, games),
        *_incomplete_notes(filled, games),
        *_best_notes(frame),
        *([] if "simple" in map(arms.preset_of, frame.settings) else [_NO_SIMPLE_NOTE]),
        *_protocol_notes("atari", filled),
        *_warnings(frame, env_steps, 100_000),
        *([_SINGLE_NOTE] if is_single else []),
    ]
    title = _title("Atari-100k", [100_000], [env_steps])
    columns = [column.column for column in filled]
    return Table(title, "game", columns, [*_rows(filled, games), *aggregates], notes)


def _title(benchmark: str, published_steps: Sequence[int], steps: Sequence[int]) -> str:
    theirs, ours = (" and ".join(f"{n:,}" for n in of) for of in (published_steps, steps))
    if theirs == ours:
        return f"{benchmark}: scores after {ours} environment steps, published and ours"
    return f"{benchmark}: published scores after {theirs} environment steps, ours after {ours}"


def table2(frame: pd.DataFrame, budgets: Sequence[int]) -> Table:
    """Table 2: five games after 100,000 and after 1.5 million steps.

    Args:
        frame: finished Atari runs of the budgets; those of one budget are of one pool.
        budgets: of ours, in environment steps, in the order of the published ones.
    """
    printed = published.atari_budgets().set_index(["agent", "env_interactions", "game"]).score
    games = tuple(printed.index.unique("game"))
    filled = [_published_atari(agent, games, contest="") for agent in ("Human", "Random")]
    notes = [
        "Ours: mean over runs of the final evaluation's mean return; in brackets the number of "
        f"runs. Published figures of 1.5M: 3 seeds of 10 episodes each (inferred). {_OURS_NOTE}",
        *arms.notes(frame),
        _aggregate_note(len(games)),
    ]
    for budget, steps in zip(sorted(printed.index.unique(1)), budgets, strict=True):
        own = frame[frame.env_steps == steps]

        def theirs(agent: str, budget: int = budget) -> _Filled:
            cells = [Cell(printed[agent, budget, game].item()) for game in games]
            column = Column(f"{agent}\n{short(budget)}", "published")
            return _Filled(column, cells, f"published {budget}")

        def ours(arm: str, own: pd.DataFrame = own, steps: int = steps) -> _Filled:
            column = Column(f"{arm}\n{short(steps)}", "ours")
            return _Filled(column, _means(own, arm, games), f"ours {steps}")

        filled += _beside_published(own, BUDGET_SYSTEMS, theirs, ours)
        notes += _warnings(own, steps, budget)
    title = _title("Atari", sorted(printed.index.unique(1)), budgets)
    rows = [*_rows(filled, games), *_aggregate_rows(filled, games)]
    return Table(title, "game", [column.column for column in filled], rows, notes)


def control_table(frame: pd.DataFrame) -> Table:
    """DMControl: six tasks at 100,000 and 500,000 environment steps.

    Args:
        frame: finished runs of any budget, those of an arm of one pool: an evaluation at 100,000 or
            500,000 counts as the score there.
    """
    budgets, tasks = sorted(published.BUDGETS["dmc"]), reference.tasks()
    places = [(steps, task) for steps in budgets for task in tasks]
    rows = {(row.agent, row.env_steps, row.task): row for row in reference.dmc_scores()}
    points = runs.evaluations(frame)
    # A run's final score replaces its last evaluation, which old runs lack.
    before_end = points[points.env_steps < points.run.map(frame.env_steps)]
    points = pd.concat([before_end, frame])[["arm", "game", "env_steps", "score"]]

    def theirs(agent: str) -> _Filled:
        found = [rows.get((agent, *place)) for place in places]
        cells = [Cell() if row is None else Cell(row.mean, deviation=row.std) for row in found]
        return _Filled(Column(agent, "published"), cells, "published" * (agent != "State SAC"))

    def ours(arm: str) -> _Filled:
        own = dict(list(points[points.arm == arm].groupby(["env_steps", "game"]).score))
        cells = [mean_cell(own.get(place, ())) for place in places]
        reads_state = "state_sac" in map(arms.preset_of, frame.settings[frame.arm == arm])
        return _Filled(Column(arm, "ours"), cells, "ours" * (not reads_state))

    filled = [theirs(agent) for agent in DMC_OTHERS]
    filled += _beside_published(frame, reference.CONTROL_COLUMN, theirs, ours)
    labels = [f"{task}, {short(steps)}" for steps, task in places]
    unseen = sorted({*frame.arm} - {*points.arm[points.env_steps.isin(budgets)]})
    notes = [
        "Mean return ± standard deviation over runs; in brackets the number of ours. At a step "
        "before their end, runs are scored by their evaluation there, which has fewer episodes.",
        f"{_OURS_NOTE} Agents that read the state do not compete.",
        *arms.notes(frame),
        "The paper prints no figure of RCRL on DMControl, only curves.",
        *([f"Not evaluated at these steps: {', '.join(unseen)}."] if unseen else []),
        *_protocol_notes("dmc", filled),
        *_condition_notes(frame),
        *_warnings(frame),
        *control_figure.published_notes(),
    ]
    shown = [
        row._replace(digits=0, separated=number > 0 and number % len(tasks) == 0)
        for number, row in enumerate(_rows(filled, labels))
    ]
    columns = [column.column for column in filled]
    title = "DMControl: return, published and ours"
    return Table(title, "task, steps", columns, shown, notes)


def _beside_published(
    frame: pd.DataFrame,
    peers: Mapping[str, str],
    theirs: Callable[[str], _Filled],
    ours: Callable[[str], _Filled],
) -> list[_Filled]:
    """Each published system followed by the arms of `frame` that are like it, then the others.

    `peers` says which published system a preset is; `theirs` and `ours` make columns.
    """
    settings = dict(zip(frame.arm, frame.settings, strict=True))
    peer_of = {arm: peers.get(arms.preset_of(own)) for arm, own in settings.items()}
    filled = []
    for agent in dict.fromkeys(peers.values()):
        filled.append(theirs(agent))
        filled += [ours(arm)._replace(peer=agent) for arm, p in peer_of.items() if p == agent]
    return filled + [ours(arm) for arm, peer in peer_of.items() if peer is None]


def _published_atari(agent: str, games: Sequence[str], contest: str = "published") -> _Filled:
    cells = [Cell(reference.published(game, agent)) for game in games]
    return _Filled(Column(agent, contest), cells, contest)


def _means(frame: pd.DataFrame, arm: str, games: Sequence[str]) -> list[Cell]:
    return [mean_cell(own)._replace(deviation=None) for own in pools.scores(frame, arm, games)]


def _rows(filled: Sequence[_Filled], labels: Sequence[str]) -> list[Row]:
    """The rows of the columns' cells, with the best ones marked."""
    return [
        Row(label, _mark_best(filled, [column.cells[number] for column in filled]))
        for number, label in enumerate(labels)
    ]


def _mark_best(filled: Sequence[_Filled], cells: Sequence[Cell]) -> list[Cell]:
    """The cells with the best one of each contest marked, where there is a choice.

    A contest with a cell of a single run has no mark: one run says little about its arm.
    """
    marked = list(cells)
    for contest in {column.contest for column in filled} - {""}:
        numbers = [
            number
            for number, (column, cell) in enumerate(zip(filled, cells, strict=True))
            if column.contest == contest and cell.value is not None
        ]
        if len(numbers) < 2 or any(cells[number].seeds == 1 for number in numbers):
            continue
        best = max(cells[number].value for number in numbers)
        for number in numbers:
            marked[number] = cells[number]._replace(best=cells[number].value == best)
    return marked


def _aggregate_rows(filled: Sequence[_Filled], games: Sequence[str]) -> list[Row]:
    """Median, mean and IQM over games of the human-normalised game means, and games at human level.

    Missing where a game is missing. Seeds are those of the game that has the fewest.
    """
    rows = []
    for name, estimator in _AGGREGATES.items():
        cells = []
        for column in filled:
            if any(cell.value is None for cell in column.cells):
                cells.append(Cell())
                continue
            seeds = [cell.seeds for cell in column.cells]
            value = estimator(_normalised(column, games)).item()
            cells.append(Cell(value, None if None in seeds else min(seeds)))
        is_share = name != "at human level"
        label = f"{name} HNS" if is_share else f"games {name}"
        marked = _mark_best(filled, cells) if is_share else cells
        rows.append(Row(label, marked, is_share, separated=not rows, digits=2))
    return rows


def _normalised(column: _Filled, games: Sequence[str]) -> list[np.ndarray]:
    """Human-normalised game means, `[1]` each game that has one."""
    return [
        np.array([reference.human_normalised(game, cell.value)])
        for game, cell in zip(games, column.cells, strict=True)
        if cell.value is not None
    ]


def _aggregate_note(games: int) -> str:
    return (
        "HNS: human-normalised score (score - random) / (human - random) of game means. Median and "
        f"mean are over the {games} games; IQM is the mean of the middle "
        f"{games - 2 * (games // 4)} game means, not of runs."
    )


def _median_notes(filled: Sequence[_Filled], games: Sequence[str]) -> list[str]:
    """Where the paper's printed median does not follow from its own cells."""
    notes = []
    for column in filled:
        printed = PRINTED_MEDIANS.get(column.column.name)
        if printed is not None and column.column.source == "published":
            median = 100 * statistics.median_of_game_means(_normalised(column, games)).item()
            if abs(round(median, 1) - printed) > 0.01:
                notes.append(
                    f"{column.column.name}: the paper prints a median of {printed} %, its own "
                    f"cells give {median:.2f} %; the rounding of one cell can explain it."
                )
    return notes


def _incomplete_notes(filled: Sequence[_Filled], games: Sequence[str]) -> list[str]:
    """For each unpublished column that lacks games: how many it has, and their mean."""
    notes = []
    theirs = {c.column.name: c for c in filled if c.column.source == "published"}
    for column in filled:
        present = [n for n, cell in enumerate(column.cells) if cell.value is not None]
        name = column.column.name
        if column.column.source not in ("ours", "yours") or len(present) == len(games):
            continue
        means = {
            column.column.source: statistics.mean_of_game_means(_normalised(column, games)).item()
        }
        if column.peer:
            peer = theirs[column.peer]
            shared = peer._replace(cells=[peer.cells[n] for n in present])
            own = _normalised(shared, [games[n] for n in present])
            means["published"] = statistics.mean_of_game_means(own).item()
        texts = ", ".join(f"{name} {100 * mean:.1f} %" for name, mean in means.items())
        notes.append(
            f"{name}: {len(present)} of {len(games)} games, so no aggregate. Mean HNS over these "
            f"games: {texts}."
        )
    return notes


def _best_notes(frame: pd.DataFrame) -> list[str]:
    """For each arm, its mean if the best of a run's evaluations counts, as some papers report it.

    The note adds what chance alone gives: the final agent in all of these evaluations, its episodes
    drawn from the final ones.
    """
    texts = []
    for arm, own in frame[~frame.diverged & (frame.evaluations.map(len) > 1)].groupby("arm"):
        games = own.game.unique()
        best = own.evaluations.map(lambda lines: max(line["score"] for line in lines))
        by_chance = own.apply(_best_by_chance, axis=1)
        means = (
            statistics.mean_of_game_means(
                pools.scores(own.assign(score=score), arm, games, normalised=True)
            ).item()
            for score in (best, by_chance, own.score)
        )
        shown, chance, final = (f"{100 * mean:.1f} %" for mean in means)
        texts.append(
            f"{arm} {shown} ({words.count('run', len(own))} of {words.count('game', len(games))}; "
            f"by chance {chance}; final {final})"
        )
    if not texts:
        return []
    return [
        "Mean HNS if the best evaluation of each run counted, beside what its final agent alone "
        f"would have in as many evaluations by chance, and the final one: {'; '.join(texts)}."
    ]


def _best_by_chance(run: pd.Series) -> float:
    """Expected best score of a run if its final agent played all its evaluations."""
    rng = np.random.default_rng(0)
    played = [
        rng.choice(run.returns, (_CHANCE_DRAWS, len(line["returns"]))).mean(axis=1)
        for line in run.evaluations
    ]
    return np.max(played, axis=0).mean().item()


def _protocol_notes(benchmark: str, filled: Sequence[_Filled]) -> list[str]:
    """How each published column was measured; agents with the same note share a line."""
    agents: dict[str, list[str]] = {}
    for column in filled:
        if column.column.source == "published":
            note = published.note(benchmark, column.column.name)
            agents.setdefault(note, []).append(column.column.name)
    return [f"{', '.join(names)} (published): {note}." for note, names in agents.items()]


def _condition_notes(frame: pd.DataFrame) -> list[str]:
    """The conditions that are stated, and differ between arms of ours."""
    notes = []
    for name in pools.differing(frame):
        if frame[name].nunique() > 1:
            values = ", ".join(
                f"{value} ({', '.join(own.arm.unique())})"
                for value, own in frame.groupby(name, sort=False)
            )
            notes.append(f"Ours differ in {name}: {values}.")
    return notes


def _warnings(frame: pd.DataFrame, env_steps: int = 0, published_steps: int = 0) -> list[str]:
    """What a reader has to know of our runs: budget, code, diverged ones."""
    notes = pools.unclear_commits(frame)
    if env_steps != published_steps:
        notes.append(
            f"Ours after {env_steps:,} environment steps, published after {published_steps:,}: not "
            "comparable."
        )
    if frame.diverged.any():
        notes.append(f"{frame.diverged.sum()} of our runs diverged and count as random play.")
    return notes
