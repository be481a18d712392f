"""Checkpoints of a whole fleet: saved, restored, at most two kept.

They hold no frames: frames are rebuilt from the actions. Where rendering is slow, frames come from
a log beside the checkpoints (`envs/frame_log.py`).

<directory>/<agent steps>.ckpt   a checkpoint, a file as in `storage`
<directory>/<name>.damaged       an unreadable checkpoint, or a file in the place of a new one
"""

import contextlib
import errno
import os
import pathlib
import re
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from typing import Any, NamedTuple

import jax
import numpy as np

from rcrl_jax import files, types, words
from rcrl_jax.replay.segment_replay import ReplayState
from rcrl_jax.runs import parameters, storage
from rcrl_jax.runs.paths import PARAMETERS
from rcrl_jax.runs.records import RecordState

KEPT = 2
"""Checkpoints that are kept: if the newest is damaged, a run goes on from the one before."""

_AGENTS = "learner/params/agent/"
_NAME = re.compile(r"(0|[1-9]\d*)\.ckpt", re.ASCII)
_LEFTOVER = re.compile(rf"\.partial\.\d+\.{_NAME.pattern}", re.ASCII)
# Permanent errors of reading: files are gone or of another kind, or a disk has bad sectors.
_LASTING = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EIO}
_DELETION_S = 1.0  # that another program may take to delete the directory


class Checkpoint(NamedTuple):
    """The log of actions, and everything that cannot be rebuilt from it."""

    step: int
    learner: types.LearnerState  # NumPy, leading axis R
    pending_update: types.Update | None  # NumPy; its priorities are not in the replay yet
    replay: ReplayState
    history: types.HistoryState
    records: RecordState | None  # None in a template of types and shapes
    frame_log: int | None = None  # size of the log of frames in bytes; None if there is none
    # The agents' memory of `act`: arrays with leading axis R, in the order of the leaves.
    memory: tuple[np.ndarray, ...] = ()
    early_updates: int = 0  # updates made so far of those due at this step


def is_leftover(path: pathlib.Path) -> bool:
    """Whether a killed process left `path`, a partial checkpoint; the next start deletes it."""
    return bool(_LEFTOVER.fullmatch(path.name))


class CheckpointStore:
    """Writes checkpoints into a directory, each one atomically, in a separate thread."""

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
                path.unlink()
        self._thread = futures.ThreadPoolExecutor(1, "checkpoints")
        self._write: futures.Future[None] | None = None
        self._newest: int | None = None  # step of the last checkpoint written or read
        self._early_updates = 0  # made at that step so far

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
        for path in sorted(self._directory.iterdir()):
            if path.name.isdecimal():
                self._say(f"warning: {path} is no checkpoint and is ignored")
        damaged: list[tuple[pathlib.Path, files.Damaged]] = []
        for step in reversed(kept_steps(self._directory)):
            path = path_of(self._directory, step)
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

        A state between the updates of a step replaces the earlier state of this step.

        Raises:
          OSError: the previous checkpoint could not be written.
        """
        self.wait()
        if (state.step, state.early_updates) != (self._newest, self._early_updates):
            self._write = self._thread.submit(self._write_now, state)

    def check(self) -> None:
        """Raises the error of a failed save; does not wait for a running one.

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
        except OSError as error:
            newest = "there is none" if self._newest is None else f"that of step {self._newest}"
            failed = OSError(
                f"a checkpoint cannot be written to {self._directory}: "
                f"{error.strerror or words.one_line(error)}; the newest whole one: {newest}"
            )
            failed.errno = error.errno  # which does not change the message
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
        except FileNotFoundError:  # another program deletes the directory
            time.sleep(_DELETION_S)
            self._write_one(state)
        self._newest, self._early_updates = state.step, state.early_updates
        older = [step for step in kept_steps(self._directory) if step < state.step]
        for step in older[: len(older) + 1 - KEPT]:
            with contextlib.suppress(OSError):  # the next save tries again
                path_of(self._directory, step).unlink()

    def _write_one(self, state: Checkpoint) -> None:
        before = self._newest is not None and path_of(self._directory, self._newest)
        if before and not before.exists():
            self._say(
                f"warning: another program has deleted {before}; step {state.step} is saved now"
            )
        self._directory.mkdir(parents=True, exist_ok=True)
        path = path_of(self._directory, state.step)
        if os.path.lexists(path) and state.step != self._newest:
            aside = files.set_aside(path, "damaged")
            self._say(f"warning: {path} was there already; it is kept as {aside.name}")
        write_checkpoint(path, state)


def write_checkpoint(path: pathlib.Path, checkpoint: Checkpoint) -> None:
    """Writes a checkpoint atomically: `path` holds the complete new or old file.

    Raises:
      OSError: it cannot be written.
    """
    storage.write(path, _arrays(checkpoint), {"step": checkpoint.step})


