"""The paper's similarity figures, and the linear probe's, drawn from recorded lines."""

import itertools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from rcrl_jax.training import curves

# One hue per preset, repeated in a cycle; dark for positives, light for negatives.
_SHADES = (("#00695c", "#80cbc4"), ("#d84315", "#ffab91"), ("#283593", "#9fa8da"),
           ("#6a1b9a", "#ce93d8"), ("#424242", "#bdbdbd"))  # fmt: skip
_PANELS = {"held_out": "pairs of evaluation episodes", "replay": "pairs of the replay"}


def draw_similarity(
    path: pathlib.Path,
    lines: Sequence[Mapping[str, Any]],
    scores: Sequence[Mapping[str, Any]],
    title: str,
) -> None:
    """Draws similarities and scores over training, as figures 5 and 6 of the paper.

    With several seeds, a thick curve is their mean, and thin curves are the seeds.

    Args:
      path: PNG to write.
      lines: `preset`, `seed`, `agent_steps`, `pairs`, `cosine_positive`, `cosine_negative`.
      scores: `preset`, `seed`, `agent_steps`, `mean` of every evaluation.
      title: of the figure.
    """
    presets = list(dict.fromkeys(line["preset"] for line in lines))
    figure = Figure(figsize=(13, 4), dpi=100, layout="constrained")
    panels = figure.subplots(ncols=3)
    for panel, (kind, name) in zip(panels, _PANELS.items(), strict=False):
        of_kind = [line for line in lines if line["pairs"] == kind]
        for preset, shades in zip(presets, itertools.cycle(_SHADES), strict=False):
            own = [line for line in of_kind if line["preset"] == preset]
            for sign, color in zip(("positive", "negative"), shades, strict=True):
                _curves(panel, own, f"cosine_{sign}", color, f"{preset}, {sign}")
        panel.set(title=name, ylabel="cosine similarity to the anchor", ylim=(None, 1.02))
    for preset, (color, _) in zip(presets, itertools.cycle(_SHADES), strict=False):
        own = [line for line in scores if line["preset"] == preset]
        _curves(panels[2], own, "mean", color, preset)
    panels[2].set(title="score", ylabel="mean return of an evaluation")
    _finish(figure, title, path)


def _finish(figure: Figure, title: str, path: pathlib.Path) -> None:
    """Labels the panels over agent steps, and writes the figure."""
    for panel in figure.axes:
        panel.set_xlabel("agent steps")
        panel.xaxis.set_major_formatter(EngFormatter(sep=""))
        if panel.get_legend_handles_labels()[0]:
            panel.legend(fontsize=8, frameon=False)
        panel.grid(color="#eeeeee")
    figure.suptitle(title)
    curves.save_figure(figure, path)


def draw_probe(path: pathlib.Path, lines: Sequence[Mapping[str, Any]], title: str) -> None:
    """Draws what a linear probe explains, before and after training, seed by seed, with its nulls.

    Args:
      path: PNG to write.
      lines: `preset`, `seed`, `agent_steps`, `explained_variance` of phi, of the step number
        (`_clock`) and of a constant (`_constant`); two per seed. The last two are the same in all.
      title: of the figure.
    """
    presets = list(dict.fromkeys(line["preset"] for line in lines))
    figure = Figure(figsize=(1.5 + 1.6 * len(presets), 4), dpi=100, layout="constrained")
    panel = figure.subplots()
    for place, (preset, (color, _)) in enumerate(
        zip(presets, itertools.cycle(_SHADES), strict=False)
    ):
        own = [line for line in lines if line["preset"] == preset]
        for seed in dict.fromkeys(line["seed"] for line in own):
            pair = sorted(
                (line["agent_steps"], line["explained_variance"])
                for line in own
                if line["seed"] == seed
            )
            panel.plot(
                [place - 0.15, place + 0.15], [value for _, value in pair], "o-", color=color
            )
    for kind, words, dash in (("clock", "step number", ":"), ("constant", "constant", "--")):
        null = lines[0][f"explained_variance_{kind}"]
        panel.axhline(null, color="#000000", ls=dash, lw=1, label=f"probe on the {words}")
    panel.legend(fontsize=8, frameon=False)
    panel.axhline(0, color="#888888", linewidth=0.8)
    panel.set_xticks(range(len(presets)), presets)
    panel.set(ylabel="explained variance (R²), unseen episodes", title=title)
    panel.set_xlabel("each line: one seed, before and after training")
    panel.grid(color="#eeeeee", axis="y")
    curves.save_figure(figure, path)


def _curves(
    panel: Axes,
    lines: Sequence[Mapping[str, Any]],
    key: str,
    color: str,
    label: str,
) -> None:
    by_seed: dict[int, dict[int, float]] = {}
    for line in lines:
        by_seed.setdefault(line["seed"], {})[line["agent_steps"]] = line[key]
    if not by_seed:
        return
    common = sorted(set.intersection(*(set(values) for values in by_seed.values())))
    if len(by_seed) > 1:
        for values in by_seed.values():
            panel.plot(*zip(*sorted(values.items()), strict=True), color=color, lw=0.5, alpha=0.5)
    mean = [np.mean([values[step] for values in by_seed.values()]) for step in common]
    panel.plot(common, mean, color=color, lw=1.8, label=label)
