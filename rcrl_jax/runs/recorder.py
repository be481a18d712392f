"""Writes what a run records: JSON lines, TensorBoard, scores, parameters."""

import contextlib
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
from tensorboardX.proto.summary_pb2 import Summary

from rcrl_jax import files, reference, words
from rcrl_jax.runs import manifest, records
from rcrl_jax.runs.paths import RunPaths

Line = tuple[bytes, dict[str, Any]]
"""A line of a file of records, without its end, and the record in it."""


class Counters(NamedTuple):
    """How far a run is, in every unit that papers use.

    Attributes:
        agent_steps: actions chosen.
        env_steps: steps of the environment as the benchmark counts them.
        frames: frames emulated (Atari: four per agent step) or rendered (DMControl: one).
    """

    agent_steps: int
    env_steps: int
    frames: int


class RunRecorder(contextlib.AbstractContextManager):
    """Appends a run's metrics and evaluations to its files as they come in.

    Attributes:
        kept_old: new names of earlier files that this start does not continue.

    A resumed run continues the files as if it had never stopped: what was written after the
    checkpoint is dropped, because the resumed run will write it again. For that to be exact, a
    loop records everything that belongs to step k before it saves the checkpoint of step k.

    Every line goes to the operating system at once, so a killed process loses at most the line it
    was writing; the torn end of that line is dropped on resuming.
    """

    def __init__(
        self,
        paths: RunPaths,
        *,
        resume_at: int | None,
        written: records.RecordState | None = None,
        say: Callable[[str], None] = print,
    ):
        """Opens the files, creating the run's directory, and says so if records are lost.

        Args:
            paths: the run's files.
            resume_at: agent steps of the checkpoint that the run continues from; lines of later
                steps are dropped. None starts empty files; old ones that hold records are kept
                under other names.
            written: what this run's files held at the checkpoint; None compares nothing.
            say: prints a line for the user.

        Raises:
            Damaged: a file to continue holds a line that is not a record, or records that this run
                has not written.
            OSError: a file cannot be written.
        """
        self._paths, self._say = paths, say
        paths.directory.mkdir(parents=True, exist_ok=True)
        self.kept_old = []
        if resume_at is None:
            filled = [path for path in (paths.metrics, paths.evaluations) if _is_filled(path)]
            self.kept_old = [files.set_aside(path, "old") for path in filled]
        last_step = -1 if resume_at is None else resume_at
        metrics = _read_up_to(last_step, paths.metrics, records.check_metrics)
        evaluations = _read_up_to(last_step, paths.evaluations, records.check_evaluation)
        if written is not None:
            metrics = metrics[: written.lines[0]]  # later updates of `last_step` will run again
            of_metrics, of_evaluations = zip(*written, strict=True)
            self._compare(paths.metrics, metrics, *of_metrics, last_step)
            self._compare(paths.evaluations, evaluations, *of_evaluations, last_step)
        self._wall_before_s = max((record["wall_s"] for _, record in metrics), default=0.0)
        self._started_s = time.monotonic()
        self._metrics = _LineFile(paths.metrics, metrics)
        self._evaluations = _LineFile(paths.evaluations, evaluations)
        self._last_step = last_step
        self._tensorboard = _ScalarFile(paths.tensorboard, first_step=last_step + 1)
        self.read_manifest()

    def read_manifest(self) -> None:
        """Reads the manifest, whose digest the scores get; anew after it has changed."""
        path = self._paths.manifest
        self._manifest = path.read_bytes() if path.exists() else None

    def _compare(
        self,
        path: pathlib.Path,
        lines: Sequence[Line],
        count: int,
        digest: np.ndarray,
        last_step: int,
    ) -> None:
        """Compares the records up to `last_step` with the `count` that the run had written by then.

        A run that was stopped in its final evaluation may have recorded more of that step.

        Raises:
            Damaged: the file holds other records.
        """
        there = [record for _, record in lines]
        if len(there) < count:
            self._say(
                f"warning: {path} holds {len(there)} of {count} records up to step "
                f"{last_step}: the others are lost"
            )
            return
        later = all(record["agent_steps"] == last_step for record in there[count:])
        same = records.Digest(there[:count]).value == digest.tobytes()
        if not (later and same):
            raise files.Damaged(
                path,
                f"up to step {last_step} it does not hold the records that this run has written",
            )

    @property
    def written(self) -> records.RecordState:
        """What this run's files hold."""
        digests = self._metrics.digest, self._evaluations.digest
        return records.RecordState(
            np.array([digest.count for digest in digests], np.int64),
            np.array([list(digest.value) for digest in digests], np.uint8),
        )

    def restore_deleted(self) -> None:
        """Writes again what another program has deleted, and says so.

        Raises:
            OSError: it cannot be written.
        """
        restored = [
            lines.path for lines in (self._metrics, self._evaluations) if lines.restore_deleted()
        ]
        if self._manifest is not None and not os.path.lexists(self._paths.manifest):
            with files.replacing(self._paths.manifest) as partial:
                partial.write_bytes(self._manifest)
            restored.append(self._paths.manifest)
        for path in restored:
            self._say(f"warning: another program has deleted {path}; it is written again")
        if not self._paths.tensorboard.exists():
            self._tensorboard = _ScalarFile(self._paths.tensorboard, first_step=self._last_step + 1)
            self._say(
                f"warning: another program has deleted {self._paths.tensorboard}; it goes on "
                "without the scalars so far, which metrics.jsonl holds"
            )

    def record(self, counters: Counters, scalars: Mapping[str, Any]) -> None:
        """Appends one line to metrics.jsonl and one point per scalar to TensorBoard.

        Args:
            counters: how far the run is.
            scalars: name -> number; NaN is written as null. The line also gets `wall_s`, seconds of
                training so far, time before a resumption included.
        """
        wall_s = round(self._wall_before_s + time.monotonic() - self._started_s, 3)
        self._metrics.append({**counters._asdict(), "wall_s": wall_s, **scalars})
        self._add_scalars("training", counters, scalars)

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
        """
        mean = float(np.mean(returns))
        measured = measured or {}
        evaluation = {"returns": returns, "mean": mean, "episodes_cut": episodes_cut, **measured}
        self._evaluations.append({**counters._asdict(), **evaluation})
        self._add_scalars("evaluation", counters, {"mean": mean, **measured})

    def _add_scalars(self, group: str, counters: Counters, scalars: Mapping[str, Any]) -> None:
        finite = {
            f"{group}/{name}": float(value)
            for name, value in scalars.items()
            if math.isfinite(value)
        }
        self._tensorboard.add(counters.agent_steps, finite)

    def write_parameters(self, params: Mapping[str, np.ndarray]) -> None:
        """Writes parameters.npz, in half precision.

        Args:
            params: array by name.

        Raises:
            OSError: it cannot be written.
        """
        with np.errstate(over="ignore"):  # a diverged run's become infinite
            halves = {name: np.float16(array) for name, array in params.items()}
        with files.replacing(self._paths.parameters) as partial:
            np.savez_compressed(partial, **halves)

    def write_scores(
        self, counters: Counters, returns: Sequence[float], *, episodes_cut: int
    ) -> None:
        """Writes scores.json, the run's result: the evaluation of the agent at the last step.

        It has digests of the records and of the manifest, so these are on the disk first.

        Args:
            counters: how far the run is, at its end.
            returns: [episodes] raw return of each episode of the final evaluation.
            episodes_cut: how many of them the frame limit ended.
        """
        self._metrics.sync()
        self._evaluations.sync()
        digests = {
            "metrics": self._metrics.digest.value.hex(),
            "evaluations": self._evaluations.digest.value.hex(),
        }
        if self._manifest is not None:
            described = manifest.how_computed(json.loads(self._manifest))
            digests["manifest"] = records.Digest([described]).value.hex()
        files.write_json_atomically(
            self._paths.scores,
            {
                "measured": "final evaluation: the agent at the last step",
                **describe_scores(self._paths, counters, returns, episodes_cut=episodes_cut),
                "record_digests": digests,
            },
        )

    def close(self) -> None:
        """Closes the files; the recorder takes no more records."""
        self._metrics.close()
        self._evaluations.close()
        self._tensorboard.close()

    def __exit__(self, *exception: object) -> None:
        """Closes the files, after an exception too."""
        self.close()


def describe_scores(
    paths: RunPaths, counters: Counters, returns: Sequence[float], *, episodes_cut: int
) -> dict[str, Any]:
    """The scores of one run's evaluation by name; the arguments are those of `write_scores`."""
    mean = float(np.mean(returns))
    is_atari = reference.family_of(paths.game, paths.preset) == "atari"
    human_normalised = reference.human_normalised(paths.game, mean) if is_atari else None
    return {
        "preset": paths.preset,
        "game": paths.game,
        "seed": paths.seed,
        **counters._asdict(),
        "mean": mean,
        "median": float(np.median(returns)),
        "std": float(np.std(returns)),
        "human_normalised_mean": human_normalised,
        "episodes": len(returns),
        "episodes_cut": episodes_cut,
        "returns": returns,
    }


