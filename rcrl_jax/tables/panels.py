"""The figures of the HTML report (`page.py`): one game each, small enough for a phone.

Every function returns a figure made under `drawing()`; `to_uri` turns it into a data URI.
"""

import base64
import contextlib
import io
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends import backend_svg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rcrl_jax import reference
from rcrl_jax.tables import registered, runs, statistics, summary
from rcrl_jax.tables.table import short

_SETTINGS = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "page",  # else identifiers are random
    "text.parse_math": False,  # names may hold dollars
    "axes.formatter.use_mathtext": False,
    # Readable on the page: 11 pixels or more where a panel is 300 wide.
    "font.size": 11,
    "legend.fontsize": 11,
    "legend.frameon": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#d8dee4",
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_FIRST = ("rcrl", "erainbow_sa", "curl", "rcrl_curl", "rcrl_sac", "sac_aug", "curl_sac")
_GRAY = "#6e7781"


_AUCS = {
    "unseen_auc_equal_action": "AUC, equal action",
    "unseen_auc": "AUC, all pairs",
    "unseen_auc_equal_return": "AUC across episodes",
}
_MEASURES: dict[str, dict[str, tuple[str, str]]] = {
    "length of segments [agent steps]": {
        "segment_length_p90": ("dashed", "90 % are shorter"),
        "segment_length_p50": ("solid", "median"),
        "segment_length_p10": ("dotted", "10 % are shorter"),
    },
    "cosine to the anchor, training batches": {
        "cosine_positive": ("solid", "positives"),
        "cosine_negative": ("dashed", "negatives"),
    },
    **{
        f"{words}, unseen episodes": {
            name: ("solid", "the discriminator"),
            f"{name}_clock": ("dotted", "a clock, on the same pairs"),
            f"{name}_matched_time": ("dashed", "the discriminator at matched time"),
        }
        for name, words in _AUCS.items()
    },
    "cosine to the anchor, unseen, equal action": {
        "unseen_cosine_positive_equal_action": ("solid", "positives"),
        "unseen_cosine_negative_equal_action": ("dashed", "negatives"),
    },
}
"""Title of a panel -> its measures, each with line style and legend text."""


class Style(NamedTuple):
    """How an arm is drawn in all panels."""

    color: str
    dash: str = "solid"

    @property
    def dasharray(self) -> str:
        """SVG's `stroke-dasharray`, for a line of width 3."""
        return {"dashed": "9 4", "dotted": "3 3", "dashdot": "9 3 3 3"}.get(self.dash, "none")


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Settings under which figures of the page are made; call `to_uri` in the same block."""
    with matplotlib.rc_context(_SETTINGS):
        yield


def styles(arms: Sequence[str]) -> dict[str, Style]:
    """Arm -> how it is drawn everywhere; colours first, then dashes.

    The arms that are compared most have the first colours, which everybody can tell apart.
    """
    arms = [*(arm for arm in _FIRST if arm in arms), *(arm for arm in arms if arm not in _FIRST)]
    dashes = ("solid", "dashed", "dotted", "dashdot")
    colors = map(matplotlib.colors.to_hex, matplotlib.color_sequences["petroff10"])
    looks = itertools.product(dashes, colors)
    return {
        arm: Style(color, dash)
        for arm, (dash, color) in zip(arms, itertools.cycle(looks), strict=False)
    }


def to_uri(figure: Figure) -> str:
    """The figure as a data URI; equal figures give equal URIs."""
    # Lays the figure out here: `savefig` would draw everything once more to do so.
    backend_svg.FigureCanvasSVG(figure)
    figure.dpi = 72  # that of every SVG
    figure.get_layout_engine().execute(figure)
    figure.set_layout_engine(None)
    file = io.BytesIO()
    empty = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(file, format="svg", metadata=empty)
    return f"data:image/svg+xml;base64,{base64.b64encode(file.getvalue()).decode()}"


def learning_curves(
    frame: pd.DataFrame, looks: Mapping[str, Style], random: float | None = None
) -> Figure:
    """Evaluation scores over agent steps, for runs of one game under equal conditions.

    Unfinished runs are drawn, but no mean includes them. A horizontal line shows `random`, the
    published score of random play.
    """
    figure, axes = _panel("agent steps", "score")
    for arm, of_arm in frame.groupby("arm", sort=False):
        _draw_arm(axes, of_arm, looks[arm])
    if random is not None:
        axes.axhline(random, color=_GRAY, linestyle="dotted", linewidth=1)
    axes.yaxis.set_major_formatter(short)
    return figure


def profiles(comparison: summary.Comparison, looks: Mapping[str, Style]) -> Figure:
    """The share of an arm's runs above each score: higher is better."""
    figure, axes = _panel(f"score, {comparison.unit}", "share of runs above")
    every = np.concatenate([game for arm in comparison.scores.values() for game in arm])
    levels = np.linspace(every.min(), every.max(), 200)
    estimator = statistics.performance_profile(levels)
    for arm, scores in comparison.scores.items():
        _draw_estimate(axes, levels, estimator, scores, looks[arm], comparison.has_intervals)
    axes.set_ylim(0, 1.02)
    return figure


