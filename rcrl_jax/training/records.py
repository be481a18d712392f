"""Writes all numbers of a run: JSON lines, TensorBoard, scores."""

from __future__ import annotations

import math
import os
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rcrl_jax import files, reference
from rcrl_jax.training.record_files import (
    LineFile,
    check_evaluation,
    check_metrics,
    check_object,
    drop_after,
    read_lines,
)
from rcrl_jax.training.run_paths import RunPaths
from rcrl_jax.training.tensorboard import ScalarFile

WALL_CLOCK_KEYS = ("wall_s", "steps_per_s")
"""Keys of metrics.jsonl that differ between two runs of the same seed; all others are equal."""


_MOST_PARAMETER_BYTES = 3_000_000


class Counters(NamedTuple):
    """How far a run is, in every unit that papers use.

    Attributes:
        agent_steps: actions chosen.
        env_steps: steps of the environment as the benchmark counts them.
        frames: frames of the emulator, four an agent step on Atari.
    """

    agent_steps: int
    env_steps: int
    frames: int


class RunRecorder:
    """Appends a run's metrics and evaluations to its files as they come in.

    Attributes:
        kept_old: new names of the files of an earlier start that this one does not continue.

    A resumed run continues the files as if it had never stopped: what was written after the
    checkpoint is dropped, because the resumed run will write it again. For that to be exact, a
    loop records everything that belongs to step k before it saves the checkpoint of step k.

    Every line goes to the operating system at once, so a killed process loses at most the line it
    was writing; the torn end of that line is dropped on resuming.
    """

    def __init__(
        self, paths: RunPaths, *, resume_at: int | None, say: Callable[[str], None] = print
    ):
        """Opens the files, creating the run's directory.

        Args:
            paths: the run's files.
            resume_at: agent steps of the checkpoint that the run continues from; lines of later
                steps are dropped. None starts empty files; old ones that hold records are kept
                under other names.
            say: prints a line for the user.

        Raises:
            Damaged: a file to continue holds a line that is not a record.
            OSError: a file cannot be written.
        """
        self._paths, self._say = paths, say
        paths.directory.mkdir(parents=True, exist_ok=True)
        old = [path for path in (paths.metrics, paths.evaluations) if resume_at is None]
        self.kept_old = [files.set_aside(path, "old") for path in old if _holds_lines(path)]
        last_step = -1 if resume_at is None else resume_at
        drop_after(paths.metrics, check_metrics, last_step)
        drop_after(paths.evaluations, check_evaluation, last_step)
        metrics = read_metrics(paths.metrics)
        self._wall_before_s = max((record["wall_s"] for record in metrics), default=0.0)
        self._started_s = time.monotonic()
        self._metrics = LineFile(paths.metrics, len(metrics))
        self._evaluations = LineFile(paths.evaluations, len(read_evaluations(paths.evaluations)))
        self._tensorboard = ScalarFile(paths.tensorboard, first_step=last_step + 1)

    @property
    def line_counts(self) -> tuple[int, int]:
        """Lines in metrics.jsonl and in evaluations.jsonl."""
        return self._metrics.count, self._evaluations.count

    def restore_deleted(self) -> None:
        """Writes a file again that another program has deleted, and says so.

        Raises:
            OSError: it cannot be written.
        """
        for lines in (self._metrics, self._evaluations):
            if lines.restore_deleted():
                self._say(f"warning: another program has deleted {lines.path}; it is written again")

    def record(self, counters: Counters, scalars: Mapping[str, Any]) -> None:
        """Appends one line to metrics.jsonl and one point per scalar to TensorBoard.

        Args:
            counters: how far the run is.
            scalars: name -> number; NaN is written as null. The line also gets `wall_s`, seconds of
                training so far, time before a resumption included.
        """
        wall_s = round(self._wall_before_s + time.monotonic() - self._started_s, 3)
        self._metrics.append({**counters._asdict(), "wall_s": wall_s, **scalars})
        self._add_scalars(counters, scalars)

    def record_evaluation(
        self,
        counters: Counters,
        returns: Sequence[float],
        *,
        episodes_cut: int,
        measured: Mapping[str, float] | None = None,
    ) -> None:
        """Appends one line to evaluations.jsonl and its scalars to TensorBoard.

        Args:
            counters: how far the run is.
            returns: [episodes] raw return of each evaluation episode.
            episodes_cut: how many of them the frame limit ended.
            measured: name -> number, further metrics of them; NaN is written as null.

        Raises:
            ValueError: `returns` is empty.
        """
        mean = _summary(returns)["mean"]
        measured = measured or {}
        evaluation = {"returns": returns, "mean": mean, "episodes_cut": episodes_cut, **measured}
        self._evaluations.append({**counters._asdict(), **evaluation})
        self._add_scalars(counters, {"evaluation_mean": mean, **measured})

    def _add_scalars(self, counters: Counters, scalars: Mapping[str, Any]) -> None:
        finite = {name: float(value) for name, value in scalars.items() if math.isfinite(value)}
        self._tensorboard.add(counters.agent_steps, finite)

    def write_parameters(self, params: Mapping[str, np.ndarray]) -> None:
        """Writes parameters.npz in half precision, unless it would have more than 3 MB.

        Args:
            params: array by name.

        Raises:
            OSError: it cannot be written.
        """
        halves = {name: np.float16(array) for name, array in params.items()}
        if sum(array.nbytes for array in halves.values()) <= _MOST_PARAMETER_BYTES:
            with files.replacing(self._paths.parameters) as partial:
                np.savez_compressed(partial, **halves)

    def write_scores(
        self, counters: Counters, returns: Sequence[float], *, episodes_cut: int
    ) -> None:
        """Writes scores.json, the run's result: the evaluation of the agent at the last step.

        Args:
            counters: how far the run is, at its end.
            returns: [episodes] raw return of each episode of the final evaluation.
            episodes_cut: how many of them the frame limit ended.

        Raises:
            ValueError: `returns` is empty.
        """
        files.write_json_atomically(
            self._paths.scores,
            {
                "measured": "final evaluation: the agent at the last step",
                **describe_scores(self._paths, counters, returns, episodes_cut=episodes_cut),
            },
        )

    def close(self) -> None:
        """Closes the files; the recorder takes no more records."""
        self._metrics.close()
        self._evaluations.close()
        self._tensorboard.close()

    def __enter__(self) -> RunRecorder:
        """Returns the recorder itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Closes the files, after an exception too."""
        self.close()


