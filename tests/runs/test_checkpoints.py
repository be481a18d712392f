"""A checkpoint is restored bit for bit, and a kill while writing leaves a complete one."""

import errno
import os
import pathlib
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import optax
import pytest

from rcrl_jax import types
from rcrl_jax.replay.segment_replay import ReplayState
from rcrl_jax.runs import checkpoints
from rcrl_jax.runs.records import RecordState
from tests.training import toy

RUNS, STEPS = 2, 50


def make_checkpoint(
    step: int, *, has_pending: bool = True, width: int = 4
) -> checkpoints.Checkpoint:
    """Every array is random; the numbers depend only on `step`."""
    rng = np.random.default_rng(step)

    def floats(*shape):
        return rng.standard_normal((RUNS, *shape)).astype(np.float32)

    params = types.TrainableParams({"dense": {"kernel": floats(3, width)}}, {"task": floats(2)})
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.1))
    learner = types.LearnerState(
        params=params,
        target_params={"dense": {"kernel": floats(3, width)}},
        opt_state=jax.tree.map(
            lambda x: rng.integers(0, 9, (RUNS, *x.shape)).astype(x.dtype), optimizer.init(params)
        ),
        key=rng.integers(0, 2**32, (RUNS, 2), np.uint32),
        updates=np.full(RUNS, step, np.int32),
        task_state={"task": {"kernel": floats(3, width)}},
    )
    pending = types.Update(
        rng.integers(0, 2**40, (RUNS, 8)),
        types.UpdateResult(floats(8), {"loss_c51": floats(), "loss_return_contrast": floats()}),
        rng.random(RUNS),
    )
    return checkpoints.Checkpoint(
        step,
        learner,
        pending if has_pending else None,
        ReplayState(rng.random((RUNS, STEPS)), rng.random(RUNS), rng.integers(0, 2**40, RUNS)),
        types.HistoryState(
            rng.integers(0, 18, (RUNS, STEPS)).astype(np.uint8),
            rng.integers(0, 2**64, RUNS, np.uint64),
        ),
        RecordState(
            rng.integers(0, 99, (RUNS, 2)), rng.integers(0, 256, (RUNS, 2, 32)).astype(np.uint8)
        ),
    )


def like(saved: checkpoints.Checkpoint) -> checkpoints.Checkpoint:
    return jax.tree.map(np.zeros_like, saved)


def save(directory, *saved: checkpoints.Checkpoint) -> None:
    store = checkpoints.CheckpointStore(directory, print)
    for one in saved:
        store.save(one)
    store.close()


def test_the_newest_checkpoint_is_restored_bit_for_bit(tmp_path):
    directory = tmp_path / "deep" / "checkpoints"
    store = checkpoints.CheckpointStore(directory, print)
    first, second = make_checkpoint(7, has_pending=False), make_checkpoint(20)
    assert store.restore(like(first)) is None
    store.save(first)
    store.wait()
    toy.assert_equal_trees(store.restore(like(first)), first)
    store.save(second)
    store.close()

    store = checkpoints.CheckpointStore(directory, print)
    toy.assert_equal_trees(store.restore(like(second)), second)
    # A saved step is not written again.
    store.save(make_checkpoint(21)._replace(step=20))
    store.wait()
    toy.assert_equal_trees(store.restore(like(second)), second)
    store.close()


def test_the_last_two_checkpoints_are_kept(tmp_path):
    for step in (5, 10, 100):
        save(tmp_path, make_checkpoint(step))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["10.ckpt", "100.ckpt"]
    assert checkpoints.kept_steps(tmp_path) == [10, 100]