def efficiency(
    frame: pd.DataFrame, comparison: summary.Comparison, looks: Mapping[str, Style]
) -> Figure | None:
    """The interquartile mean of an arm's runs at the steps at which all runs were evaluated.

    Args:
        frame: runs of one pool.
        comparison: of these runs.
        looks: as `styles` returns them.

    Returns:
        None without such a step, for example because a run has diverged.
    """
    own = frame[frame.score.notna() & frame.game.isin(comparison.games)]
    own = own[own.arm.isin(comparison.scores)]
    if own.diverged.any():  # without its last steps its arm would look better
        return None
    points = runs.evaluations(own)
    points = points.assign(score=[*map(reference.normalised, points.game, points.score)])
    places = ["arm", "game", "run"]
    table = points.pivot(index=places, columns="env_steps", values="score").dropna(axis=1)
    if table.empty:
        return None
    figure, axes = _panel("environment steps", f"interquartile mean, {comparison.unit}")
    for arm in table.index.unique("arm"):
        games = [game.to_numpy() for _, game in table.loc[arm].groupby("game")]  # [n_g, steps]
        _draw_estimate(
            axes, table.columns, _iqm_by_step, games, looks[arm], comparison.has_intervals
        )
    return figure


def describe(frame: pd.DataFrame) -> str:
    """How many seeds of each arm are drawn, and how many of them are unfinished or diverged."""
    return "; ".join(f"{arm}, {_count(seeds)}" for arm, seeds in frame.groupby("arm", sort=False))


