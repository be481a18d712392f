"""The sections of the page. One that has nothing to show says so in one line."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks.tables import (
    claims,
    command,
    control_figure,
    measures,
    panels,
    pools,
    runs,
    scores,
    similarities,
    statistics,
    verdicts,
)
from benchmarks.tables.panels import Bar, Style
from benchmarks.tables.similarities import Recording
from benchmarks.tables.table import Cell, Column, Row, Table
from rcrl_jax import reference

FEWEST_TO_COMPARE = 3
"""Runs of an arm on a game from which on profiles and probabilities count that game."""
PUBLISHED = ("SimPLe", "ERainbow", "ERainbow-sa", "CURL", "RCRL", "RCRL+CURL")
"""Agents of the paper's Table 1 that bars show."""

_FAMILIES = {"atari": "Atari", "dmc": "DMControl"}


class Panel(NamedTuple):
    """A figure as an address, its title, and what a reader who cannot see it is told."""

    title: str
    uri: str
    said: str


class Block(NamedTuple):
    """Panels that unfold under a title."""

    title: str
    panels: Sequence[Panel]


class Section(NamedTuple):
    """One section of the page.

    Attributes:
        title: its heading.
        empty: the one line of a section that has nothing to show.
        note: how to read it.
        blocks: the first one is unfolded.
        tables: below the blocks.
        verdicts: of the paper's claims.
        figure: a wide panel, with notes that unfold.
        figure_notes: these notes.
        runs: the frame of all runs.
    """

    title: str
    empty: str = ""
    note: str = ""
    blocks: Sequence[Block] = ()
    tables: Sequence[Table] = ()
    verdicts: Sequence[Mapping[str, str]] = ()
    figure: Panel | None = None
    figure_notes: Sequence[str] = ()
    runs: Sequence[Mapping[str, Any]] = ()


def judged(frame: pd.DataFrame) -> Section:
    """One entry a claim: the verdict in words, what the paper says; then all numbers in a table."""
    budgets = {steps: command.budget(frame, family) for family, steps in claims.BUDGET.items()}
    found = [
        verdict
        for claim in claims.CLAIMS
        for verdict in command.judge(
            [claim], frame, env_steps=budgets.get(claim.env_steps, claim.env_steps)
        )
    ]
    entries = [
        {
            "state": verdict.state,
            "sentence": verdict.sentence,
            "small": f"{claims.published(verdict.claim)} The paper: {verdict.claim.statement}",
        }
        for verdict in found
    ]
    numbers = verdicts.to_table(found)._replace(notes=())
    return Section("Verdicts on the paper's claims", verdicts=entries, tables=[numbers])


def paper_tables(frame: pd.DataFrame) -> Section:
    """The paper's tables with ours beside; every table says which runs it leaves out."""
    atari, dmc = (command.budget(frame, family) for family in ("atari", "dmc"))
    long = (100_000, 1_500_000)
    first = command.select(frame, "atari", (atari,))
    second = command.select(frame, "atari", long, scores.BUDGET_SYSTEMS)
    control = command.select(frame, "dmc", (dmc,))
    shown = [
        (scores.table1(first.shown, env_steps=atari), first),
        (scores.table2(second.shown, budgets=long), second),
        (scores.control_table(control.shown), control),
    ]
    figure = _panel("DMControl: ours over published curves", control_figure.draw(control.shown))
    return Section(
        "The paper's tables",
        tables=[t._replace(notes=[*t.notes, *selection.lines]) for t, selection in shown],
        figure=figure,
        figure_notes=control_figure.published_notes(),
    )