def describe_scores(
    paths: RunPaths, counters: Counters, returns: Sequence[float], *, episodes_cut: int
) -> dict[str, Any]:
    """The scores of one run's evaluation by name; the arguments are those of `write_scores`.

    Raises:
        ValueError: `returns` is empty.
    """
    summary = _summary(returns)
    human_normalised = (
        reference.human_normalised(paths.game, summary["mean"])
        if paths.game in reference.games()
        else None
    )
    return {
        "preset": paths.preset,
        "game": paths.game,
        "seed": paths.seed,
        **counters._asdict(),
        **summary,
        "human_normalised_mean": human_normalised,
        "episodes": len(returns),
        "episodes_cut": episodes_cut,
        "returns": returns,
    }


def read_records(path: str | os.PathLike) -> list[dict[str, Any]]:
    """Reads a file of JSON lines; a last line that a killed process left torn is not returned.

    Raises:
        FileNotFoundError: there is no such file.
        Damaged: a line other than the last is not a JSON object; the message names it.
    """
    return [record for _, record in read_lines(pathlib.Path(path), check_object)]


def read_metrics(path: str | os.PathLike) -> list[dict[str, Any]]:
    """Reads metrics.jsonl, as `read_records`; every value is a number or None.

    Raises:
        FileNotFoundError: there is no such file.
        Damaged: a line is no metrics of a step.
    """
    return [record for _, record in read_lines(pathlib.Path(path), check_metrics)]


def read_evaluations(path: str | os.PathLike) -> list[dict[str, Any]]:
    """Reads evaluations.jsonl, as `read_records`; every line has returns and their mean.

    Raises:
        FileNotFoundError: there is no such file.
        Damaged: a line is no evaluation.
    """
    return [record for _, record in read_lines(pathlib.Path(path), check_evaluation)]


def _holds_lines(path: pathlib.Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _summary(returns: Sequence[float]) -> dict[str, float]:
    if len(returns) == 0:
        raise ValueError("an evaluation without episodes has no score")
    return {
        "mean": float(np.mean(returns)),
        "median": float(np.median(returns)),
        "std": float(np.std(returns)),
    }