def measures(points: pd.DataFrame, looks: Mapping[str, Style]) -> Iterator[tuple[str, Figure]]:
    """Titles and figures of measures other than scores, for one game's runs of one pool.

    A line is the mean over the runs of an arm that have the measure, at the steps that all of them
    recorded. A panel without lines is left out.
    """
    points = points.dropna(axis="columns", how="all")
    # [(agent_steps, run), measure]; evaluations and metrics of a step share a row, but no measure
    tables = {
        arm: of_arm.drop(columns="arm").groupby(["agent_steps", "run"]).last()
        for arm, of_arm in points.groupby("arm", sort=False)
    }
    for title, lines in _MEASURES.items():
        found = [
            (arm, dash, meaning, values)
            for arm, table in tables.items()
            for name, (dash, meaning) in lines.items()
            if name in table and len(values := _of_runs(table[name]))
        ]
        if not found:
            continue
        figure, axes = _panel("agent steps", title)
        meanings = {}
        for arm, dash, meaning, values in found:
            mean = values.mean(axis=1)
            shown = mean.iloc[:: -(-len(mean) // 200)]  # a panel has no more pixels
            axes.plot(
                shown.index, shown, color=looks[arm].color, linestyle=dash, linewidth=1.2,
                marker="o" if len(mean) < 15 else None, markersize=2.5,
                label=f"{arm} ({values.shape[1]}), {meaning}",
            )  # fmt: skip
            meanings[meaning] = Line2D([], [], color=_GRAY, linestyle=dash, label=meaning)
        if "AUC" in title:
            axes.axhline(0.5, color=_GRAY, linewidth=0.8)
        figure.legend(handles=[*meanings.values()], loc="outside lower left")
        yield title, figure


def _of_runs(values: pd.Series) -> pd.DataFrame:
    """Values `[step, run]` of the runs that have a measure, at the steps that all of them have."""
    return values.dropna().unstack("run").dropna()


def _draw_arm(axes: Axes, frame: pd.DataFrame, style: Style) -> None:
    """Draws each seed thin, and the mean of 2 or more finished ones, with an interval from 3 on.

    Means and intervals are taken at the steps at which all finished seeds have an evaluation. A
    single seed has hollow points. Seeds of pre-registered lists have no interval here: those are
    judged once, by their own programs.
    """
    look = {"color": style.color, "linestyle": style.dash, "marker": "o"}
    points = runs.evaluations(frame)
    if len(frame) == 1:
        look |= {"linewidth": 1.3, "markersize": 3, "markerfacecolor": "white"}
    else:
        look |= {"linewidth": 0.6, "markersize": 1.5, "alpha": 0.55}
    for _, of_run in points.groupby("run"):
        axes.plot(of_run.agent_steps, of_run.score, **look)
    whole = frame.index[frame.returns.notna()]
    scores = runs.at_common_steps(points[points.run.isin(whole)], "agent_steps", "score")
    if scores.shape[1] < 2 or scores.empty:
        return
    seeds = scores.to_numpy(np.float64).T  # [n, steps]
    has_interval = len(seeds) >= statistics.FEWEST_FOR_INTERVAL and not registered.holds_any(frame)
    _draw_estimate(axes, scores.index, _mean_by_step, [seeds], style, has_interval)


def _draw_estimate(
    axes: Axes,
    x: Sequence[float],
    estimator: Callable[[statistics.Scores], np.ndarray],
    scores: statistics.Scores,
    style: Style,
    has_interval: bool,
) -> None:
    """A thick line, with a band for the interval."""
    found = summary.estimate({"": estimator}, [scores], has_interval)[""]
    marker = "o" if len(x) < 30 else None
    axes.plot(
        x, found.estimate, color=style.color, linestyle=style.dash, linewidth=2,
        marker=marker, markersize=3,
    )  # fmt: skip
    if has_interval:
        axes.fill_between(x, found.low, found.high, color=style.color, alpha=0.18, linewidth=0)


def _mean_by_step(scores: statistics.Scores) -> np.ndarray:
    """Means over the runs `[..., n, steps]` of one game."""
    return scores[0].mean(axis=-2)


def _iqm_by_step(scores: statistics.Scores) -> np.ndarray:
    """Interquartile means of runs `[..., n_g, steps]` of each game."""
    return statistics.interquartile_mean([np.swapaxes(game, -2, -1) for game in scores])


def _count(frame: pd.DataFrame) -> str:
    """How many seeds there are, and how many of them are unfinished or diverged."""
    words = [f"seed {frame.seed.iloc[0]} alone" if len(frame) == 1 else f"{len(frame)} seeds"]
    counts = {"unfinished": frame.score.isna().sum(), "diverged": frame.diverged.sum()}
    return ", ".join(words + [f"{count} {name}" for name, count in counts.items() if count])


def _panel(x: str, title: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(4.2, 2.9), layout="constrained")
    figure.suptitle(title, x=0.01, horizontalalignment="left", fontsize="medium")
    axes = figure.add_subplot()
    axes.set_xlabel(x)
    axes.xaxis.set_major_formatter(short)
    return figure, axes
