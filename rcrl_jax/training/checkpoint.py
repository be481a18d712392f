"""Checkpoints of a whole fleet. They hold no frames: frames are rebuilt from the actions.

Where rendering is slow, frames come from a log beside the checkpoints (`envs/frame_log.py`).

<directory>/<agent steps>/   a checkpoint: `learner`, `progress`, and `digests` of both
<directory>/<n>.damaged      a checkpoint that could not be read, or what else lay in its place
"""

import asyncio
import contextlib
import logging
import pathlib
import shutil
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp

from rcrl_jax import files, types
from rcrl_jax.replay.segment_replay import ReplayState
from rcrl_jax.training import digests, loop
from rcrl_jax.training.fleet import Fleet
from rcrl_jax.training.history import HistoryState

PARTIAL = ".partial"
"""Ends the name of a checkpoint that is being written."""

_PARTS = ("learner", "progress", digests.NAME)


class Checkpoint(NamedTuple):
    """The log of actions, and everything that cannot be rebuilt from it."""

    step: int
    learner: types.LearnerState  # NumPy, leading axis R
    pending_update: loop.Update | None  # NumPy; its priorities are not in the replay yet
    replay: ReplayState
    history: HistoryState
    records: np.ndarray | None  # [R, 2] int64, lines of metrics and evaluations; None if unknown
    frame_log: int | None = None  # size of the log of frames in bytes; None if there is none


def write_checkpoint(path: pathlib.Path, checkpoint: Checkpoint) -> None:
    """Writes a checkpoint atomically: `path` holds all of it, or does not exist.

    Raises:
      Exception: it cannot be written; the storage library raises many classes.
    """
    partial = path.with_name(f"{path.name}{PARTIAL}")
    shutil.rmtree(partial, ignore_errors=True)
    with _quiet_library():
        ocp.Checkpointer(_handler()).save(
            partial,
            ocp.args.Composite(
                learner=ocp.args.StandardSave(checkpoint.learner),
                progress=ocp.args.StandardSave(_progress(checkpoint)),
            ),
        )
    digests.write(partial, checkpoint.learner)
    partial.rename(path)


def read_checkpoint(path: pathlib.Path, like: Checkpoint) -> Checkpoint:
    """Reads a checkpoint whose files have their digests; changes nothing on the disk.

    Args:
      path: its directory, named after its agent steps.
      like: a checkpoint of the same fleet, for types and shapes.

    Raises:
      Damaged: a file is missing or has changed, or the checkpoint is of another fleet. Checkpoints
        of older versions have no digests and are read unverified.
      PermissionError: it cannot be read.
    """
    with files.reading(path, passing=(PermissionError,)), _quiet_library():
        written = digests.verify(path)
        if written is not None:
            digests.check_kinds(written, digests.kinds(like.learner))
        saved = ocp.Checkpointer(_handler()).restore(
            path,
            ocp.args.Composite(
                learner=ocp.args.StandardRestore(like.learner),
                progress=ocp.args.StandardRestore(),
            ),
        )
        progress = jax.tree.map(np.asarray, saved.progress)
        checkpoint = _checkpoint(int(path.name), saved.learner, progress)
        for name in ("learner", "replay", "history"):
            own, wanted = getattr(checkpoint, name), getattr(like, name)
            digests.check_kinds(digests.kinds(own), digests.kinds(wanted))
        return checkpoint


