"""Learning curves on DMControl: ours over published ones."""

import functools
import itertools
import textwrap

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from rcrl_jax import reference, words
from rcrl_jax.tables import arms, published, runs

# Okabe and Ito's palette, readable with every common colour blindness. A published agent has the
# colour of our preset of the same kind, in thin strokes; the others are grey or muted.
_CURL, _SAC, _SAC_AE, _STATE = "#0072b2", "#56b4e9", "#e69f00", "#000000"
_SLAC, _DREAMER, _PLANET = "#999933", "#882255", "#777777"
_OURS = {
    "rcrl_sac": "#d55e00",
    "curl_sac": _CURL,
    "rcrl_curl_sac": "#cc79a7",
    "sac_aug": "#009e73",
    "pixel_sac": _SAC,
    "sac_ae": _SAC_AE,
    "state_sac": _STATE,
    "slac": _SLAC,
    "dreamer": _DREAMER,
    "planet": _PLANET,
}
_OTHERS = ("#44aa99", "#332288", "#aa4499", "#117733")
"""Colours of further arms of a preset."""
PUBLISHED_CURVES = {
    "SLAC [decoder var 0.1]": ("SLAC", _SLAC, (0, (1, 1))),
    "Dreamer v1 [repo, 100k-bin means]": ("Dreamer (means of bins)", _DREAMER, (0, (6, 2))),
    "DrQ": ("DrQ", "#999999", "solid"),
    "DrQ-v2": ("DrQ-v2", "#444444", (0, (6, 2, 1, 2))),
    "CURL [DreamerV3-repo baseline curves]": ("CURL (re-run)", _CURL, (0, (4, 1.5))),
    "Pixel SAC [DreamerV3-repo baseline curves]": ("Pixel SAC (re-run)", _SAC, (0, (4, 1.5))),
}
"""Agent of `published.dmc_curves` -> name, colour and dashes."""
_SAME_SYSTEM = {
    "slac": "SLAC [decoder var 0.1]",
    "dreamer": "Dreamer v1 [repo, 100k-bin means]",
}
"""Preset -> the agent whose published runs are drawn one by one beside its own."""
PUBLISHED_POINTS = {
    "State SAC": ("*", _STATE),
    "CURL": ("s", _CURL),
    "SAC+AE": ("D", _SAC_AE),
    "PlaNet": ("^", _PLANET),
    "Dreamer": ("v", _DREAMER),
    "Pixel SAC": ("o", _SAC),
}
"""Agents of `reference.dmc_scores` that the paper's figure shows; only two points are known."""


def draw(frame: pd.DataFrame, end: int) -> Figure:
    """Learning curves on the six tasks: ours over published ones.

    Ours are thick: the mean of an arm's runs, with the standard deviation shaded. A single run has
    points instead of a shade. Published curves are thin means, published scores are open markers.
    Beside our runs of SLAC and Dreamer, each published run of the same system is a hairline.

    Args:
        frame: runs of DMControl, each arm's from one pool; runs without evaluations are left out.
        end: environment steps of the axis; longer runs make it longer.
    """
    figure = Figure(figsize=(11, 6.4), layout="constrained")
    panels = figure.subplots(nrows=2, ncols=3, sharex=True, sharey=True)
    evaluated = frame[frame.evaluations.map(len) > 0]
    points = runs.evaluations(evaluated)
    end = int(max([end, *points.env_steps]))
    free, others = dict(_OURS), itertools.cycle(_OTHERS)
    of_panel = dict(zip(reference.tasks(), panels.flat, strict=True))
    for arm, own in evaluated.groupby("arm", sort=False):
        preset = arms.preset_of(own.settings.iloc[0])
        color, label = free.pop(preset, None) or next(others), _label(arm, own)
        for task, of_task in own.groupby("game"):
            curve = average(points[points.run.isin(of_task.index)])
            _draw_curve(of_panel[task], curve, color, label)
            if published_runs := _SAME_SYSTEM.get(preset):
                _draw_published_runs(of_panel[task], published_runs, task)
    for task, panel in of_panel.items():
        _draw_published(panel, task, end)
        panel.set_title(task.replace("_", " "), loc="left", fontsize=10)
        panel.set(ylim=(0, 1030), xlim=(0, 1.03 * end))
        panel.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        panel.xaxis.set_major_formatter(EngFormatter(sep=""))
        panel.grid(color="#eeeeee")
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
    for panel in panels[-1]:
        panel.set_xlabel("environment steps")
    for panel in panels[:, 0]:
        panel.set_ylabel("return of an evaluation")
    handles = {}
    for panel in panels.flat:
        handles |= dict(zip(*reversed(panel.get_legend_handles_labels()), strict=True))
    order = sorted(handles, key=lambda label: label.endswith(", published"))
    labels = [textwrap.fill(label, 36) for label in order]
    # The legend's lines need 0.22 inches each.
    figure.set_figheight(max(6.4, 0.22 * sum(label.count("\n") + 1 for label in labels)))
    figure.legend(
        [handles[label] for label in order], labels, loc="outside right upper", fontsize=10,
        frameon=False,
    )  # fmt: skip
    return figure


