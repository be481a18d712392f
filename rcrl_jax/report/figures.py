"""Figures: learning curves on DMControl over published ones."""

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from rcrl_jax import reference
from rcrl_jax.report.alignment import align
from rcrl_jax.report.score_columns import short_steps
from rcrl_jax.report.tables import escape_math
from rcrl_jax.results import pools
from rcrl_jax.results.runs import Run

PUBLISHED_CURVES = {
    "SLAC [decoder var 0.1]": "SLAC",
    "Dreamer v1 [repo, 100k-bin means]": "Dreamer (means of bins)",
    "DrQ": "DrQ",
    "DrQ-v2": "DrQ-v2",
    "CURL [DreamerV3-repo baseline curves]": "CURL (re-run)",
    "Pixel SAC [DreamerV3-repo baseline curves]": "Pixel SAC (re-run)",
}
"""Agent of `reference.dmc_curves` -> its name in the legend."""
PUBLISHED_POINTS = ("State SAC", "CURL", "SAC+AE", "PlaNet", "Dreamer", "Pixel SAC")
"""Agents of `reference.dmc_scores` that the paper's figure shows; only two points are known."""

# Okabe and Ito's palette, readable with every common colour blindness. A published agent has the
# colour of our preset of the same kind; the others are grey or muted, and all differ by dashes.
_OURS = {
    "rcrl_sac": "#D55E00",
    "curl_sac": "#0072B2",
    "rcrl_curl_sac": "#CC79A7",
    "sac_aug": "#009E73",
    "pixel_sac": "#56B4E9",
    "sac_ae": "#E69F00",
    "state_sac": "#000000",
}
_OTHERS = ("#44AA99", "#332288", "#AA4499", "#117733")
_PUBLISHED = {
    "SLAC [decoder var 0.1]": ("#999933", (0, (1, 1))),
    "Dreamer v1 [repo, 100k-bin means]": ("#882255", (0, (6, 2))),
    "DrQ": ("#999999", "solid"),
    "DrQ-v2": ("#444444", (0, (6, 2, 1, 2))),
    "CURL [DreamerV3-repo baseline curves]": (_OURS["curl_sac"], (0, (4, 1.5))),
    "Pixel SAC [DreamerV3-repo baseline curves]": (_OURS["pixel_sac"], (0, (4, 1.5))),
}
_MARKERS = {
    "State SAC": ("*", _OURS["state_sac"]),
    "CURL": ("s", _OURS["curl_sac"]),
    "SAC+AE": ("D", _OURS["sac_ae"]),
    "PlaNet": ("^", "#777777"),
    "Dreamer": ("v", "#882255"),
    "Pixel SAC": ("o", _OURS["pixel_sac"]),
}


class Curve(NamedTuple):
    """A learning curve over runs.

    Attributes:
        env_steps: `[T]`, environment steps.
        mean: `[T]`, over runs.
        deviation: `[T]`, sample standard deviation over runs; None for a single run.
        runs: number of runs.
    """

    env_steps: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray | None
    runs: int


def dmc_curves(runs: Sequence[Run], *, published: bool = True, end: int | None = None) -> Figure:
    """Learning curves on the six tasks: ours over published ones.

    Ours are thick: the mean of an arm's runs, with the standard deviation shaded. A single run has
    points instead of a shade. Runs of different conditions are never averaged. Published curves are
    thin means, published scores are open markers.

    Args:
        runs: finished or not; those without evaluations and those of Atari are left out.
        published: whether to draw the published results.
        end: environment steps of the axis, by default those of the paper, 500,000; longer runs
            make it longer.
    """
    figure = Figure(figsize=(11, 6.4), layout="constrained")
    panels = figure.subplots(nrows=2, ncols=3, sharex=True, sharey=True)
    runs = [run for run in runs if run.family == "dmc" and run.evaluations]
    groups = _groups(runs)
    end = max([end or 500_000, *(run.evaluations[-1].env_steps for run in runs)])
    for panel, task in zip(panels.flat, reference.tasks(), strict=True):
        if published:
            _draw_published(panel, task, end)
        for label, (color, own) in groups.items():
            of_task = [run for run in own if run.game == task]
            if of_task:
                _draw_curve(panel, average(of_task), color, label)
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
    handles: dict[str, object] = {}
    for panel in panels.flat:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    ours = [label for label in groups if label in handles]
    labels = [*ours, *(label for label in handles if label not in ours)]
    figure.legend(
        [handles[label] for label in labels], labels, loc="outside right upper", fontsize=8,
        frameon=False,
    )  # fmt: skip
    return figure


