"""The frame stores."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rcrl_jax import observations
from rcrl_jax.replay.frames import (
    DeviceFrameStore,
    HostFrameStore,
    detach_frames,
    device_frame_size,
    resolve_references,
)
from tests.replay.driver import TINY

RNG = np.random.default_rng(0)


def filled(num_runs: int, capacity: int, layout, shape) -> tuple[HostFrameStore, np.ndarray]:
    store = HostFrameStore(num_runs, capacity, layout)
    frames = RNG.integers(0, 256, (num_runs, capacity, *shape), np.uint8)
    for slot in range(capacity):
        store.write(np.arange(num_runs), np.full(num_runs, slot), frames[:, slot])
    return store, frames


def test_stacks_have_the_order_of_the_layout():
    store, frames = filled(2, 5, observations.PATCHES, (84, 84))
    slots = RNG.integers(0, 5, (2, 3, 4))
    stacked = frames[np.arange(2)[:, None, None], slots]  # [R, N, C, 84, 84]
    gathered = store.gather("observation", slots, observations.PATCHES)
    assert gathered.shape == (2, 3, 225, 4, 25)
    np.testing.assert_array_equal(gathered, observations.PATCHES.stack(stacked))


def test_stack_stays_valid_until_the_next_call_but_one():
    store, frames = filled(1, 4, TINY, (2, 2))
    first = store.gather("x", np.array([[[0]]]), TINY)
    store.gather("y", np.array([[[1]]]), TINY)  # other names and sizes have buffers of their own
    store.gather("x", np.array([[[1], [1]]]), TINY)
    second = store.gather("x", np.array([[[2]]]), TINY)
    np.testing.assert_array_equal(first[0, 0, 0], frames[0, 0])
    third = store.gather("x", np.array([[[3]]]), TINY)
    np.testing.assert_array_equal(second[0, 0, 0], frames[0, 2])
    assert np.shares_memory(first, third)  # no buffer is made after the first two calls


@pytest.mark.parametrize("size", [1, 32, 33])
def test_stacks_are_aligned_for_reading_in_place(size):
    store, _ = filled(1, 4, TINY, (2, 2))
    for _ in range(2):
        gathered = store.gather("x", np.zeros((1, size, 3), np.int64), TINY)
        assert gathered.ctypes.data % 64 == 0
        assert gathered.flags.c_contiguous


@pytest.mark.parametrize(
    "layout, read",
    [
        (TINY, TINY),
        (observations.PATCHES, observations.PATCHES),
        (observations.WHOLE, observations.WHOLE),
        (observations.WHOLE, observations.PATCHES),
    ],
    ids=["tiny", "patches", "whole", "patches of whole"],
)
def test_device_store_returns_the_stacks_of_the_host_store(layout, read):
    runs, capacity = 3, 5
    shape = (2, 2) if layout is TINY else (84, 84)
    host = HostFrameStore(runs, capacity, layout)
    zeros = jnp.zeros((runs, capacity + 2, device_frame_size(layout)), jnp.uint8)
    device = DeviceFrameStore(runs, zeros, lambda arrays: arrays, layout)
    assert device.zero_slot == host.zero_slot
    for step in range(2 * capacity):  # some runs pause, so that slots differ between them
        rows = np.flatnonzero([True, step % 2, step % 3])
        slots = RNG.integers(0, capacity, len(rows))
        frames = RNG.integers(1, 256, (len(rows), *shape), np.uint8)
        host.write(rows, slots, frames)
        device.write(rows, slots, frames)
    slots = RNG.integers(0, capacity + 1, (runs, 7, 4))  # the slot of zeros among them
    references, stored = detach_frames(device.gather("x", slots, read))
    looked_up = jax.vmap(lambda own, run: resolve_references(own, stored, run))(
        references, jnp.arange(runs)
    )
    np.testing.assert_array_equal(looked_up, host.gather("x", slots, read))


def test_detaching_returns_the_one_array_that_all_references_share():
    stores = [
        DeviceFrameStore(2, jnp.zeros((2, 7, 128), jnp.uint8), lambda tree: tree, TINY)
        for _ in range(2)
    ]
    slots = np.zeros((2, 3, 4), np.int64)
    first, second = (stores[0].gather(name, slots, TINY) for name in "xy")
    detached, stored = detach_frames({"a": first, "b": (second, slots), "c": None})
    assert stored is first.frames is second.frames
    assert detached["a"].frames is detached["b"][0].frames is None
    assert len(jax.tree.leaves(detached)) == 3
    assert detach_frames({"b": slots})[1] is None
    with pytest.raises(ValueError, match="2 arrays"):
        detach_frames((first, stores[1].gather("x", slots, TINY)))
