"""The figures of the page: one game each, small enough for a phone.

Every function returns a figure made under `drawing()`; `to_uri` turns it into the address of an
image that is part of the page.
"""

import base64
import contextlib
import io
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from benchmarks.tables import runs, statistics

FEWEST_FOR_INTERVAL = 3
"""Seeds from which on a mean has an interval; with two, resamples take only three values."""

_RESAMPLES = 2_000
_SETTINGS = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "page",  # else identifiers are random
    "text.parse_math": False,  # names may hold dollars
    "axes.formatter.use_mathtext": False,
    "font.size": 9,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#d8dee4",
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_FIRST = ("rcrl", "erainbow_sa", "curl", "rcrl_curl", "rcrl_sac", "sac_aug", "curl_sac")
_GRAY = "#6e7781"


class Style(NamedTuple):
    """How an arm is drawn in all panels."""

    color: str
    dash: str = "solid"


class Line(NamedTuple):
    """One line of a panel: values by agent step, its style, and its label; none for no entry."""

    values: pd.Series
    style: Style
    label: str | None = None


class Bar(NamedTuple):
    """One bar: its label, its length, the runs behind it (none for published ones) and colour."""

    label: str
    value: float
    runs: Sequence[float]
    color: str = _GRAY


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Settings under which figures of the page are made; `to_uri` belongs into the same block."""
    with matplotlib.rc_context(_SETTINGS):
        yield


def styles(arms: Sequence[str]) -> dict[str, Style]:
    """Arm -> how it is drawn everywhere; colours first, then dashes.

    The arms that are compared most have the first colours, which everybody can tell apart.
    """
    arms = [*(arm for arm in _FIRST if arm in arms), *(arm for arm in arms if arm not in _FIRST)]
    dashes = ("solid", "dashed", "dotted", "dashdot")
    looks = itertools.product(dashes, matplotlib.color_sequences["petroff10"])
    return {
        arm: Style(color, dash)
        for arm, (dash, color) in zip(arms, itertools.cycle(looks), strict=False)
    }


def to_uri(figure: Figure) -> str:
    """The figure as an image that is part of the page: equal figures give equal text."""
    file = io.BytesIO()
    empty = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(file, format="svg", metadata=empty, bbox_inches="tight", pad_inches=0.05)
    return f"data:image/svg+xml;base64,{base64.b64encode(file.getvalue()).decode()}"


def learning_curves(
    frame: pd.DataFrame, looks: Mapping[str, Style], random: float | None = None
) -> Figure:
    """Scores of evaluations over agent steps, of runs of one game under equal conditions.

    Args:
        frame: the runs; unfinished ones are drawn, and take no part in a mean.
        looks: styles of the arms.
        random: published score of random play, drawn as a level.
    """
    figure, axes = _panel("agent steps", "score")
    for arm, own in frame.groupby("arm", sort=False):
        _draw_arm(axes, own, looks[arm], f"{arm}, {_count(own)}")
    if random is not None:
        axes.axhline(random, color=_GRAY, linestyle="dotted", linewidth=1,
                     label=f"random play, published: {random:g}")  # fmt: skip
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.yaxis.set_major_formatter(EngFormatter(sep=""))
    _add_legend(axes)
    return figure


def bars(rows: Sequence[Bar]) -> Figure:
    """Horizontal bars of human-normalised scores, in percent; runs as points."""
    figure = Figure(figsize=(4.2, 0.55 + 0.21 * len(rows)))
    axes = figure.add_subplot()
    for place, row in enumerate(rows):
        is_ours = bool(len(row.runs))
        axes.barh(
            place, 100 * row.value, height=0.7, linewidth=1, edgecolor=row.color,
            facecolor=row.color if is_ours else "none", alpha=0.55 if is_ours else 1,
        )  # fmt: skip
        points = 100 * np.asarray(row.runs)
        axes.plot(points, [place] * len(row.runs), "o", color="black", markersize=2.5)
    axes.set_yticks(range(len(rows)), [row.label for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.axvline(0, color=_GRAY, linewidth=0.8)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("human-normalised score [%]")
    return figure


def performance_profiles(
    arms: Mapping[str, statistics.Scores], looks: Mapping[str, Style]
) -> Figure:
    """Share of runs above each score, with 95 % stratified intervals.

    Args:
        arms: arm -> normalised scores, the same games in all.
        looks: styles of the arms.
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
        color, dash = looks[arm]
        label = f"{arm}, {sum(map(len, scores))} runs"
        axes.plot(thresholds, interval.estimate, color=color, linestyle=dash, label=label)
        axes.fill_between(thresholds, interval.low, interval.high, color=color, alpha=0.18)
    axes.set_ylim(-0.02, 1.02)
    _add_legend(axes)
    return figure


