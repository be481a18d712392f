"""Scalars of a run as TensorBoard reads them, written by the thread that records them.

`tensorboardX.SummaryWriter` writes in a thread behind a bounded queue. If the disk is full, that
thread dies with a traceback and training waits for room in the queue for ever.
"""

import pathlib
import time
from collections.abc import Mapping
from typing import Any

from tensorboardX import summary
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog

from rcrl_jax import files


class ScalarFile:
    """One event file; TensorBoard reads all files of its directory."""

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
                self._write(step, summary=summary.scalar(name, value))
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
