"""What a model knows, step by step."""

import pathlib
from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from rcrl_jax.training import curves

_COLORS = {"model": "#0b5394", "copy": "#d84315", "histogram": "#6a1b9a", "mixture": "#424242"}


def draw(path: pathlib.Path, model: Mapping[str, Any]) -> None:
    """Draws log-likelihoods by step, a panel for each kind of play, and the pixels that change.

    Args:
      path: PNG to write.
      model: what `measure.measure_model` returns.
    """
    figure = Figure(figsize=(3.4 * (len(model) + 1), 3.2), dpi=100, layout="constrained")
    *panels, last = figure.subplots(1, len(model) + 1)
    for panel, (play, found) in zip(panels, model.items(), strict=True):
        for name, values in found["pixels"]["by_step"].items():
            panel.plot(range(1, len(values) + 1), values, ".-", color=_COLORS[name], label=name)
        panel.set(title=f"{play} play", ylabel="log-likelihood of a frame [nats]")
        right = found["changing_pixels"]["right_by_step"]
        last.plot(range(1, len(right) + 1), right, ".-", label=play)
    last.set(title="pixels that change", ylabel="share that the model has right", ylim=(0, 1.02))
    for panel in (*panels, last):
        panel.set_xlabel("steps since the last true frame")
        panel.legend(fontsize=8, frameon=False)
        panel.grid(color="#eeeeee")
    curves.save_figure(figure, path)