def sample_size(scores: Mapping[str, Any]) -> str:
    """What a run's score is a mean of: `1 seed, 4,000 steps, 2 episodes, 1 cut`.

    Args:
        scores: as `describe_scores` returns them.
    """
    steps, episodes = scores["env_steps"], scores["episodes"]
    parts = ["1 seed", words.count("step", steps), words.count("episode", episodes)]
    # Every episode of DMControl ends at its time limit.
    if scores.get("episodes_cut") and scores["game"] not in reference.tasks():
        parts.append(f"{scores['episodes_cut']} cut")
    return ", ".join(parts)


class _LineFile:
    """A file to which JSON lines are appended; see `records`."""

    def __init__(self, path: pathlib.Path, lines: Sequence[Line]) -> None:
        """Opens `path` and keeps only `lines`."""
        self.path = path
        with files.replacing(path) as partial:
            partial.write_bytes(b"".join(line + b"\n" for line, _ in lines))
        self.digest = records.Digest([record for _, record in lines])
        self._file = self._open()

    def _open(self) -> TextIO:
        return open(self.path, "a+", buffering=1, encoding="utf-8")

    def append(self, record: Mapping[str, Any]) -> None:
        """Appends a line, which goes to the operating system at once.

        Raises:
            OSError: it cannot be written.
        """
        value = files.to_json_value(record)
        with files.naming(self.path):
            self._file.write(json.dumps(value, allow_nan=False) + "\n")
        self.digest.add(value)

    def sync(self) -> None:
        """Waits until what was appended is on the disk.

        Raises:
            OSError: it cannot be written.
        """
        with files.naming(self.path):
            os.fsync(self._file.fileno())

    def restore_deleted(self) -> bool:
        """Writes the file again if it was deleted: while it is open, its content still exists.

        Returns:
            Whether it was deleted.

        Raises:
            OSError: it cannot be written.
        """
        if os.path.lexists(self.path):
            return False
        self._file.seek(0)
        content = self._file.read()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with files.replacing(self.path) as partial:
            partial.write_text(content, encoding="utf-8")
        self._file.close()  # not before: until then it holds the only copy
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


def _read_up_to(last_step: int, path: pathlib.Path, check: Callable[[Any], None]) -> list[Line]:
    """The lines up to `last_step` agent steps, and the records in them; none of a missing file.

    Raises:
        Damaged: a line is not a record.
        OSError: the file cannot be read.
    """
    lines = records.read_lines(path, check) if path.exists() else ()
    return [(line, record) for line, record in lines if record["agent_steps"] <= last_step]


class _ScalarFile:
    """A file of scalars for TensorBoard, which reads all files of a directory.

    `tensorboardX.SummaryWriter` writes in a thread behind a bounded queue. If the disk is full,
    that thread dies with a traceback and training waits for ever for room in the queue. Here the
    recording thread writes the file.
    """

    def __init__(self, directory: pathlib.Path, *, first_step: int) -> None:
        """Makes the directory and the file; TensorBoard drops later scalars of older files.

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
        values = [Summary.Value(tag=name, simple_value=value) for name, value in scalars.items()]
        with files.naming(self._directory):
            self._write(step, summary=Summary(value=values))
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
