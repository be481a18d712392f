"""Checkpoints of a whole fleet: saved, restored, at most two kept.

They hold no frames: frames are rebuilt from the actions. Where rendering is slow, frames come from
a log beside the checkpoints (`envs/frame_log.py`).

<directory>/<agent steps>/   a checkpoint: `learner`, `progress`, and `digests.json` of both
<directory>/<n>.damaged      a checkpoint that could not be read, or what else lay in its place
"""

import contextlib
import errno
import os
import pathlib
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from typing import Any, NamedTuple

import numpy as np

from rcrl_jax import files, types, words
from rcrl_jax.replay.segment_replay import ReplayState
from rcrl_jax.runs import storage
from rcrl_jax.runs.records import RecordState

KEPT = 2
"""Checkpoints that are kept: if the newest is damaged, a run goes on from the one before."""

_PARTIAL = ".partial"  # ends the name of a checkpoint that is being written
_REPLACED = ".replaced"  # ends that of a checkpoint whose successor takes its place
_LEFTOVER = re.compile(rf"\d+({re.escape(_PARTIAL)}|\.orbax-checkpoint-tmp|\.deleted).*")
# Errors in reading that stay: files are gone or of another kind, or a disk has bad sectors.
_LASTING = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EIO}
_DELETION_S = 1.0  # that another program may take to delete the directory


class Checkpoint(NamedTuple):
    """The log of actions, and everything that cannot be rebuilt from it."""

    step: int
    learner: types.LearnerState  # NumPy, leading axis R
    pending_update: types.Update | None  # NumPy; its priorities are not in the replay yet
    replay: ReplayState
    history: types.HistoryState
    records: RecordState | None  # None in what only tells types and shapes
    frame_log: int | None = None  # size of the log of frames in bytes; None if there is none
    # The arrays of what agents remember in acting, leading axis R, in the order of the tree's
    # leaves; empty in checkpoints of agents without a memory from before it was always kept.
    memory: tuple[np.ndarray, ...] = ()
    early_updates: int = 0  # how many of the updates due at this step are made


def is_leftover(path: pathlib.Path) -> bool:
    """Whether `path` is what a killed process left of a checkpoint: the next start deletes it."""
    return bool(_LEFTOVER.fullmatch(path.name))


