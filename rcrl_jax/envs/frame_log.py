"""Logs of what environments have shown: for simulators that render slowly or do not repeat.

A resumed run plays its actions again, which brings the simulators back to their states. The frames
come from the log: reading a frame takes less than a hundredth of the time of rendering it.

The log is a file of records, one for each call that shows frames. A record is a header and
zlib-compressed content. The header holds the length and the CRC-32 of the compressed bytes. The
content is all rewards, then the differences of the new frames from the last ones of the same
environments, modulo 256. Differences compress far better than frames. A resumed run renders the
frames of the last record again, and compares them, and all rewards, with the log.

Environments that do not repeat are not played again by a resumed run: see `StepLog`.
"""

import os
import pathlib
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from rcrl_jax import files
from rcrl_jax.envs.protocol import TimeStep, VectorEnvironment

FRAME_LOG = "frames.log"
"""Name of the file in a work directory."""

_HEADER = struct.Struct("<II")
_LEVEL = 1  # of zlib; level 6 takes twice the time and saves a tenth


class NotRepeated(Exception):
    """A simulator did not repeat what the log holds."""


class FrameLog:
    """A file of records: first reads the records that it holds, then appends."""

    def __init__(self, path: pathlib.Path, size: int) -> None:
        """Opens the log and cuts off what follows its first `size` bytes.

        Args:
          path: the file; made if `size` is 0.
          size: as `sync` returned it; 0 for an empty log.

        Raises:
          Damaged: the file is not a regular one, or does not hold that many bytes of whole records.
          OSError: the file cannot be opened or written.
        """
        self._path = path
        self._unread = _count_records(path, size) if size else 0
        self._file = open(files.open_regular(path, os.O_RDWR | os.O_CREAT), "r+b")
        self._file.truncate(size)

    @property
    def unread(self) -> int:
        """How many records there are to read before new ones are added."""
        return self._unread

    def read(self) -> np.ndarray:
        """Content of the next record, flat uint8."""
        length, _ = _HEADER.unpack(self._file.read(_HEADER.size))
        self._unread -= 1
        return np.frombuffer(zlib.decompress(self._file.read(length)), np.uint8)

    def append(self, content: np.ndarray) -> None:
        """Adds a record of any uint8 array.

        Raises:
          OSError: it cannot be written.
        """
        packed = zlib.compress(np.ascontiguousarray(content), _LEVEL)
        with files.naming(self._path):
            self._file.write(_HEADER.pack(len(packed), zlib.crc32(packed)) + packed)

    def sync(self) -> int:
        """Waits until all records are on disk; returns their size in bytes.

        Raises:
          OSError: they cannot be written.
        """
        with files.naming(self._path):
            self._file.flush()
            os.fsync(self._file.fileno())
            return self._file.tell()

    def close(self) -> None:
        """Closes the file.

        Raises:
          OSError: the last records cannot be written.
        """
        with files.naming(self._path):
            self._file.close()


def _count_records(path: pathlib.Path, size: int) -> int:
    """How many records the first `size` bytes of a file are.

    Raises:
      Damaged: they are not whole records.
    """
    try:
        file = open(files.open_regular(path), "rb")
    except FileNotFoundError:
        raise files.Damaged(path, "it is missing") from None
    with file:
        position, count = 0, 0
        while position < size:
            header = file.read(_HEADER.size)
            if len(header) < _HEADER.size:
                raise files.Damaged(path, f"it ends after {position} of {size} bytes")
            length, checksum = _HEADER.unpack(header)
            position, count = position + _HEADER.size + length, count + 1
            # A lost block reads as zeros, and so as a record of length 0.
            if not length or position > size or zlib.crc32(file.read(length)) != checksum:
                raise files.Damaged(path, f"the record before byte {position} has changed")
        return count