def learning_curves(frame: pd.DataFrame, looks: Mapping[str, Style]) -> Section:
    """One panel a game in every pool."""

    def draw(game: str, own: pd.DataFrame) -> Iterable[tuple[str, Figure]]:
        is_atari = own.family.iloc[0] == "atari"
        random = reference.published(game, "Random") if is_atari else None
        yield "learning curves", panels.learning_curves(own, looks, random)

    return Section(
        "Learning curves",
        empty="No run has an evaluation yet.",
        note="A thin line is one seed. A line with hollow points is the only seed of its arm and "
        "decides nothing. A thick line is the mean of two finished seeds or more; from "
        f"{panels.FEWEST_FOR_INTERVAL} on it has a 95 % bootstrap interval at every evaluation. "
        "Runs under other conditions are in another block and are never pooled.",
        blocks=_blocks(frame[frame.evaluations.map(len) > 0], draw),
    )


def bars(frame: pd.DataFrame, looks: Mapping[str, Style]) -> Section:
    """Human-normalised scores beside published ones, for Atari runs of the published budget."""

    def draw(game: str, own: pd.DataFrame) -> Iterable[tuple[str, Figure]]:
        rows = []
        for arm in own.arm.unique():
            (values,) = pools.scores(own, arm, [game], normalised=True)
            label = f"{arm} ({len(values)})"
            rows.append(Bar(label, float(np.mean(values)), values, looks[arm].color))
        for agent in PUBLISHED:
            score = reference.human_normalised(game, reference.published(game, agent))
            rows.append(Bar(f"{agent}, published", score, ()))
        said = ", ".join(f"{row.label} {100 * row.value:.0f} %" for row in rows)
        yield said, panels.bars(rows)

    short = (frame.family == "atari") & (frame.env_steps == claims.BUDGET["atari"])
    return Section(
        "Scores by game",
        empty="No finished Atari run has the published budget of 100,000 steps yet.",
        note="Filled bars are ours, with one point a run. Hollow bars are the paper's, at 100,000 "
        "steps: ERainbow-sa, RCRL and RCRL+CURL of five seeds each, the others copied from CURL's "
        "paper. 0 % is random play, 100 % the human tester.",
        blocks=_blocks(frame[short & frame.score.notna()], draw),
    )


def comparisons(frame: pd.DataFrame, looks: Mapping[str, Style]) -> Section:
    """Performance profiles and probabilities of improvement where arms share games."""
    blocks, tables = [], []
    for label, own in pool_labels(frame):
        counted = _counted(own)
        profiles = [
            _panel(f"Performance profile on {_games(games)}",
                   panels.performance_profiles(of_arms, looks))
            for games, of_arms in _profiles(counted)
        ]  # fmt: skip
        if profiles:
            blocks.append(Block(label, profiles))
        if rows := _improvements(counted):
            columns = [Column(name) for name in ("games", "estimate", "low", "high")]
            tables.append(Table(f"Probability of improvement: {label}", "pair", columns, rows))
    return Section(
        "Profiles and improvement",
        empty=f"No two arms share a game with {FEWEST_TO_COMPARE} finished runs each under equal "
        "conditions yet.",
        note=f"Games count on which each arm has at least {FEWEST_TO_COMPARE} runs. Intervals are "
        "95 % stratified bootstrap intervals, unpaired. Atari scores are human-normalised; returns "
        "of DMControl are divided by 1000.",
        blocks=blocks,
        tables=tables,
    )


def measured(
    frame: pd.DataFrame,
    looks: Mapping[str, Style],
    recorded: Sequence[Recording],
    problems: list[str],
) -> Section:
    """Panels a game in every pool, one table of every run's last values, and similarities.

    Args:
        frame: all runs.
        looks: styles of the arms.
        recorded: by `experiments.representation`.
        problems: gets one line for each damaged `metrics.jsonl`.
    """
    points = measures.read(frame, problems)

    def draw(game: str, own: pd.DataFrame) -> Iterable[tuple[str, Figure]]:
        return measures.game_panels(points[points.run.isin(own.index)], looks)

    tables = [measures.last_values(points)] * bool(len(points))
    return Section(
        "Segments, similarities, AUCs",
        empty="No run recorded segments, similarities or AUCs yet.",
        note=measures.NOTE,
        blocks=_blocks(frame[frame.index.isin(points.run)], draw),
        tables=[*tables, *map(similarities.to_table, recorded)],
    )