def kept_steps(directory: pathlib.Path) -> list[int]:
    """Agent steps of the checkpoints in `directory`, oldest first; changes nothing there."""
    return sorted(int(path.name) for path in numbered(directory) if is_checkpoint(path))


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
    """
    kept = directory.absolute() / str(step)
    before = _files(kept)
    try:
        with files.reading(directory / str(step), passing=(PermissionError,)), _quiet_library():
            agents, failure = _read_agents(kept, like), None
    except files.Damaged as error:
        agents, failure = None, error
    # A deletion has removed some files by now, so what was read may have holes.
    if not before or _files(kept) != before:
        raise FileNotFoundError(f"there is no checkpoint {directory / str(step)} any more")
    if failure is not None:
        raise failure
    return agents


def snapshot(
    fleet: Fleet,
    state: loop.LoopState,
    replay: ReplayState,
    history: HistoryState,
    records: np.ndarray | None,
    frame_log: int | None,
) -> Checkpoint:
    """Copies to the host all that a checkpoint keeps; waits for the update under way."""
    learner, pending = fleet.to_host((state.learner, state.pending_update))
    return Checkpoint(state.step, learner, pending, replay, history, records, frame_log)


class _QuietLoop(asyncio.SelectorEventLoop):
    """An event loop that ignores what comes after it was closed.

    The storage library raises the first error and closes its loop. Its C++ threads then report to
    the closed loop, and print a traceback for every array.
    """

    def call_soon_threadsafe(self, callback, *args, context=None):
        with contextlib.suppress(RuntimeError):
            return super().call_soon_threadsafe(callback, *args, context=context)

    def call_exception_handler(self, context):
        """Drops errors after the first one."""


class _QuietLoops(asyncio.DefaultEventLoopPolicy):
    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return _QuietLoop()


@contextlib.contextmanager
def _quiet_library() -> Iterator[None]:
    """In the block, the storage library raises its errors and prints none.

    Nor does it after a block that has failed: its threads go on, and fail in their turn.
    """
    before, logger = asyncio.get_event_loop_policy(), logging.getLogger("absl")
    asyncio.set_event_loop_policy(_QuietLoops())
    logger.addFilter(_is_not_of_library)
    try:
        yield
        logger.removeFilter(_is_not_of_library)
    finally:
        asyncio.set_event_loop_policy(before)


def _is_not_of_library(record: logging.LogRecord) -> bool:
    return "orbax" not in pathlib.PurePath(record.pathname).parts


def _handler() -> ocp.CompositeCheckpointHandler:
    return ocp.CompositeCheckpointHandler(
        learner=ocp.StandardCheckpointHandler(),
        progress=ocp.StandardCheckpointHandler(),
    )


def _progress(checkpoint: Checkpoint) -> dict[str, Any]:
    """All of a checkpoint but the learner, as it is stored."""
    progress: dict[str, Any] = {
        "replay": checkpoint.replay._asdict(),
        "history": checkpoint.history._asdict(),
    }
    pending = checkpoint.pending_update
    if pending is not None:
        progress["pending_update"] = {
            "index": pending.index,
            "positive_is_anchor": pending.positive_is_anchor,
            **pending.result._asdict(),
        }
    if checkpoint.records is not None:
        progress["records"] = checkpoint.records
    if checkpoint.frame_log is not None:
        progress["frame_log"] = np.int64(checkpoint.frame_log)
    return progress


def _checkpoint(step: int, learner: types.LearnerState, progress: Mapping[str, Any]) -> Checkpoint:
    """The inverse of `_progress`."""
    pending = progress.get("pending_update")
    if pending is not None:
        result = types.UpdateResult(pending["transition_loss"], pending["metrics"])
        pending = loop.Update(pending["index"], result, pending["positive_is_anchor"])
    frame_log = progress.get("frame_log")
    return Checkpoint(
        step,
        learner,
        pending,
        ReplayState(**progress["replay"]),
        HistoryState(**progress["history"]),
        progress.get("records"),
        None if frame_log is None else int(frame_log),
    )


def _read_agents(path: pathlib.Path, like: types.Params) -> types.Params:
    written = digests.verify(path, part="learner/")
    if written is not None:
        prefix = "params/agent/"
        own = {n.removeprefix(prefix): written[n] for n in written if n.startswith(prefix)}
        digests.check_kinds(own, digests.kinds(like))
    wanted = {"params": {"agent": jax.tree.map(_shape, like)}}
    saved = ocp.PyTreeCheckpointer().restore(
        path / "learner",
        ocp.args.PyTreeRestore(
            wanted,
            restore_args=jax.tree.map(lambda _: ocp.RestoreArgs(np.ndarray), wanted),
            partial_restore=True,
        ),
    )
    agents = saved["params"]["agent"]
    # What the checkpoint lacks stays a shape, and what it has keeps its own.
    if not all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(agents)):
        raise ValueError("it holds no parameters of these agents")
    digests.check_kinds(digests.kinds(agents), digests.kinds(like))
    return agents


def _shape(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)


def numbered(directory: pathlib.Path) -> list[pathlib.Path]:
    """Directories whose names are numbers; a checkpoint that is being written has a longer name."""
    if not directory.is_dir():
        return []
    return [path for path in directory.iterdir() if path.is_dir() and _is_number(path.name)]


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit() and name == str(int(name))


def is_checkpoint(path: pathlib.Path) -> bool:
    """Whether a directory holds a checkpoint, maybe a damaged one."""
    return any((path / part).exists() for part in _PARTS)


def _files(directory: pathlib.Path) -> list[pathlib.Path]:
    return sorted(directory.rglob("*"))