class LoggedEnvironment(VectorEnvironment):
    """Environments whose frames come from a log to its end; later frames are appended to it."""

    def __init__(self, environment: VectorEnvironment, log: FrameLog) -> None:
        """Takes ownership of both.

        Args:
          environment: shows uint8 frames; not yet reset.
          log: empty, or the log of these environments under the actions that will follow.
        """
        self._environment, self._log = environment, log
        self.spec, self.num_envs = environment.spec, environment.num_envs
        self.num_valid_actions = environment.num_valid_actions
        self.description = environment.description
        self._last = np.zeros((self.num_envs, *self.spec.frame.shape), np.uint8)
        self._choose_rendering()

    def reset(self, mask: np.ndarray | None = None) -> TimeStep:
        """See `VectorEnvironment.reset`."""
        shown = np.ones(self.num_envs, bool) if mask is None else mask
        return self._with_frames(self._environment.reset(mask), shown)

    def send(self, actions: np.ndarray) -> None:
        """See `VectorEnvironment.send`."""
        self._environment.send(actions)

    def recv(self) -> TimeStep:
        """See `VectorEnvironment.recv`."""
        step = self._environment.recv()
        return self._with_frames(
            step, np.ones(self.num_envs, bool) if step.failed is None else ~step.failed
        )

    def _with_frames(self, step: TimeStep, shown: np.ndarray) -> TimeStep:
        """Replaces or logs the frames of the environments in `shown [R]`; others repeat theirs.

        Raises:
          NotRepeated: rewards, or rendered frames, are not those of the log.
        """
        rewards = step.reward.view(np.uint8)
        frame = self._last.copy()
        if self._log.unread:
            content = self._log.read()
            changes = content[rewards.size :]
            if not np.array_equal(content[: rewards.size], rewards) or (
                changes.size != frame[shown].size  # an episode ended at another step
            ):
                raise NotRepeated
            frame[shown] += changes.reshape(-1, *frame.shape[1:])
            if self._environment.renders and not np.array_equal(step.frame[shown], frame[shown]):
                raise NotRepeated
            self._choose_rendering()
        else:
            changes = step.frame[shown] - frame[shown]
            self._log.append(np.concatenate([rewards, changes.reshape(-1)]))
            frame[shown] = step.frame[shown]
        self._last = frame
        return step._replace(frame=frame)

    def _choose_rendering(self) -> None:
        """Renders from the last record on, to compare the simulators' states with the log."""
        self._environment.renders = self._log.unread <= 1

    def close(self) -> None:
        """Ends the environments and closes the log."""
        self._environment.close()
        self._log.close()


class LoggedStep(NamedTuple):
    """One step of R environments, as the replay takes it."""

    observation: np.ndarray  # [R, *frame_shape], the newest frame that was acted on
    reward: np.ndarray  # [R] float32
    terminated: np.ndarray  # [R] bool
    truncated: np.ndarray  # [R] bool
    frame: np.ndarray  # [R, *frame_shape], the frame that followed


class StepLog:
    """All steps of environments that do not repeat: a resumed run reads them, and plays on.

    A record of starts holds the first frames of all environments. A record of a step holds reward,
    ends and frames, then the first frames of the next episodes where one has ended. Starts that
    follow a step cut all episodes: a run was resumed there.
    """

    def __init__(self, log: FrameLog, frames: np.ndarray) -> None:
        """Takes an open log, and `frames [R, *frame_shape]` that tell shape and type."""
        self._log, self._size = log, frames.nbytes
        self._shape, self._dtype = frames.shape, frames.dtype

    def add_starts(self, frames: np.ndarray) -> None:
        """Adds the first frames `[R, *frame_shape]` of new episodes in all environments."""
        self._log.append(_octets(frames))

    def add(self, step: LoggedStep, newest: np.ndarray) -> None:
        """Adds a step, and the `newest [R, *frame_shape]` frames to act on next."""
        ended = step.terminated | step.truncated
        parts = (step.reward, step.terminated, step.truncated, step.frame, newest[ended])
        self._log.append(np.concatenate([_octets(part) for part in parts]))

    def read(self) -> Iterator[LoggedStep]:
        """Yields all steps; the last, and each before a record of starts, ends all episodes."""
        newest, step = None, None
        while self._log.unread:
            content = self._log.read()
            starts = content.size == self._size
            if step is not None:
                yield _cut(step) if starts else step
            step = None
            if starts:
                newest = self._frames(content)
                continue
            step, newest = self._step(content, newest)
        if step is not None:
            yield _cut(step)

    def _step(self, content: np.ndarray, newest: np.ndarray) -> tuple[LoggedStep, np.ndarray]:
        runs = self._shape[0]
        reward, terminated, truncated, frame, first = np.split(
            content, np.cumsum([4 * runs, runs, runs, self._size])
        )
        frame, terminated, truncated = (
            self._frames(frame), terminated.view(bool), truncated.view(bool)
        )  # fmt: skip
        step = LoggedStep(newest, reward.view(np.float32), terminated, truncated, frame)
        newest = frame.copy()
        newest[terminated | truncated] = self._frames(first)
        return step, newest

    def _frames(self, content: np.ndarray) -> np.ndarray:
        return content.view(self._dtype).reshape(-1, *self._shape[1:])


def _cut(step: LoggedStep) -> LoggedStep:
    return step._replace(truncated=~step.terminated)


def _octets(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
