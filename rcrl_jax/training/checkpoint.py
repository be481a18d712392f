"""Checkpoints of a whole fleet. They hold no frames: frames are rebuilt from the actions."""

import contextlib
import pathlib
from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp

from rcrl_jax import types
from rcrl_jax.replay.segment_replay import ReplayState
from rcrl_jax.training import loop
from rcrl_jax.training.fleet import Fleet
from rcrl_jax.training.history import HistoryState


class Checkpoint(NamedTuple):
    """The log of actions, and everything that cannot be rebuilt from it."""

    step: int
    learner: types.LearnerState  # NumPy, leading axis R
    pending_update: loop.Update | None  # NumPy; its priorities are not in the replay yet
    replay: ReplayState
    history: HistoryState


class CheckpointStore:
    """The newest checkpoint of a work directory, written atomically by orbax in the background."""

    def __init__(self, directory: pathlib.Path) -> None:
        """Opens, and if need be creates, `directory`."""
        self._manager = ocp.CheckpointManager(
            directory.absolute(),
            options=ocp.CheckpointManagerOptions(max_to_keep=1, cleanup_tmp_directories=True),
        )

    @property
    def latest_step(self) -> int | None:
        """Agent steps of the newest whole checkpoint; None if there is none."""
        return self._manager.latest_step()

    def save(self, checkpoint: Checkpoint) -> None:
        """Saves, unless this step is saved already; returns before the bytes are on disk.

        Raises:
          OSError: this checkpoint, or the one before, could not be written.
        """
        if self.latest_step == checkpoint.step:
            return
        progress = {
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
        with _disk_errors():
            self._manager.save(
                checkpoint.step,
                args=ocp.args.Composite(
                    learner=ocp.args.StandardSave(checkpoint.learner),
                    progress=ocp.args.StandardSave(progress),
                ),
            )

    def restore(self, learner: types.LearnerState) -> Checkpoint:
        """Reads the newest checkpoint.

        Args:
          learner: a learner state in NumPy of the same structure, for its types and shapes.
        """
        step = self.latest_step
        saved = self._manager.restore(
            step,
            args=ocp.args.Composite(
                learner=ocp.args.StandardRestore(learner),
                progress=ocp.args.StandardRestore(),
            ),
        )
        progress = jax.tree.map(np.asarray, saved.progress)
        pending = progress.get("pending_update")
        if pending is not None:
            result = types.UpdateResult(pending["transition_loss"], pending["metrics"])
            pending = loop.Update(pending["index"], result, pending["positive_is_anchor"])
        return Checkpoint(
            step,
            saved.learner,
            pending,
            ReplayState(**progress["replay"]),
            HistoryState(**progress["history"]),
        )

    def wait(self) -> None:
        """Waits until what was saved is on disk."""
        with _disk_errors():
            self._manager.wait_until_finished()

    def close(self) -> None:
        """Finishes writing."""
        with _disk_errors():
            self._manager.close()


def kept_steps(directory: pathlib.Path) -> list[int]:
    """Agent steps of the whole checkpoints in `directory`, oldest first; changes nothing there."""
    if not directory.is_dir():
        return []
    # A checkpoint that is being written has a longer name.
    return sorted(int(path.name) for path in directory.iterdir() if path.name.isdigit())


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
      ValueError: it holds other parameters.
    """
    kept = directory.absolute() / str(step)
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), like)
    wanted = {"params": {"agent": shapes}}
    before = _files(kept)
    try:
        saved = ocp.PyTreeCheckpointer().restore(
            kept / "learner",
            ocp.args.PyTreeRestore(
                wanted,
                restore_args=jax.tree.map(lambda _: ocp.RestoreArgs(np.ndarray), wanted),
                partial_restore=True,
            ),
        )
        failure = None
    except (OSError, ValueError, KeyError) as error:
        failure = error
    # A deletion has removed some files by now, so what was read may have holes.
    if not before or _files(kept) != before:
        raise FileNotFoundError(f"there is no checkpoint {directory / str(step)} any more")
    if failure is None:
        agents = saved["params"]["agent"]
        # What the checkpoint lacks stays a shape, and what it has keeps its own.
        if all(
            isinstance(own, np.ndarray) and own.shape == wanted.shape
            for own, wanted in zip(jax.tree.leaves(agents), jax.tree.leaves(shapes), strict=True)
        ):
            return agents
    raise ValueError(f"{directory / str(step)} holds no parameters of these agents") from failure


def _files(directory: pathlib.Path) -> list[pathlib.Path]:
    return sorted(directory.rglob("*"))


@contextlib.contextmanager
def _disk_errors() -> Iterator[None]:
    """Raises OSError instead of the ValueError that the storage library raises on a full disk."""
    try:
        yield
    except ValueError as error:
        raise OSError(f"a checkpoint cannot be written: {error}") from error


def snapshot(
    fleet: Fleet, state: loop.LoopState, replay: ReplayState, history: HistoryState
) -> Checkpoint:
    """Copies to the host all that a checkpoint keeps; waits for the update under way."""
    learner, pending = fleet.to_host((state.learner, state.pending_update))
    return Checkpoint(state.step, learner, pending, replay, history)
