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

from rcrl_jax.tables import registered, runs, statistics

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
"""Title of a panel -> the measures in it, each with its dash and its words."""


class Style(NamedTuple):
    """How an arm is drawn in all panels."""

    color: str
    dash: str = "solid"


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

    Unfinished runs are drawn, and take no part in a mean. `random`, the published score of random
    play, is a level.
    """
    figure, axes = _panel("agent steps", "score")
    for arm, own in frame.groupby("arm", sort=False):
        _draw_arm(axes, own, looks[arm], f"{arm}, {_count(own)}")
    if random is not None:
        axes.axhline(random, color=_GRAY, linestyle="dotted", linewidth=1,
                     label=f"random play, published: {random:g}")  # fmt: skip
    axes.yaxis.set_major_formatter(EngFormatter(sep=""))
    return _finish(figure, axes)


def measures(points: pd.DataFrame, looks: Mapping[str, Style]) -> Iterator[tuple[str, Figure]]:
    """Titles and figures of what one game's runs of one pool measured beside their scores.

    A line is the mean over an arm's runs, at the steps at which all that have the measure recorded
    it. A panel without lines is left out.
    """
    for title, lines in _MEASURES.items():
        figure, axes = _panel("agent steps", title)
        for arm, own in points.groupby("arm", sort=False):
            for name, (dash, words) in lines.items():
                if name in own and len(values := _of_runs(own, name)):
                    mean = values.mean(axis=1)
                    shown = mean.iloc[:: -(-len(mean) // 200)]  # a panel has no more pixels
                    axes.plot(
                        shown.index, shown, color=looks[arm].color, linestyle=dash, linewidth=1.2,
                        marker="o" if len(mean) < 15 else None, markersize=2.5,
                        label=f"{arm} ({values.shape[1]}), {words}",
                    )  # fmt: skip
        if axes.lines:
            if "AUC" in title:
                axes.axhline(0.5, color=_GRAY, linewidth=0.8)
            yield title, _finish(figure, axes)


def _of_runs(points: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Values `[step, run]` of the runs that have the measure."""
    own = points[["run", "agent_steps", measure]].dropna()
    own = own.drop_duplicates(["run", "agent_steps"], keep="last")
    return runs.at_common_steps(own, "agent_steps", measure)


def _draw_arm(axes: Axes, frame: pd.DataFrame, style: Style, label: str) -> None:
    """Every seed as a thin line; of two finished seeds the mean, of three an interval too.

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
    for _, own in points.groupby("run"):
        axes.plot(own.agent_steps, own.score, **look, label=label)
        label = "_"  # one entry an arm
    whole = frame.index[frame.returns.notna()]
    scores = runs.at_common_steps(points[points.run.isin(whole)], "agent_steps", "score")
    if scores.shape[1] < 2 or scores.empty:
        return
    look |= {"linewidth": 2, "markersize": 3, "alpha": 1}
    axes.plot(scores.index, scores.mean(axis=1), **look)
    is_listed = registered.CLAIM.holds(frame) | registered.LARGER.holds(frame)
    if scores.shape[1] >= statistics.FEWEST_FOR_INTERVAL and not is_listed.any():
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


def _finish(figure: Figure, axes: Axes) -> Figure:
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.2), borderaxespad=0)
    return figure
