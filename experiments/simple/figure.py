"""Draws what a model knows at each step, and what the policy gains by learning in the model."""

import pathlib
from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from rcrl_jax.training import curves

_COLORS = {"model": "#0b5394", "copy": "#d84315", "histogram": "#6a1b9a", "mixture": "#424242"}


def draw(path: pathlib.Path, measured: Mapping[str, Any]) -> None:
    """Writes a PNG of what `measure` returns as `model` and `play`, and of the learning curve."""
    model = measured["model"]
    figure = Figure(figsize=(3.2 * (len(model) + 2), 3.0), dpi=100, layout="constrained")
    *panels, last, returns = figure.subplots(1, len(model) + 2)
    for panel, (play, found) in zip(panels, model.items(), strict=True):
        for name, values in found["pixels"]["by_step"].items():
            dash = "--" if name == "mixture" else "-"  # it may lie on the histogram
            steps = range(1, len(values) + 1)
            panel.plot(steps, values, "." + dash, color=_COLORS[name], label=name)
        panel.set(title=f"{play} play", ylabel="log-likelihood of a frame [nats]")
        right = found["changing_pixels"]["right_by_step"]
        last.plot(range(1, len(right) + 1), right, ".--" if last.lines else ".-", label=play)
    last.set(title="pixels that change", ylabel="share that the model has right", ylim=(0, 1.02))
    for panel in (*panels, last):
        panel.set_xlabel("steps since the last true frame")
    steps = [int(step) for step in measured["curve"]]
    returns.plot(
        steps, list(measured["curve"].values()), ".-", color=_COLORS["model"], label="policy"
    )
    null = measured["play"]["best_null"]
    returns.axhline(measured["play"][null]["mean"], color="#888888", ls="--", lw=1, label=null)
    returns.set(title="real game", xlabel="agent steps", ylabel="return of an episode")
    for panel in (*panels, last, returns):
        panel.legend(fontsize=8, frameon=False)
        panel.grid(color="#eeeeee")
    curves.save_figure(figure, path)