def average(runs: Sequence[Run]) -> Curve:
    """Mean and standard deviation over runs, at the steps at which all of them were evaluated.

    Diverged runs, whose evaluations end early, do not count where another run is left.

    Args:
        runs: of one task and arm, each with evaluations.
    """
    runs = [run for run in runs if not run.diverged] or runs
    steps, values = align([{e.env_steps: e.score for e in r.evaluations} for r in runs])
    deviation = values.std(axis=0, ddof=1) if len(runs) > 1 else None
    return Curve(np.array(steps), values.mean(axis=0), deviation, len(runs))


def published_curve(agent: str, task: str) -> Curve | None:
    """The mean of an agent's published curves at the steps that all of its runs have.

    Returns:
        None if there is no curve of the task.
    """
    scores: dict[int, dict[int, float]] = {}
    for row in reference.dmc_curves():
        if (row.agent, row.task) == (agent, task):
            scores.setdefault(row.seed, {})[row.env_steps] = row.score
    if not scores:
        return None
    steps, values = align(list(scores.values()))
    return Curve(np.array(steps), values.mean(axis=0), None, len(scores))


def _groups(runs: Sequence[Run]) -> Mapping[str, tuple[str, list[Run]]]:
    """Label -> colour and runs of one arm and of equal conditions, in the order of the presets."""
    sets: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        sets.setdefault((run.arm, pools.conditions_key(run)), []).append(run)
    place = {name: number for number, name in enumerate(_OURS)}
    ordered = sorted(sets, key=lambda key: (place.get(key[0], len(place)), key))
    others = itertools.cycle(_OTHERS)
    groups = {}
    for key in ordered:
        arm, own = key[0], sets[key]
        counts = {sum(run.game == task for run in own) for task in {run.game for run in own}}
        seeds = f"{min(counts)} to {max(counts)} seeds" if len(counts) > 1 else _seeds(*counts)
        label = escape_math(f"{arm}, {seeds}")
        if sum(other[0] == arm for other in sets) > 1:
            label += f", {short_steps(own[0].env_steps)} steps"
        taken = [known for known in groups if known.startswith(label)]
        label += f" ({len(taken) + 1})" * bool(taken)
        color = _OURS.get(own[0].preset)
        is_free = color is not None and color not in [used for used, _ in groups.values()]
        groups[label] = (color if is_free else next(others), own)
    return groups


def published_notes() -> list[str]:
    """How the published curves were measured; the markers are scores of the table."""
    return [
        f"{name} (published curve): {reference.protocol_note('dmc', agent)}."
        for agent, name in PUBLISHED_CURVES.items()
    ]


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"


def _draw_curve(panel: Axes, curve: Curve, color: str, label: str) -> None:
    style = "o-" if curve.runs == 1 else "-"
    panel.plot(
        curve.env_steps, curve.mean, style, color=color, linewidth=2, markersize=3, zorder=4,
        label=label,
    )  # fmt: skip
    if curve.deviation is not None:
        low, high = curve.mean - curve.deviation, curve.mean + curve.deviation
        panel.fill_between(
            curve.env_steps, low, high, color=color, alpha=0.2, linewidth=0, zorder=3
        )


def _draw_published(panel: Axes, task: str, end: int) -> None:
    for agent, name in PUBLISHED_CURVES.items():
        curve = published_curve(agent, task)
        if curve is not None:
            color, style = _PUBLISHED[agent]
            panel.plot(
                curve.env_steps, curve.mean, color=color, linestyle=style, linewidth=0.9,
                zorder=2, label=f"{name}, published",
            )  # fmt: skip
    for row in reference.dmc_scores():
        # Points are not clipped: one at the end of the axis would lose half of its marker.
        if row.task == task and row.agent in PUBLISHED_POINTS and row.env_steps <= end:
            marker, color = _MARKERS[row.agent]
            panel.plot(
                row.env_steps, row.mean, marker, color=color, markersize=6, fillstyle="none",
                markeredgewidth=1.1, linestyle="none", zorder=2.5, clip_on=False,
                label=f"{row.agent}, published",
            )  # fmt: skip
