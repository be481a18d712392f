"""The panels of the page: one game each, small enough for a phone, without legends.

Every function returns a figure that `svg.inline` takes; legends are HTML, one for many panels.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from rcrl_jax import statistics
from rcrl_jax.report import svg
from rcrl_jax.report.alignment import align
from rcrl_jax.results.runs import Run

FEWEST_FOR_INTERVAL = 3
"""Seeds from which on a mean has an interval; with two, resamples take only three values."""

_RESAMPLES = 2_000
_MOST_POINTS = 200
"""Points of a line; a panel has no more pixels to show."""


class Style(NamedTuple):
    """How an arm is drawn in all panels: a colour of `svg.ARMS`, and `solid`, `dashed` or so."""

    color: str
    dash: str


class Line(NamedTuple):
    """One line of a panel: style, x and y."""

    style: Style
    x: Sequence[float]
    y: Sequence[float]


class Bar(NamedTuple):
    """One bar: its label, its length, the runs behind it (none for published ones) and colour."""

    label: str
    value: float
    runs: Sequence[float]
    color: str


def learning_curves(
    runs: Sequence[Run], styles: Mapping[str, Style], levels: Sequence[tuple[float, Style]]
) -> Figure:
    """Scores of evaluations over agent steps, of runs of one game under equal conditions.

    Args:
        runs: in any order; unfinished ones are drawn, and take no part in a mean.
        styles: of the arms.
        levels: scores that get a level line, with its style.
    """
    figure, axes = _panel("agent steps", "score")
    for arm in dict.fromkeys(run.arm for run in runs):
        _draw_arm(axes, [run for run in runs if run.arm == arm and run.evaluations], styles[arm])
    for level, style in levels:
        axes.axhline(level, color=style.color, linestyle=style.dash, linewidth=1)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.yaxis.set_major_formatter(EngFormatter(sep=""))
    return figure


def bars(rows: Sequence[Bar]) -> Figure:
    """Horizontal bars of human-normalised scores, in percent; runs as points."""
    height = 0.55 + 0.21 * len(rows)
    figure = Figure(figsize=(4.2, height))
    axes = figure.add_axes((0.4, 0.42 / height, 0.57, 1 - 0.5 / height))
    places = range(len(rows))
    for place, row in zip(places, rows, strict=True):
        is_ours = bool(len(row.runs))
        axes.barh(
            place, 100 * row.value, height=0.7, linewidth=1, edgecolor=row.color,
            facecolor=row.color if is_ours else "none", alpha=0.55 if is_ours else 1,
        )  # fmt: skip
        axes.plot(
            100 * np.asarray(row.runs), [place] * len(row.runs), "o",
            color=svg.INK, markersize=2.5,
        )  # fmt: skip
    axes.set_yticks(places, [_cut(row.label, 25) for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.axvline(0, color=svg.MUTED, linewidth=0.8)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("human-normalised score [%]")
    axes.tick_params(axis="y", length=0)
    return figure


def performance_profiles(
    arms: Mapping[str, statistics.Scores], styles: Mapping[str, Style]
) -> Figure:
    """Share of runs above each score, with 95 % stratified intervals.

    Args:
        arms: arm -> normalised scores, the same games in all.
        styles: of the arms.
    """
    figure, axes = _panel("normalised score τ", "share of runs above τ")
    pooled = np.concatenate([game for arm in arms.values() for game in arm])
    thresholds = np.linspace(min(0.0, pooled.min()), max(1.0, pooled.max()), 101)
    for arm, scores in arms.items():
        interval = statistics.bootstrap_intervals(
            {"profile": lambda drawn: statistics.performance_profile(drawn, thresholds)},
            [scores],
            np.random.default_rng(0),
            resamples=_RESAMPLES,
        )["profile"]
        style = styles[arm]
        axes.plot(thresholds, interval.estimate, color=style.color, linestyle=style.dash)
        axes.fill_between(
            thresholds, interval.low, interval.high, color=style.color, alpha=0.18, linewidth=0
        )
    axes.set_ylim(-0.02, 1.02)
    return figure


def improvements(rows: Sequence[tuple[str, statistics.Interval]]) -> Figure:
    """Probabilities of improvement with their intervals, one pair of arms a row."""
    height = 0.6 + 0.26 * len(rows)
    figure = Figure(figsize=(4.2, height))
    axes = figure.add_axes((0.42, 0.44 / height, 0.55, 1 - 0.5 / height))
    for place, (_, interval) in enumerate(rows):
        axes.plot([interval.low, interval.high], [place, place], color=svg.ARMS[0], linewidth=2)
        axes.plot(interval.estimate, place, "o", color=svg.ARMS[0], markersize=5)
    axes.set_yticks(range(len(rows)), [_cut(label, 30) for label, _ in rows], fontsize=7)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(-0.02, 1.02)
    axes.axvline(0.5, color=svg.MUTED, linewidth=0.8)
    axes.set_xlabel("P(first scores higher)")
    return figure


def lines(drawn: Sequence[Line], label: str, level: float | None = None) -> Figure:
    """Lines over agent steps.

    Args:
        drawn: the lines; NaN leaves a gap.
        label: of the vertical axis.
        level: where to draw a thin line, for example at chance.
    """
    figure, axes = _panel("agent steps", label)
    for line in drawn:
        every = -(-len(line.x) // _MOST_POINTS)
        axes.plot(
            line.x[::every], line.y[::every],
            color=line.style.color, linestyle=line.style.dash, linewidth=1.2,
            marker="o" if len(line.x) < 15 else None, markersize=2.5,
        )  # fmt: skip
    if level is not None:
        axes.axhline(level, color=svg.MUTED, linewidth=0.8)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    return figure


def _draw_arm(axes: Axes, runs: Sequence[Run], style: Style) -> None:
    """Every seed as a thin line; of two finished seeds the mean, of three an interval too.

    Means and intervals are taken at the steps at which all finished seeds have an evaluation. A
    single seed has hollow points.
    """
    look = {"color": style.color, "linestyle": style.dash}
    is_single = len(runs) == 1
    for run in runs:
        axes.plot(
            [e.agent_steps for e in run.evaluations], [e.score for e in run.evaluations], **look,
            linewidth=1.3 if is_single else 0.6, alpha=1 if is_single else 0.55,
            marker="o", markersize=3 if is_single else 1.5,
            markerfacecolor=svg.GROUND if is_single else style.color,
        )  # fmt: skip
    curves = [
        {e.agent_steps: e.score for e in run.evaluations} for run in runs if run.returns is not None
    ]
    steps, scores = align(curves)
    if len(curves) < 2 or not steps:
        return
    axes.plot(steps, scores.mean(axis=0), **look, linewidth=2, marker="o", markersize=3)
    if len(curves) >= FEWEST_FOR_INTERVAL:
        interval = statistics.bootstrap_intervals(
            {"mean": lambda drawn: np.stack([x.mean(axis=-1) for x in drawn], axis=-1)},
            [list(scores.T)],
            np.random.default_rng(0),
            resamples=_RESAMPLES,
        )["mean"]
        axes.fill_between(
            steps, interval.low, interval.high, color=style.color, alpha=0.18, linewidth=0
        )


def _panel(x: str, y: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(4.2, 2.7))
    axes = figure.add_axes((0.11, 0.16, 0.86, 0.74))
    axes.set_xlabel(x)
    axes.set_title(y, loc="left", fontsize=9)
    return figure, axes


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"