def average(points: pd.DataFrame) -> pd.DataFrame:
    """Columns `mean`, `std` (sample) and `count` over runs, at the steps that all of them have.

    Args:
        points: evaluations of runs of one task and arm.
    """
    scores = runs.at_common_steps(points, "env_steps", "score")
    return scores.agg(["mean", "std", "count"], axis=1)


@functools.cache
def published_curve(agent: str, task: str) -> pd.Series:
    """The mean of an agent's published curves at the steps that all of its runs have.

    Returns:
        Return by environment step; empty if there is no curve of the task.
    """
    own = published.dmc_curves().query("agent == @agent and task == @task")
    points = own.rename(columns={"seed": "run"})
    return runs.at_common_steps(points, "env_steps", "score").mean(axis=1)


def published_notes() -> list[str]:
    """How the published curves were measured; the markers are scores of the table."""
    return [
        f"{name} (published curve): {published.note('dmc', agent)}."
        for agent, (name, *_) in PUBLISHED_CURVES.items()
    ]


def _label(arm: str, own: pd.DataFrame) -> str:
    """The name of an arm in the legend, with the number of its runs on a task."""
    low, high = own.groupby("game").size().agg(["min", "max"])
    seeds = f"{low} to {high} seeds" if low < high else words.count("seed", low)
    state = ", unfinished" if own.score.isna().any() else ""
    return f"{arm}, {seeds}{state}".replace("$", r"\$")  # no formula


def _draw_curve(panel: Axes, curve: pd.DataFrame, color: str, label: str) -> None:
    is_single = (curve["count"] == 1).all()
    panel.plot(
        curve.index, curve["mean"], "o-" if is_single else "-", color=color, linewidth=2,
        markersize=3, zorder=4, label=label,
    )  # fmt: skip
    if not is_single:
        low, high = curve["mean"] - curve["std"], curve["mean"] + curve["std"]
        panel.fill_between(curve.index, low, high, color=color, alpha=0.2, linewidth=0, zorder=3)


def _draw_published_runs(panel: Axes, agent: str, task: str) -> None:
    name, color, _ = PUBLISHED_CURVES[agent]
    curves = published.dmc_curves().query("agent == @agent and task == @task")
    for _, run in curves.groupby("seed"):
        panel.plot(
            run.env_steps, run.score, color=color, linewidth=0.5, alpha=0.5, zorder=1.5,
            label=f"{name}, single runs, published",
        )  # fmt: skip


def _draw_published(panel: Axes, task: str, end: int) -> None:
    for agent, (name, color, style) in PUBLISHED_CURVES.items():
        curve = published_curve(agent, task)
        if len(curve):
            panel.plot(
                curve.index, curve, color=color, linestyle=style, linewidth=0.9, zorder=2,
                label=f"{name}, published",
            )  # fmt: skip
    for row in reference.dmc_scores():
        # Points are not clipped: one at the end of the axis would lose half of its marker.
        if row.task == task and row.agent in PUBLISHED_POINTS and row.env_steps <= end:
            marker, color = PUBLISHED_POINTS[row.agent]
            panel.plot(
                row.env_steps, row.mean, marker, color=color, markersize=6, fillstyle="none",
                markeredgewidth=1.1, linestyle="none", zorder=2.5, clip_on=False,
                label=f"{row.agent}, published",
            )  # fmt: skip
