"""The learning curve of one run, drawn from its records."""

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter
from PIL import Image

from rcrl_jax import files, reference
from rcrl_jax.runs import records
from rcrl_jax.runs.paths import RunPaths

_MEAN, _EVALUATION, _RANGE, _TRAINING = "#0b5394", "#7ba6d0", "#e3ecf5", "#c3c6ca"
_REFERENCES = {"random": "#666666", "human": "#741b47", "paper": "#cc0000"}


def draw_learning_curve(paths: RunPaths) -> None:
    """Draws `curve.png` from `metrics.jsonl` and `evaluations.jsonl` of one run.

    It has the return of every evaluation episode, their mean and their 10-90 % range, the training
    episodes behind them, and the published scores as dashed lines; the human score only if it does
    not flatten the curve.

    Args:
        paths: the run's files.

    Raises:
        FileNotFoundError: the run has no records.
        Damaged: a line is not a record.
        OSError: the picture cannot be written.
    """
    metrics = records.read_metrics(paths.metrics)
    # If a step has two evaluations, the later one counts.
    evaluations = {
        record["agent_steps"]: record for record in records.read_evaluations(paths.evaluations)
    }
    figure = Figure(figsize=(7.5, 4.2), dpi=120, layout="constrained")
    panel = figure.subplots()
    _draw_returns(panel, metrics, list(evaluations.values()))
    _draw_references(panel, paths.game, paths.preset)
    panel.set_title(f"{paths.preset} on {paths.game}, seed {paths.seed}", loc="left")
    panel.legend(
        loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=8, frameon=False, borderpad=0
    )
    panel.grid(color="#eeeeee")
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    panel.xaxis.set_major_formatter(EngFormatter(sep=""))
    panel.set_xlabel("agent steps")
    save_figure(figure, paths.curve)


def save_figure(figure: Figure, path: pathlib.Path) -> None:
    """Writes a PNG atomically: `path` holds the complete old or new picture."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    picture = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    with files.replacing(path) as partial:
        # These files are kept in the repository; 64 colours make them a third as large.
        picture.quantize(64, dither=Image.Dither.NONE).save(partial, optimize=True)


def _draw_returns(
    panel: Axes, metrics: Sequence[dict[str, Any]], evaluations: Sequence[dict[str, Any]]
) -> None:
    panel.set_ylabel("return of an episode, unclipped")
    if evaluations:
        steps = _column(evaluations, "agent_steps")
        returns = [np.asarray(record["returns"], np.float64) for record in evaluations]
        low, high = np.transpose([np.percentile(episodes, (10, 90)) for episodes in returns])
        panel.plot(
            steps, _column(evaluations, "mean"), "o-", color=_MEAN, markersize=4, zorder=4,
            label="mean of an evaluation",
        )  # fmt: skip
        panel.plot(
            np.repeat(steps, [len(episodes) for episodes in returns]), np.concatenate(returns),
            ".", color=_EVALUATION, markersize=3.5, zorder=3, label="evaluation episode",
        )  # fmt: skip
        panel.fill_between(
            steps, low, high, color=_RANGE, linewidth=0, zorder=1, label="10-90 % of its episodes"
        )
    training = [record for record in metrics if "episode_return" in record]
    if training:
        panel.plot(
            _column(training, "agent_steps"), _column(training, "episode_return"),
            ".", color=_TRAINING, markersize=2.5, zorder=2, label="training episode",
        )  # fmt: skip


def _draw_references(panel: Axes, game: str, preset: str) -> None:
    if reference.family_of(game, preset) != "atari":
        return
    lines = {"random": ("random", reference.published(game, "Random"))}
    column = reference.PAPER_COLUMN.get(preset)
    if column is not None:
        lines["paper"] = (f"{column}, published", reference.published(game, column))
    low, high = panel.get_ylim() if panel.has_data() else (np.inf, -np.inf)
    low = min(low, *(score for _, score in lines.values()))
    high = max(high, *(score for _, score in lines.values()))
    human = reference.published(game, "Human")
    if human <= high + 0.25 * (high - low):
        lines["human"] = ("human", human)
    for name, (label, score) in lines.items():
        panel.axhline(
            score, color=_REFERENCES[name], linestyle="--", linewidth=1, label=f"{label} {score:g}"
        )


def _column(rows: Sequence[dict[str, Any]], key: str) -> np.ndarray:
    return np.array([row[key] for row in rows], np.float64)