class CheckpointStore:
    """Writes checkpoints into a directory, each one atomically, in a thread of its own."""

    def __init__(self, directory: pathlib.Path, say: Callable[[str], None]) -> None:
        """Makes the directory if need be, and deletes what killed processes left there.

        Args:
          directory: where checkpoints are; nobody else writes there.
          say: prints a line for the user.

        Raises:
          OSError: the directory cannot be made or written.
        """
        self._directory, self._say = directory.absolute(), say
        self._directory.mkdir(parents=True, exist_ok=True)
        for path in list(self._directory.iterdir()):
            if is_leftover(path):
                shutil.rmtree(path)
            elif re.fullmatch(rf"\d+{re.escape(_REPLACED)}", path.name):
                if path.with_suffix("").exists():
                    shutil.rmtree(path)
                else:  # its successor had not taken its place yet
                    path.rename(path.with_suffix(""))
        self._thread = futures.ThreadPoolExecutor(1, "checkpoints")
        self._write: futures.Future[None] | None = None
        self._newest: int | None = None  # step of the last one written or read
        self._early_updates = 0  # made at that step

    def restore(self, like: Checkpoint) -> Checkpoint | None:
        """Reads the newest checkpoint that is intact, and sets damaged newer ones aside.

        Args:
          like: a checkpoint of the same fleet, for types and shapes.

        Returns:
          None if there is no checkpoint.

        Raises:
          Damaged: there are checkpoints, and none is intact.
          OSError: a damaged one cannot be set aside.
        """
        for path in sorted(_numbered(self._directory)):
            if not _is_checkpoint(path):
                self._say(f"warning: {path} is no checkpoint and is ignored")
        damaged: list[tuple[pathlib.Path, files.Damaged]] = []
        for step in reversed(kept_steps(self._directory)):
            path = self._directory / str(step)
            try:
                found = read_checkpoint(path, like)
            except files.Damaged as error:
                damaged.append((path, error))
                continue
            for other, error in damaged:
                aside = files.set_aside(other, "damaged")
                self._say(
                    f"warning: {error}: it is kept as {aside.name}; going on from the checkpoint "
                    f"of step {step}"
                )
            self._newest, self._early_updates = step, found.early_updates
            return found
        if damaged:
            raise damaged[0][1]
        return None

    def save(self, state: Checkpoint) -> None:
        """Saves, unless this state is saved already; returns before the bytes are on disk.

        Between the updates of one step, the later state replaces the earlier.

        Raises:
          OSError: the checkpoint before could not be written.
        """
        self.wait()
        if (state.step, state.early_updates) != (self._newest, self._early_updates):
            self._write = self._thread.submit(self._write_now, state)

    def check(self) -> None:
        """Returns at once.

        Raises:
          OSError: a checkpoint could not be written.
        """
        if self._write is not None and self._write.done():
            self.wait()

    def wait(self) -> None:
        """Waits until what was saved is on disk.

        Raises:
          OSError: it could not be written.
        """
        write, self._write = self._write, None
        if write is None:
            return
        try:
            write.result()
        except Exception as error:  # of the disk, of the storage library
            newest = "there is none" if self._newest is None else f"that of step {self._newest}"
            failed = OSError(
                f"a checkpoint cannot be written to {self._directory}: {_reason(error)}; "
                f"the newest whole one: {newest}"
            )
            failed.errno = _number(error)  # which does not change the message
            raise failed from error

    def close(self) -> None:
        """Finishes writing.

        Raises:
          OSError: a checkpoint could not be written.
        """
        try:
            self.wait()
        finally:
            self._thread.shutdown()

    def _write_now(self, state: Checkpoint) -> None:
        try:
            self._write_one(state)
        except Exception as error:
            # Another program may delete the directory while the storage library writes.
            if self._directory.exists() and not isinstance(error, FileNotFoundError):
                raise
            time.sleep(_DELETION_S)
            self._write_one(state)
        self._newest, self._early_updates = state.step, state.early_updates
        older = [step for step in kept_steps(self._directory) if step < state.step]
        for step in older[: len(older) + 1 - KEPT]:
            doomed = self._directory / f"{step}.deleted"
            # Renamed first, so that no reader and no resumed run finds half a checkpoint. If it
            # cannot be deleted, as while another program reads it over NFS, the next start does.
            with contextlib.suppress(OSError):
                (self._directory / str(step)).rename(doomed)
                shutil.rmtree(doomed)

    def _write_one(self, state: Checkpoint) -> None:
        before = self._newest is not None and self._directory / str(self._newest)
        if before and not before.exists():
            self._say(
                f"warning: another program has deleted {before}; step {state.step} is saved now"
            )
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._directory / str(state.step)
        if os.path.lexists(path) and state.step != self._newest:
            aside = files.set_aside(path, "damaged")
            self._say(f"warning: {path} was there already; it is kept as {aside.name}")
        write_checkpoint(path, state)


def write_checkpoint(path: pathlib.Path, checkpoint: Checkpoint) -> None:
    """Writes a checkpoint atomically: `path` holds all of it, or does not exist.

    Raises:
      Exception: it cannot be written; the storage library raises many classes.
    """
    partial = path.with_name(f"{path.name}{_PARTIAL}")
    shutil.rmtree(partial, ignore_errors=True)
    storage.write(partial, checkpoint.step, checkpoint.learner, _progress(checkpoint))
    replaced = path.with_name(f"{path.name}{_REPLACED}")
    if path.exists():
        path.rename(replaced)
    partial.rename(path)
    shutil.rmtree(replaced, ignore_errors=True)


def read_checkpoint(path: pathlib.Path, like: Checkpoint) -> Checkpoint:
    """Reads a checkpoint whose files have their digests; changes nothing on the disk.

    Args:
      path: its directory, named after its agent steps.
      like: a checkpoint of the same fleet, for types and shapes.

    Raises:
      Damaged: a file is missing or has changed, or the checkpoint is of another fleet.
      OSError: it cannot be read now.
      MemoryError: there is too little memory for it.
    """
    with _reading(path):
        checkpoint = _checkpoint(int(path.name), *storage.read(path, like.learner))
        for name in ("learner", "replay", "history"):
            storage.check_alike(getattr(checkpoint, name), getattr(like, name))
        return checkpoint