def read_checkpoint(path: pathlib.Path, like: Checkpoint) -> Checkpoint:
    """Reads a checkpoint and checks its digests; changes nothing on the disk.

    Args:
      path: the file, named after its agent steps.
      like: a checkpoint of the same fleet, for types and shapes.

    Raises:
      Damaged: it has changed since it was saved, or is of another fleet.
      OSError: it cannot be read now.
      MemoryError: there is too little memory for it.
    """
    with _reading(path):
        arrays = _read(path)
        pending = None
        if "pending_update/index" in arrays:
            pending = types.Update(
                arrays["pending_update/index"],
                types.UpdateResult(
                    arrays["pending_update/transition_loss"],
                    _below(arrays, "pending_update/metrics/"),
                ),
                arrays["pending_update/positive_is_anchor"],
            )
        frame_log, memory = arrays.get("frame_log"), _below(arrays, "memory/")
        return Checkpoint(
            _step(path),
            _take(arrays, "learner/", like.learner),
            pending,
            _take(arrays, "replay/", like.replay),
            _take(arrays, "history/", like.history),
            RecordState(**_below(arrays, "records/")),
            None if frame_log is None else int(frame_log),
            tuple(memory[str(i)] for i in range(len(memory))),
            int(arrays["early_updates"]),
        )


def read_agents(path: pathlib.Path, num_runs: int | None = None) -> dict[str, np.ndarray]:
    """The agents' parameters by their paths, leading axis R; changes nothing on the disk.

    Args:
      path: a checkpoint, or the file of one run's final parameters. A training process may delete
        a checkpoint meanwhile.
      num_runs: R, if it is known.

    Raises:
      FileNotFoundError: the file does not exist, or no longer.
      Damaged: it is no such file, it holds another number of runs, or the parameters have changed
        since they were saved.
      OSError: it cannot be read now.
      MemoryError: there is too little memory for it.
    """
    try:
        with _reading(path):
            if path.name != PARAMETERS:
                arrays = _below(_read(path, _AGENTS), _AGENTS)
            else:
                with np.load(path) as file:
                    arrays = {name: x[None] for name, x in _below(file, "agent/").items()}
            if num_runs is not None and {len(array) for array in arrays.values()} != {num_runs}:
                raise ValueError(f"it does not hold {words.count('run', num_runs)}")
            return arrays
    except files.Damaged:
        if path.exists():
            raise
        raise FileNotFoundError(f"there is no file {path} any more") from None


@contextlib.contextmanager
def _reading(path: pathlib.Path) -> Iterator[None]:
    """As `files.reading`, but permanent errors of the operating system are damage, too."""
    try:
        with files.reading(path, passing=(OSError, MemoryError)):
            yield
    except OSError as error:
        if error.errno is None or error.errno in _LASTING:
            raise files.Damaged(path, error) from error
        raise


def _read(path: pathlib.Path, prefix: str = "") -> dict[str, np.ndarray]:
    about, arrays = storage.read(path, prefix)
    if about["step"] != _step(path):
        raise ValueError(f"it is the checkpoint of step {about['step']}")
    return arrays


def path_of(directory: pathlib.Path, step: int) -> pathlib.Path:
    """The file of a checkpoint."""
    return directory / f"{step}.ckpt"


def _step(path: pathlib.Path) -> int:
    return int(path.stem)


def kept_steps(directory: pathlib.Path) -> list[int]:
    """Agent steps of the checkpoints in `directory`, oldest first; changes nothing there."""
    if not directory.is_dir():
        return []
    return sorted(_step(path) for path in directory.iterdir() if _NAME.fullmatch(path.name))


def _arrays(checkpoint: Checkpoint) -> dict[str, Any]:
    """All of a checkpoint but its step, by name."""
    tree: dict[str, Any] = {
        "learner": checkpoint.learner,
        "replay": checkpoint.replay,
        "history": checkpoint.history,
        "records": checkpoint.records,
        "memory": dict(enumerate(checkpoint.memory)),
        "early_updates": np.int64(checkpoint.early_updates),
    }
    if (pending := checkpoint.pending_update) is not None:
        tree["pending_update"] = {
            "index": pending.index,
            "positive_is_anchor": pending.positive_is_anchor,
            **pending.result._asdict(),
        }
    if checkpoint.frame_log is not None:
        tree["frame_log"] = np.int64(checkpoint.frame_log)
    return parameters.by_name(tree)


def _below(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """The arrays whose names begin with `prefix`, without it."""
    return {n.removeprefix(prefix): arrays[n] for n in arrays if n.startswith(prefix)}


def _take(arrays: Mapping[str, np.ndarray], prefix: str, like: Any) -> Any:
    """The tree below `prefix`.

    Raises:
      ValueError: names, types or shapes differ from those of `like`.
    """
    own, wanted = _below(arrays, prefix), parameters.by_name(like)
    for name in sorted(own.keys() | wanted.keys()):
        there, expected = (
            storage.kind(of[name]) if name in of else "absent" for of in (own, wanted)
        )
        if there != expected:
            raise ValueError(f"it is of other runs: {name} is {there}, expected {expected}")
    return jax.tree.unflatten(jax.tree.structure(like), [own[name] for name in wanted])
