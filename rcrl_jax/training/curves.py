"""The learning curve of one run, drawn from its records."""

from __future__ import annotations

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
_CONTRAST = {"positive": ("#00695c", "#9fd0c8"), "negative": ("#d84315", "#f6bfa9")}
_AUCS = {
    "unseen_auc": ("AUC, all pairs", "#000000"),
    "unseen_auc_equal_action": ("AUC, equal action", "#0b5394"),
    "unseen_auc_equal_return": ("AUC, returns across games", "#6a1b9a"),
}
_UNSEEN = {
    name + kind: (label + words, color, style)
    for name, (label, color) in _AUCS.items()
    for kind, words, style in (
        ("", "", "o-"),
        ("_clock", ": a clock", ":"),
        ("_matched_time", ": at matched time", "--"),
    )
} | {
    "unseen_auc_action": ("AUC of actions alone", "#999999", "o-"),
    "unseen_cosine_positive_equal_action": ("cosine, positive, equal action", "#00695c", "--"),
    "unseen_cosine_negative_equal_action": ("cosine, negative, equal action", "#d84315", "--"),
    "unseen_cosine_positive_different_action": ("cosine, positive, other action", "#9fd0c8", ":"),
    "unseen_cosine_negative_different_action": ("cosine, negative, other action", "#f6bfa9", ":"),
}
_REFERENCES = {"random": "#666666", "human": "#741b47", "paper": "#cc0000"}


def draw_learning_curve(paths: RunPaths) -> None:
    """Draws `curve.png` from `metrics.jsonl` and `evaluations.jsonl` of one run.

    The first panel has the return of every evaluation episode, their mean and their 10-90 %
    range, the training episodes behind them, and the published scores as dashed lines; the human
    score only if it does not flatten the curve. A run with a return-contrast task gets a panel
    with cosine similarity to the anchor and accuracy of the discriminator on its batches, for
    positives and negatives. The last panel shows the measurements on the unseen episodes of the
    evaluations: areas under the ROC curve, beside each that of a clock on the same pairs and that
    of pairs at matched time, and cosines for equal and for different actions.

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
    contrast = [record for record in metrics if "cosine_positive" in record]

    unseen = [
        record
        for record in evaluations.values()
        if any(record.get(name) is not None for name in _UNSEEN)
    ]

    heights = [4.2] + [2.4] * bool(contrast) + [2.4] * bool(unseen)
    figure = Figure(figsize=(7.5, sum(heights)), dpi=120, layout="constrained")
    panels = figure.subplots(nrows=len(heights), sharex=True, squeeze=False, height_ratios=heights)[
        :, 0
    ]
    _draw_returns(panels[0], metrics, list(evaluations.values()))
    _draw_references(panels[0], paths.game, paths.preset)
    panels[0].set_title(f"{paths.preset} on {paths.game}, seed {paths.seed}", loc="left")
    if contrast:
        _draw_contrast(panels[1], contrast)
    if unseen:
        _draw_unseen(panels[-1], unseen)
    for panel in panels:
        panel.legend(
            loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=8, frameon=False, borderpad=0
        )
        panel.grid(color="#eeeeee")
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
    panels[-1].xaxis.set_major_formatter(EngFormatter(sep=""))
    panels[-1].set_xlabel("agent steps")
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
    if game not in reference.games():
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


def _draw_contrast(panel: Axes, contrast: Sequence[dict[str, Any]]) -> None:
    steps = _column(contrast, "agent_steps")
    for kind, (color, light) in _CONTRAST.items():
        panel.plot(
            steps, _column(contrast, f"cosine_{kind}"),
            color=color, linewidth=1.3, zorder=3, label=f"cosine, {kind}",
        )  # fmt: skip
        panel.plot(
            steps, _column(contrast, f"discriminator_accuracy_{kind}"),
            color=light, linewidth=1, zorder=2, label=f"accuracy, {kind}",
        )  # fmt: skip
    panel.set_ylabel("similarity, accuracy")
    panel.set_ylim(top=1.02)


def _draw_unseen(panel: Axes, unseen: Sequence[dict[str, Any]]) -> None:
    steps = _column(unseen, "agent_steps")
    for name, (label, color, style) in _UNSEEN.items():
        if any(record.get(name) is not None for record in unseen):
            panel.plot(
                steps, _column(unseen, name), style, color=color, markersize=3, linewidth=1.2,
                label=label,
            )  # fmt: skip
    panel.axhline(0.5, color="#888888", linewidth=0.8)
    panel.set_ylabel("unseen: AUC, cosine")
    panel.set_ylim(top=1.02)


def _column(rows: Sequence[dict[str, Any]], key: str) -> np.ndarray:
    return np.array([row.get(key) for row in rows], dtype=np.float64)  # None becomes NaN
