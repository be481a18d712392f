"""Writes what a run records: JSON lines, TensorBoard, scores, parameters."""

from __future__ import annotations

import json
import math
import os
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TextIO

import numpy as np
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.summary import scalar

from rcrl_jax import files, reference
from rcrl_jax.runs import records
from rcrl_jax.runs.paths import RunPaths

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
        self.kept_old = [files.set_aside(path, "old") for path in old if _is_filled(path)]
        last_step = -1 if resume_at is None else resume_at
        metrics = _keep_up_to(last_step, paths.metrics, records.check_metrics)
        evaluations = _keep_up_to(last_step, paths.evaluations, records.check_evaluation)
        self._wall_before_s = max((record["wall_s"] for record in metrics), default=0.0)
        self._started_s = time.monotonic()
        self._metrics = _LineFile(paths.metrics, len(metrics))
        self._evaluations = _LineFile(paths.evaluations, len(evaluations))
        self._tensorboard = _ScalarFile(paths.tensorboard, first_step=last_step + 1)

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


def _summary(returns: Sequence[float]) -> dict[str, float]:
    if len(returns) == 0:
        raise ValueError("an evaluation without episodes has no score")
    return {
        "mean": float(np.mean(returns)),
        "median": float(np.median(returns)),
        "std": float(np.std(returns)),
    }


class _LineFile:
    """A file to which JSON lines are appended; see `records`."""

    def __init__(self, path: pathlib.Path, count: int) -> None:
        """Opens `path`, which holds `count` lines."""
        self.path, self.count = path, count
        self._file = self._open()

    def _open(self) -> TextIO:
        return open(self.path, "a+", buffering=1, encoding="utf-8")

    def append(self, record: Mapping[str, Any]) -> None:
        """Appends a line, which goes to the operating system at once.

        Raises:
            OSError: it cannot be written.
        """
        with files.naming(self.path):
            self._file.write(json.dumps(files.to_json_value(record), allow_nan=False) + "\n")
        self.count += 1

    def restore_deleted(self) -> bool:
        """Writes the file again if it was deleted: while it is open, its content still exists.

        Returns:
            Whether it was deleted.

        Raises:
            OSError: it cannot be written.
        """
        if os.path.lexists(self.path):
            return False
        with self._file as deleted:
            deleted.seek(0)
            content = deleted.read()
        with files.replacing(self.path) as partial:
            partial.write_text(content, encoding="utf-8")
        self._file = self._open()
        return True

    def close(self) -> None:
        """Closes the file.

        Raises:
            OSError: what was appended cannot be written.
        """
        with files.naming(self.path):
            self._file.close()


def _is_filled(path: pathlib.Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _keep_up_to(
    last_step: int, path: pathlib.Path, check: Callable[[Any], None]
) -> list[dict[str, Any]]:
    """Keeps the lines up to `last_step` agent steps, byte for byte; creates a missing file.

    Returns:
        The records in them.

    Raises:
        Damaged: a line is not a record.
        OSError: the file cannot be read or written.
    """
    lines = records.read_lines(path, check) if path.exists() else ()
    kept = [(line, record) for line, record in lines if record["agent_steps"] <= last_step]
    with files.replacing(path) as partial:
        partial.write_bytes(b"".join(line + b"\n" for line, _ in kept))
    return [record for _, record in kept]


class _ScalarFile:
    """Scalars as TensorBoard reads them, which reads all files of a directory.

    `tensorboardX.SummaryWriter` writes in a thread behind a bounded queue. If the disk is full,
    that thread dies with a traceback and training waits for room in the queue for ever. This one is
    written by the thread that records.
    """

    def __init__(self, directory: pathlib.Path, *, first_step: int) -> None:
        """Makes the directory and the file; TensorBoard drops what older files hold later on.

        Args:
            directory: of the run's event files.
            first_step: no scalar of this file is of an earlier step.

        Raises:
            OSError: the file cannot be written.
        """
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        # tensorboardX names a file by the second, and overwrites one of the same name.
        self._writer = EventsWriter(str(directory / "events"), f".from_{first_step}")
        self._write(first_step, session_log=SessionLog(status=SessionLog.START))

    def add(self, step: int, scalars: Mapping[str, float]) -> None:
        """Writes scalars of a step by name.

        Raises:
            OSError: they cannot be written.
        """
        with files.naming(self._directory):
            for name, value in scalars.items():
                self._write(step, summary=scalar(name, value))
            self._writer.flush()

    def _write(self, step: int, **what: Any) -> None:
        self._writer.write_event(Event(wall_time=time.time(), step=step, **what))

    def close(self) -> None:
        """Closes the file.

        Raises:
            OSError: it cannot be written.
        """
        with files.naming(self._directory):
            self._writer.close()