def test_a_checkpoint_that_cannot_be_deleted_does_not_end_training(tmp_path, monkeypatch):
    """The next save deletes it."""

    def busy(path, missing_ok=False):
        if path.suffix == ".ckpt" and not path.name.startswith("."):
            raise OSError(errno.EBUSY, "busy", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(pathlib.Path, "unlink", busy)
        save(tmp_path, *map(make_checkpoint, (5, 10, 100)))
        assert checkpoints.kept_steps(tmp_path) == [5, 10, 100]
    save(tmp_path, make_checkpoint(200))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["100.ckpt", "200.ckpt"]


@pytest.mark.parametrize(
    "error",
    [MemoryError(), OSError(errno.ESTALE, "stale"), OSError(errno.EMFILE, "too many")],
    ids=repr,
)
def test_a_checkpoint_that_cannot_be_read_now_is_not_taken_for_damaged(
    tmp_path, monkeypatch, error
):
    def read(*arguments):
        raise error

    save(tmp_path, make_checkpoint(10), make_checkpoint(20))
    monkeypatch.setattr(checkpoints.storage, "read", read)
    store = checkpoints.CheckpointStore(tmp_path, print)
    with pytest.raises(type(error)):
        store.restore(like(make_checkpoint(20)))
    store.close()
    assert checkpoints.kept_steps(tmp_path) == [10, 20]


def test_leftovers_of_a_killed_process_are_deleted_and_nothing_else(tmp_path):
    kept = ("9999", ".partial.17.ckpt", "5.ckpt.damaged", ".partial.12.mine")
    for name in (".partial.12.7.ckpt", *kept):
        (tmp_path / name).touch()
    checkpoints.CheckpointStore(tmp_path, print).close()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)


WRITER = """
import pathlib, sys
from rcrl_jax.runs import checkpoints
from rcrl_jax.runs.records import RecordState
from tests.runs.test_checkpoints import make_checkpoint
store = checkpoints.CheckpointStore(pathlib.Path(sys.argv[1]), print)
for step in range(1, 10_000):
    store.save(make_checkpoint(step, width=2000))
    print(step, flush=True)
"""


def test_a_kill_while_writing_leaves_a_complete_checkpoint(tmp_path):
    directory = tmp_path / "checkpoints"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(directory)],
        cwd=toy.ROOT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        while int(writer.stdout.readline() or 10**9) < 5:
            pass
        time.sleep(0.021)  # into whatever phase the next save has reached
        os.kill(writer.pid, signal.SIGKILL)
    finally:
        writer.kill()
        writer.wait()
        writer.stdout.close()
    store = checkpoints.CheckpointStore(directory, print)
    restored = store.restore(like(make_checkpoint(3, width=2000)))
    step = restored.step
    assert step >= 3
    toy.assert_equal_trees(restored, make_checkpoint(step, width=2000))
    # Training can continue from it.
    store.save(make_checkpoint(step + 1, width=2000))
    store.close()
    assert all(path.suffix == ".ckpt" for path in directory.iterdir())
    assert checkpoints.kept_steps(directory)[-1] == step + 1


def test_a_failed_save_keeps_the_number_of_its_error(tmp_path, monkeypatch):
    """`launch.ending_cleanly` chooses the exit code by it."""

    def fail(path, checkpoint):
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(checkpoints, "write_checkpoint", fail)
    store = checkpoints.CheckpointStore(tmp_path, print)
    store.save(make_checkpoint(1))
    with pytest.raises(OSError, match="a checkpoint cannot be written .*: Stale") as failed:
        store.close()
    assert failed.value.errno == errno.ESTALE


def test_a_later_state_of_a_step_replaces_the_earlier_one(tmp_path):
    first = make_checkpoint(7)
    second, third = (make_checkpoint(8 + n)._replace(step=7, early_updates=n) for n in (1, 2))
    said = []
    store = checkpoints.CheckpointStore(tmp_path, said.append)
    store.save(first)
    store.save(second)
    store.close()
    store = checkpoints.CheckpointStore(tmp_path, said.append)
    toy.assert_equal_trees(store.restore(like(second)), second)
    store.save(third)  # after a resumption, too
    store.close()
    store = checkpoints.CheckpointStore(tmp_path, said.append)
    toy.assert_equal_trees(store.restore(like(third)), third)
    store.close()
    assert [path.name for path in tmp_path.iterdir()] == ["7.ckpt"] and not said


@pytest.mark.parametrize("is_file", [False, True])
def test_what_lies_in_the_place_of_a_checkpoint_is_kept(tmp_path, is_file):
    said, path = [], tmp_path / "20.ckpt"
    if not is_file:
        path.mkdir()
        path /= "note"
    path.write_text("mine")
    store = checkpoints.CheckpointStore(tmp_path, said.append)
    store.save(make_checkpoint(20))
    store.close()
    aside = tmp_path / "20.ckpt.damaged"
    assert (aside if is_file else aside / "note").read_text() == "mine"
    assert checkpoints.kept_steps(tmp_path) == [20]
    assert said == [
        f"warning: {tmp_path / '20.ckpt'} was there already; it is kept as 20.ckpt.damaged"
    ]