@contextlib.contextmanager
def _reading(path: pathlib.Path) -> Iterator[None]:
    """As `files.reading`, where an error of the operating system that stays is damage, too."""
    try:
        with files.reading(path, passing=(OSError, MemoryError)):
            yield
    except OSError as error:
        if error.errno is None or error.errno in _LASTING:
            raise files.Damaged(path, error) from error
        raise


def kept_steps(directory: pathlib.Path) -> list[int]:
    """Agent steps of the checkpoints in `directory`, oldest first; changes nothing there."""
    return sorted(int(path.name) for path in _numbered(directory) if _is_checkpoint(path))


def read_agents(directory: pathlib.Path, step: int, like: types.Params) -> types.Params:
    """Reads only the agents' parameters of a checkpoint; changes nothing on the disk.

    Args:
      directory: holds the checkpoints; a training process may write and delete some meanwhile.
      step: agent steps of the checkpoint.
      like: parameters of the same structure, or their shapes; leading axis R.

    Returns:
      The parameters in NumPy, leading axis R.

    Raises:
      FileNotFoundError: there is no such checkpoint, or it was deleted while it was read.
      Damaged: it holds other parameters, or they have changed since they were saved.
      OSError: it cannot be read now.
    """
    kept = directory.absolute() / str(step)
    before = _files(kept)
    try:
        with _reading(directory / str(step)):
            agents, failure = storage.read_agents(kept, like), None
    except files.Damaged as error:
        agents, failure = None, error
    # A deletion has removed some files by now, so what was read may have holes.
    if not before or _files(kept) != before:
        raise FileNotFoundError(f"there is no checkpoint {directory / str(step)} any more")
    if failure is not None:
        raise failure
    return agents


def _progress(checkpoint: Checkpoint) -> dict[str, Any]:
    """All of a checkpoint but the learner, as it is stored."""
    progress: dict[str, Any] = {
        "replay": checkpoint.replay._asdict(),
        "history": checkpoint.history._asdict(),
        "records": checkpoint.records.lines,
        "record_digests": checkpoint.records.digests,
    }
    pending = checkpoint.pending_update
    if pending is not None:
        progress["pending_update"] = {
            "index": pending.index,
            "positive_is_anchor": pending.positive_is_anchor,
            **pending.result._asdict(),
        }
    if checkpoint.frame_log is not None:
        progress["frame_log"] = np.int64(checkpoint.frame_log)
    if checkpoint.memory:
        progress["memory"] = {str(i): array for i, array in enumerate(checkpoint.memory)}
    if checkpoint.early_updates:
        progress["early_updates"] = np.int64(checkpoint.early_updates)
    return progress


def _checkpoint(step: int, learner: types.LearnerState, progress: Mapping[str, Any]) -> Checkpoint:
    """The inverse of `_progress`."""
    pending = progress.get("pending_update")
    if pending is not None:
        result = types.UpdateResult(pending["transition_loss"], pending["metrics"])
        pending = types.Update(pending["index"], result, pending["positive_is_anchor"])
    frame_log, memory = progress.get("frame_log"), progress.get("memory", {})
    return Checkpoint(
        step,
        learner,
        pending,
        ReplayState(**progress["replay"]),
        types.HistoryState(**progress["history"]),
        RecordState(progress["records"], progress["record_digests"]),
        None if frame_log is None else int(frame_log),
        tuple(memory[str(i)] for i in range(len(memory))),
        int(progress.get("early_updates", 0)),
    )


def _numbered(directory: pathlib.Path) -> list[pathlib.Path]:
    """Directories whose names are numbers; a checkpoint that is being written has a longer name."""
    if not directory.is_dir():
        return []
    return [path for path in directory.iterdir() if path.is_dir() and _is_number(path.name)]


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit() and name == str(int(name))


def _is_checkpoint(path: pathlib.Path) -> bool:
    """Whether a directory holds a checkpoint, maybe a damaged one."""
    return any((path / part).exists() for part in storage.PARTS)


def _files(directory: pathlib.Path) -> list[pathlib.Path]:
    return sorted(directory.rglob("*"))


def _reason(error: Exception) -> str:
    """Why a write failed."""
    number = _number(error)
    return words.one_line(error) if number is None else os.strerror(number)


def _number(error: Exception) -> int | None:
    """The system's number of an error; the storage library hides it in a long message."""
    hidden = re.search(r"os_error_code='(\d+)'", str(error))
    return int(hidden[1]) if hidden else getattr(error, "errno", None)
