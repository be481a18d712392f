"""Learning curves, drawn from records: of one run, and the mean of a game's runs."""

import itertools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter
from PIL import Image

from rcrl_jax import files, reference, words
from rcrl_jax.runs import records
from rcrl_jax.runs.paths import RunPaths

_MEAN, _EVALUATION, _RANGE, _TRAINING = "#0b5394", "#7ba6d0", "#e3ecf5", "#c3c6ca"
_REFERENCES = {"random": "#666666", "human": "#741b47", "paper": "#cc0000"}
_BINS = 20
"""Number of equal parts of a training; each part is one point of a mean curve."""


def draw_learning_curve(paths: RunPaths) -> None:
    """Draws `curve.png` from `metrics.jsonl` and `evaluations.jsonl` of one run.

    The picture shows the return of every evaluation episode, with mean and 10-90 % range; training
    episodes in the background; and published scores as dashed lines. The human score is left out if
    it would flatten the curve.

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
    _finish(panel, f"{paths.preset} on {paths.game}, seed {paths.seed}")
    save_figure(figure, paths.curve)


def draw_mean_curve(
    runs: Sequence[RunPaths],
    total_steps: int,
    score: Mapping[str, float | None],
    lines: Mapping[str, float],
    picture: pathlib.Path,
) -> None:
    """Draws the mean over seeds of the returns in training, with a band of one standard error.

    Args:
        runs: the runs of one game and preset.
        total_steps: agent steps of each.
        score: mean of the final evaluations, and standard error over seeds (None for one seed).
        lines: returns by their label, such as those of play without learning; drawn dashed.
        picture: the PNG to write.

    Raises:
        FileNotFoundError: a run has no records.
        Damaged: a line is not a record.
        OSError: the picture cannot be written.
    """
    episodes = [
        [
            (record["agent_steps"], record["episode_return"])
            for record in records.read_metrics(paths.metrics)
            if "episode_return" in record
        ]
        for paths in runs
    ]
    steps, returns = mean_returns(episodes, total_steps)
    figure = Figure(figsize=(7.5, 4.2), dpi=120, layout="constrained")
    panel = figure.subplots()
    panel.set_ylabel("return of an episode, unclipped")
    mean = returns.mean(axis=0)
    panel.plot(steps, mean, "-", color=_MEAN, zorder=4, label="training, mean over seeds")
    if len(runs) > 1:
        error = returns.std(axis=0, ddof=1) / np.sqrt(len(runs))
        panel.fill_between(
            steps, mean - error, mean + error, color=_RANGE, linewidth=0, zorder=1,
            label="± 1 standard error",
        )  # fmt: skip
    panel.errorbar(
        total_steps, score["mean"], yerr=score["standard_error"], fmt="o", color=_MEAN, zorder=5,
        label="final evaluation",
    )  # fmt: skip
    for (label, value), style in zip(
        lines.items(), itertools.cycle(("--", "-.", ":")), strict=False
    ):
        panel.axhline(
            value, color=_REFERENCES["random"], linestyle=style, linewidth=1,
            label=f"{label} {value:.3g}",
        )  # fmt: skip
    number = words.count("seed", len(runs))
    _finish(panel, f"{runs[0].preset} on {runs[0].game}, {number}")
    save_figure(figure, picture)


def mean_returns(
    episodes: Sequence[Sequence[tuple[int, float]]], total_steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """Mean returns of the episodes that end in each twentieth of a training.

    Args:
        episodes: `[R]`, for each run: the step at which each episode ended, from 1 on, and its
            return.
        total_steps: of each run.

    Returns:
        The middle of each part in which every run ended an episode, `[B]`, and the means `[R, B]`.
    """
    edges = np.linspace(0, total_steps, _BINS + 1)
    sums, counts = np.zeros((2, len(episodes), _BINS))
    for run, run_episodes in enumerate(episodes):
        ended, returns = np.array(run_episodes, np.float64).reshape(-1, 2).T
        part = np.clip(np.searchsorted(edges, ended) - 1, 0, _BINS - 1)
        np.add.at(sums[run], part, returns)
        np.add.at(counts[run], part, 1)
    shown = counts.all(axis=0)
    return ((edges[:-1] + edges[1:]) / 2)[shown], sums[:, shown] / counts[:, shown]


def _finish(panel: Axes, title: str) -> None:
    """Title, legend, grid and the axis of steps."""
    panel.set_title(title, loc="left")
    panel.legend(
        loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=8, frameon=False, borderpad=0
    )
    panel.grid(color="#eeeeee")
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    panel.xaxis.set_major_formatter(EngFormatter(sep=""))
    panel.set_xlabel("agent steps")


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