def pool_labels(frame: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """The runs of each pool with a label: Atari first, then long runs, then large pools.

    A label says what differs from every other pool: budget, algorithm and final episodes always,
    other conditions where two pools would have one label.
    """
    sets = [own for _, own in frame.groupby("pool", sort=False)]
    sets.sort(key=lambda own: (own.family.iloc[0], -own.env_steps.iloc[0], -len(own)))
    short = [
        f"{_FAMILIES[first.family]}, {first.env_steps:,} environment steps, "
        f"algorithm {first.algorithm}, {first.final_episodes} final episodes"
        for first in (own.iloc[0] for own in sets)
    ]
    labelled = []
    for own, label in zip(sets, short, strict=True):
        alike = [other for other, same in zip(sets, short, strict=True) if same == label]
        names = pools.differing(pd.concat(alike))
        differing = [f"{name} {pools.text(own.iloc[0][name])}" for name in names]
        labelled.append((", ".join([label, *differing]), own))
    return labelled


def by_game(frame: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Games in the paper's order with their runs."""
    return sorted(frame.groupby("game"), key=lambda group: runs.game_order(group[0]))


def _blocks(
    frame: pd.DataFrame, draw: Callable[[str, pd.DataFrame], Iterable[tuple[str, Figure]]]
) -> list[Block]:
    """A block a pool with the panels of its games; `draw` gives what they say, and figures."""
    blocks = []
    for label, own in pool_labels(frame):
        found = [
            _panel(game, figure, f"{said} on {game}")
            for game, of_game in by_game(own)
            for said, figure in draw(game, of_game)
        ]
        if found:
            counts = {"run": len(own), "arm": own.arm.nunique(), "game": own.game.nunique()}
            words = [f"{count} {noun}{'s' * (count != 1)}" for noun, count in counts.items()]
            blocks.append(Block(f"{label}: {', '.join(words)}", found))
    return blocks


def _panel(title: str, figure: Figure, said: str = "") -> Panel:
    return Panel(title, panels.to_uri(figure), said or title)


def _counted(frame: pd.DataFrame) -> dict[str, dict[str, np.ndarray]]:
    """Arm -> game -> normalised scores, where there are enough of them."""
    finished = frame[frame.score.notna()]
    games = [game for game, _ in by_game(finished)]
    counted = {}
    for arm in finished.arm.unique():
        own = pools.scores(finished, arm, games, normalised=True)
        counted[arm] = {
            game: values
            for game, values in zip(games, own, strict=True)
            if len(values) >= FEWEST_TO_COMPARE
        }
    return counted


def _profiles(
    counted: Mapping[str, Mapping[str, np.ndarray]],
) -> list[tuple[tuple[str, ...], dict[str, list[np.ndarray]]]]:
    """The scores of the arms for each set of games that two arms or more have."""
    of_games: dict[tuple[str, ...], dict[str, list[np.ndarray]]] = {}
    for arm, own in counted.items():
        of_games.setdefault(tuple(own), {})[arm] = [*own.values()]
    return [(games, arms) for games, arms in of_games.items() if games and len(arms) > 1]


def _improvements(counted: Mapping[str, Mapping[str, np.ndarray]]) -> list[Row]:
    rows = []
    for first, second in itertools.combinations(counted, 2):
        games = [game for game in counted[first] if game in counted[second]]
        if not games:
            continue
        arms = [[counted[arm][game] for game in games] for arm in (second, first)]
        interval = statistics.bootstrap_intervals(
            {"improvement": statistics.probability_of_improvement},
            arms,
            np.random.default_rng(0),
            resamples=2_000,
        )["improvement"]
        cells = [Cell(_games(games)), *(Cell(float(value)) for value in interval)]
        rows.append(Row(f"{second} > {first}", cells, digits=3))
    return rows


def _games(games: Sequence[str]) -> str:
    return ", ".join(games) if len(games) <= 4 else f"{len(games)} games"
