"""The frame stores."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rcrl_jax import observations
from rcrl_jax.replay.frames import DeviceFrameStore, HostFrameStore
from tests.replay.driver import TINY

RNG = np.random.default_rng(0)


def filled(num_runs: int, capacity: int, layout, shape) -> tuple[HostFrameStore, np.ndarray]:
    store = HostFrameStore(num_runs, capacity, layout)
    frames = RNG.integers(0, 256, (num_runs, capacity, *shape), np.uint8)
    for slot in range(capacity):
        store.write(np.arange(num_runs), np.full(num_runs, slot), frames[:, slot])
    return store, frames


def test_stacks_of_whole_frames_come_in_the_network_s_order():
    store, frames = filled(2, 5, observations.PATCHES, (84, 84))
    slots = RNG.integers(0, 5, (2, 3, 4))
    stacked = frames[np.arange(2)[:, None, None], slots]  # [R, N, C, 84, 84]
    gathered = store.gather("observation", slots)
    assert gathered.shape == (2, 3, 225, 4, 25)
    np.testing.assert_array_equal(gathered, observations.PATCHES.stack(stacked))


def test_the_zero_slot_is_zero_in_every_run():
    store, frames = filled(3, 4, TINY, (2, 2))
    slots = np.array([[[store.zero_slot, 0]]] * 3)
    gathered = store.gather("x", slots)
    assert not gathered[:, :, 0].any()
    np.testing.assert_array_equal(gathered[:, 0, 1], frames[:, 0])


def test_writing_some_runs_leaves_the_others_alone():
    store, frames = filled(3, 4, TINY, (2, 2))
    store.write(np.array([1]), np.array([2]), np.full((1, 2, 2), 9, np.uint8))
    frames[1, 2] = 9
    slots = np.broadcast_to(np.arange(4)[None, :, None], (3, 4, 1))
    np.testing.assert_array_equal(store.gather("x", slots)[:, :, 0], frames)


def test_a_stack_stays_valid_until_the_next_call_but_one():
    store, frames = filled(1, 4, TINY, (2, 2))
    first = store.gather("x", np.array([[[0]]]))
    store.gather("y", np.array([[[1]]]))  # other names and sizes have buffers of their own
    store.gather("x", np.array([[[1], [1]]]))
    second = store.gather("x", np.array([[[2]]]))
    np.testing.assert_array_equal(first[0, 0, 0], frames[0, 0])
    third = store.gather("x", np.array([[[3]]]))
    np.testing.assert_array_equal(second[0, 0, 0], frames[0, 2])
    assert np.shares_memory(first, third)  # no buffer is made after the first two calls


@pytest.mark.parametrize("size", [1, 32, 33])
def test_stacks_are_aligned_so_that_the_device_may_read_them_in_place(size):
    store, _ = filled(1, 4, TINY, (2, 2))
    for _ in range(2):
        gathered = store.gather("x", np.zeros((1, size, 3), np.int64))
        assert gathered.ctypes.data % 64 == 0
        assert gathered.flags.c_contiguous


@pytest.mark.parametrize(
    "layout, read",
    [
        (TINY, None),
        (observations.PATCHES, None),
        (observations.WHOLE, None),
        (observations.WHOLE, observations.PATCHES),
    ],
    ids=["tiny", "patches", "whole", "patches of whole"],
)
def test_the_device_store_holds_the_same_stacks_as_the_host_store(layout, read):
    runs, capacity = 3, 5
    shape = (2, 2) if layout is TINY else (84, 84)
    host = HostFrameStore(runs, capacity, layout)
    zeros = jnp.zeros((runs, capacity + 2, *layout.stored_shape), jnp.uint8)
    device = DeviceFrameStore(runs, zeros, lambda arrays: arrays, layout)
    assert device.zero_slot == host.zero_slot
    for step in range(2 * capacity):  # some runs pause, so that slots differ between them
        rows = np.flatnonzero([True, step % 2, step % 3])
        slots = RNG.integers(0, capacity, len(rows))
        frames = RNG.integers(1, 256, (len(rows), *shape), np.uint8)
        host.write(rows, slots, frames)
        device.write(rows, slots, frames)
    slots = RNG.integers(0, capacity + 1, (runs, 7, 4))  # the slot of zeros among them
    looked_up = jax.vmap(lambda references, run: references.look_up(device.on_device, run))(
        device.gather("x", slots, read), jnp.arange(runs)
    )
    np.testing.assert_array_equal(looked_up, host.gather("x", slots, read))


def test_a_part_of_the_frames_is_read_without_copying_the_ring():
    store, frames = filled(2, 5, observations.WHOLE, (84, 84))
    slots = RNG.integers(0, 5, (2, 3, 4))
    gathered = store.gather("x", slots, observations.PATCHES)
    stacked = frames[np.arange(2)[:, None, None], slots]
    np.testing.assert_array_equal(gathered, observations.stack_patches(stacked))
    part = store._frames.reshape(12, -1)[:, :5625].reshape(-1, 225, 25)
    assert np.shares_memory(part, store._frames)
