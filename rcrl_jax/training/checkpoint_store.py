"""The checkpoints of a run that is being trained: saved, restored, at most two kept."""

import os
import pathlib
import re
import shutil
import time
from collections.abc import Callable
from concurrent import futures

from rcrl_jax import files
from rcrl_jax.training import checkpoint, digests

KEPT = 2
"""Checkpoints that are kept: if the newest is damaged, a run goes on from the one before."""

_LEFTOVER = re.compile(rf"\d+({re.escape(checkpoint.PARTIAL)}|\.orbax-checkpoint-tmp|\.deleted).*")
_DELETION_S = 1.0  # that another program may take to delete the directory


class CheckpointStore:
    """Writes checkpoints into a directory, each one atomically, in a thread of its own."""

    def __init__(self, directory: pathlib.Path, say: Callable[[str], None] = print) -> None:
        """Makes the directory if need be, and deletes what killed processes left there.

        Args:
          directory: where checkpoints are; nobody else writes there.
          say: prints a line for the user.

        Raises:
          OSError: the directory cannot be made or written.
        """
        self._directory, self._say = directory.absolute(), say
        self._directory.mkdir(parents=True, exist_ok=True)
        for path in self._directory.iterdir():
            if _LEFTOVER.fullmatch(path.name):
                shutil.rmtree(path)
        self._thread = futures.ThreadPoolExecutor(1, "checkpoints")
        self._write: futures.Future[None] | None = None
        self._newest: int | None = None  # step of the last one written or read

    def restore(self, like: checkpoint.Checkpoint) -> checkpoint.Checkpoint | None:
        """Reads the newest checkpoint that is intact, and sets damaged newer ones aside.

        Args:
          like: a checkpoint of the same fleet, for types and shapes.

        Returns:
          None if there is no checkpoint.

        Raises:
          Damaged: there are checkpoints, and none is intact.
          OSError: a damaged one cannot be set aside.
        """
        for path in sorted(checkpoint.numbered(self._directory)):
            if not checkpoint.is_checkpoint(path):
                self._say(f"warning: {path} is no checkpoint and is ignored")
        damaged: list[tuple[pathlib.Path, files.Damaged]] = []
        for step in reversed(checkpoint.kept_steps(self._directory)):
            path = self._directory / str(step)
            try:
                found = checkpoint.read_checkpoint(path, like)
            except files.Damaged as error:
                damaged.append((path, error))
                continue
            for other, error in damaged:
                aside = files.set_aside(other, "damaged")
                self._say(
                    f"warning: {error}: it is kept as {aside.name}; going on from the checkpoint "
                    f"of step {step}"
                )
            if not (path / digests.NAME).exists():
                self._say(f"warning: {path} has no digests and was not verified")
            self._newest = step
            return found
        if damaged:
            raise damaged[0][1]
        return None

    def save(self, state: checkpoint.Checkpoint) -> None:
        """Saves, unless this step is saved already; returns before the bytes are on disk.

        Raises:
          OSError: the checkpoint before could not be written.
        """
        self.wait()
        if state.step != self._newest:
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
            raise OSError(
                f"a checkpoint cannot be written to {self._directory}: {_reason(error)}; "
                f"the newest whole one: {newest}"
            ) from error

    def close(self) -> None:
        """Finishes writing.

        Raises:
          OSError: a checkpoint could not be written.
        """
        try:
            self.wait()
        finally:
            self._thread.shutdown()

    def _write_now(self, state: checkpoint.Checkpoint) -> None:
        try:
            self._write_one(state)
        except Exception as error:
            # Another program may delete the directory while the storage library writes.
            if self._directory.exists() and not isinstance(error, FileNotFoundError):
                raise
            time.sleep(_DELETION_S)
            self._write_one(state)
        self._newest = state.step
        older = [step for step in checkpoint.kept_steps(self._directory) if step < state.step]
        for step in older[: len(older) + 1 - KEPT]:
            doomed = self._directory / f"{step}.deleted"
            # Renamed first, so that no reader and no resumed run finds half a checkpoint.
            (self._directory / str(step)).rename(doomed)
            shutil.rmtree(doomed)

    def _write_one(self, state: checkpoint.Checkpoint) -> None:
        before = self._newest is not None and self._directory / str(self._newest)
        if before and not before.exists():
            self._say(
                f"warning: another program has deleted {before}; step {state.step} is saved now"
            )
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._directory / str(state.step)
        if path.exists():
            aside = files.set_aside(path, "damaged")
            self._say(f"warning: {path} was in the way and is now {aside.name}")
        checkpoint.write_checkpoint(path, state)


def _reason(error: Exception) -> str:
    """Why a write failed; the storage library hides the system's reason in a long message."""
    code = re.search(r"os_error_code='(\d+)'", str(error))
    return os.strerror(int(code[1])) if code else files.one_line(error)