def lines(drawn: Sequence[Line], label: str, level: float | None = None) -> Figure:
    """Lines over agent steps.

    Args:
        drawn: the lines.
        label: of the vertical axis.
        level: where to draw a thin line, for example at chance.
    """
    figure, axes = _panel("agent steps", label)
    for line in drawn:
        shown = line.values.iloc[:: -(-len(line.values) // 200)]  # a panel has no more pixels
        axes.plot(
            shown.index, shown, color=line.style.color, linestyle=line.style.dash, linewidth=1.2,
            marker="o" if len(line.values) < 15 else None, markersize=2.5, label=line.label,
        )  # fmt: skip
    if level is not None:
        axes.axhline(level, color=_GRAY, linewidth=0.8)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    _add_legend(axes)
    return figure


def _draw_arm(axes: Axes, frame: pd.DataFrame, style: Style, label: str) -> None:
    """Every seed as a thin line; of two finished seeds the mean, of three an interval too.

    Means and intervals are taken at the steps at which all finished seeds have an evaluation. A
    single seed has hollow points.
    """
    look = {"color": style.color, "linestyle": style.dash}
    points = runs.evaluations(frame)
    is_single = len(frame) == 1
    for _, own in points.groupby("run"):
        axes.plot(
            own.agent_steps, own.score, **look, label=label,
            linewidth=1.3 if is_single else 0.6, alpha=1 if is_single else 0.55,
            marker="o", markersize=3 if is_single else 1.5,
            markerfacecolor="white" if is_single else style.color,
        )  # fmt: skip
        label = "_"  # one entry an arm
    whole = frame.index[frame.returns.notna()]
    scores = runs.at_common_steps(points[points.run.isin(whole)], "agent_steps", "score")
    if scores.shape[1] < 2 or scores.empty:
        return
    axes.plot(scores.index, scores.mean(axis=1), **look, linewidth=2, marker="o", markersize=3)
    if scores.shape[1] >= FEWEST_FOR_INTERVAL:
        interval = statistics.bootstrap_intervals(
            {"mean": lambda drawn: np.stack([x.mean(axis=-1) for x in drawn], axis=-1)},
            [list(scores.to_numpy(np.float64))],
            np.random.default_rng(0),
            resamples=_RESAMPLES,
        )["mean"]
        axes.fill_between(
            scores.index, interval.low, interval.high, color=style.color, alpha=0.18, linewidth=0
        )


def _count(frame: pd.DataFrame) -> str:
    """How many seeds, and which of them are no whole run."""
    words = [f"seed {frame.seed.iloc[0]} alone" if len(frame) == 1 else f"{len(frame)} seeds"]
    counts = {"unfinished": frame.score.isna().sum(), "diverged": frame.diverged.sum()}
    return ", ".join(words + [f"{count} {name}" for name, count in counts.items() if count])


def _panel(x: str, y: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(4.2, 2.7))
    axes = figure.add_subplot()
    axes.set_xlabel(x)
    axes.set_title(y, loc="left", fontsize=9)
    return figure, axes


def _add_legend(axes: Axes) -> None:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.2), borderaxespad=0)
