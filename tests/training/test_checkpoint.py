"""A checkpoint is restored bit for bit, and a kill while writing leaves a complete one."""

import os
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
from rcrl_jax.training import checkpoint, loop
from rcrl_jax.training.history import HistoryState
from tests.training import toy

RUNS, STEPS = 2, 50


def make_checkpoint(
    step: int, *, has_pending: bool = True, width: int = 4
) -> checkpoint.Checkpoint:
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
    pending = loop.Update(
        rng.integers(0, 2**40, (RUNS, 8)),
        types.UpdateResult(floats(8), {"loss_c51": floats(), "loss_return_contrast": floats()}),
        rng.random(RUNS),
    )
    return checkpoint.Checkpoint(
        step,
        learner,
        pending if has_pending else None,
        ReplayState(rng.random((RUNS, STEPS)), rng.random(RUNS), rng.integers(0, 2**40, RUNS)),
        HistoryState(
            rng.integers(0, 18, (RUNS, STEPS)).astype(np.uint8),
            rng.integers(0, 2**64, RUNS, np.uint64),
        ),
    )


def like(saved: checkpoint.Checkpoint) -> types.LearnerState:
    return jax.tree.map(np.zeros_like, saved.learner)


def test_the_newest_checkpoint_is_restored_bit_for_bit(tmp_path):
    directory = tmp_path / "deep" / "checkpoints"
    store = checkpoint.CheckpointStore(directory)
    assert store.latest_step is None
    first, second = make_checkpoint(7, has_pending=False), make_checkpoint(20)
    store.save(first)
    store.wait()
    toy.assert_equal_trees(store.restore(like(first)), first)
    store.save(second)
    store.close()

    store = checkpoint.CheckpointStore(directory)
    assert store.latest_step == 20
    toy.assert_equal_trees(store.restore(like(second)), second)
    # A saved step is not written again; an older checkpoint is not kept.
    store.save(make_checkpoint(21)._replace(step=20))
    store.wait()
    toy.assert_equal_trees(store.restore(like(second)), second)
    assert [path.name for path in directory.iterdir() if path.name.isdigit()] == ["20"]
    store.close()


def test_what_was_saved_does_not_change_when_the_arrays_do(tmp_path):
    _, fleet = toy.make_fleet(toy.make_config(), range(RUNS))
    state = loop.LoopState(3, make_checkpoint(3).learner, None, make_checkpoint(3).pending_update)
    saved = make_checkpoint(3)
    copied = checkpoint.snapshot(fleet, state, saved.replay, saved.history)
    for leaf in jax.tree.leaves((state.learner, state.pending_update)):
        leaf[...] = 0
    toy.assert_equal_trees(copied, saved)


WRITER = """
import pathlib, sys
from rcrl_jax.training import checkpoint
from tests.training.test_checkpoint import make_checkpoint
store = checkpoint.CheckpointStore(pathlib.Path(sys.argv[1]))
for step in range(1, 10_000):
    store.save(make_checkpoint(step, width=2000))
    print(step, flush=True)
"""


@pytest.mark.parametrize("delay_s", [0.004, 0.021])
def test_a_kill_while_writing_leaves_a_complete_checkpoint(tmp_path, delay_s):
    directory = tmp_path / "checkpoints"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(directory)],
        cwd=toy.ROOT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        while int(writer.stdout.readline() or 10**9) < 5:
            pass
        time.sleep(delay_s)  # into whatever phase the next save has reached
        os.kill(writer.pid, signal.SIGKILL)
    finally:
        writer.kill()
        writer.wait()
        writer.stdout.close()
    store = checkpoint.CheckpointStore(directory)
    step = store.latest_step
    assert step >= 3
    saved = make_checkpoint(step, width=2000)
    toy.assert_equal_trees(store.restore(like(saved)), saved)
    # Training can continue from it.
    store.save(make_checkpoint(step + 1, width=2000))
    store.close()
    store = checkpoint.CheckpointStore(directory)
    assert store.latest_step == step + 1
    store.close()
