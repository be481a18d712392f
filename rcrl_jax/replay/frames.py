"""Where single frames live, and how stacks are made of them."""

import math
from collections.abc import Callable
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from rcrl_jax import observations

_ALIGNMENT = 64  # bytes; JAX reads an aligned host array in place instead of copying it


@flax.struct.dataclass
class FrameReferences:
    """Observations that an update looks up on the device; stands where the array would."""

    slots: jax.Array  # [..., N, C] int32, newest frame last
    shape: tuple[int, ...] = flax.struct.field(pytree_node=False)  # of the part that is read
    stack_axis: int = flax.struct.field(pytree_node=False)

    def look_up(self, frames: jax.Array, run: jax.Array | int) -> jax.Array:
        """Observations `[N, ...]` of one run from all stored `frames [R, slots, ...]`."""
        # Not `frames[run][slots]`: where the run is not a constant, that copies all of its frames.
        stacks = frames.at[run, self.slots].get(mode="clip")  # [N, C, ...]
        if stacks.shape[2:] != self.shape:
            size = math.prod(self.shape)
            stacks = stacks.reshape(*stacks.shape[:2], -1)[..., :size]
            stacks = stacks.reshape(*stacks.shape[:2], *self.shape)
        return jnp.moveaxis(stacks, 1, self.stack_axis)


class HostFrameStore:
    """A ring of single frames for each of R runs in host memory, with one more slot of zeros.

    Stacks are gathered into buffers that take turns: an asynchronous update may still be reading
    the stacks of the previous call, so a buffer is used again only two calls later.
    """

    on_device = None  # an update needs nothing beside the gathered stacks

    def __init__(self, num_runs: int, capacity: int, layout: observations.Layout) -> None:
        """Reserves `num_runs * (capacity + 1)` frames; memory is committed as they are written."""
        self.zero_slot = capacity  # stays all zero: frames before the start of an episode
        self._layout = layout
        self._frames = np.zeros((num_runs, capacity + 1, *layout.stored_shape), layout.dtype)
        self._offsets = np.arange(num_runs)[:, None, None] * (capacity + 1)
        self._buffers: dict[tuple[str, int], list[np.ndarray]] = {}

    def write(self, rows: np.ndarray, slots: np.ndarray, frames: np.ndarray) -> None:
        """Stores `frames [n, *frame_shape]` of runs `rows [n]` at `slots [n]`."""
        self._frames[rows, slots] = self._layout.pack(frames)

    def gather(
        self, name: str, slots: np.ndarray, layout: observations.Layout | None = None
    ) -> np.ndarray:
        """Stacks of stored frames.

        Args:
          name: what the stacks are for; every name has its own buffers.
          slots: `[R, N, C] int64`, newest frame last.
          layout: what is read of a stored frame, its first bytes; None reads all of it.

        Returns:
          Observations `[R, N, ...]` in the layout's order, valid until the next call but
          one with this name.
        """
        layout = layout or self._layout
        runs, num, stack = slots.shape
        buffers = self._buffers.get((name, num))
        if buffers is None:
            shape = (runs, num, *layout.stack_shape(stack))
            buffers = self._buffers[name, num] = [
                _aligned_empty(shape, layout.dtype) for _ in range(2)
            ]
        buffers.reverse()
        # What of a frame stays together in a stack is moved as one item: for the 25-byte patches of
        # Atari, in two thirds of the time that as many items of one byte take.
        apart = layout.stored_shape[: layout.stack_axis + 1]
        size = math.prod(layout.stored_shape)
        item = np.dtype((np.void, size // math.prod(apart) * self._frames.itemsize))
        flat = self._frames.reshape(len(self._frames) * self._frames.shape[1], -1)
        stored = flat[:, :size].view(item).reshape(-1, *apart)
        stacks = buffers[0].reshape(-1).view(item).reshape(runs, num, *apart, stack)
        np.moveaxis(stacks, -1, 2)[...] = stored[slots + self._offsets]
        return buffers[0]


class DeviceFrameStore:
    """The same ring in one array on the device.

    The host sends new frames and indices; stacks are gathered inside the update.
    """

    def __init__(
        self,
        num_runs: int,
        zeros: jax.Array,
        place: Callable[[Any], Any],
        layout: observations.Layout,
    ) -> None:
        """Takes over the device array.

        Args:
          num_runs: R; R' may be larger.
          zeros: `[R', capacity + 2, *stored_shape]`, as `Fleet.zeros` makes it.
          place: moves host arrays `[R, ...]` to where the runs are, `Fleet.place`.
          layout: how frames are stored and stacked.
        """
        self._num_runs = num_runs
        self.on_device = zeros
        self.zero_slot = zeros.shape[1] - 2
        self._unused_slot = zeros.shape[1] - 1  # written by runs that have nothing to write
        self._place = place
        self._layout = layout
        self._write = jax.jit(
            jax.vmap(lambda frames, slot, frame: frames.at[slot].set(frame)), donate_argnums=0
        )

    def write(self, rows: np.ndarray, slots: np.ndarray, frames: np.ndarray) -> None:
        """Stores `frames [n, *frame_shape]` of runs `rows [n]` at `slots [n]`."""
        all_slots = np.full(self._num_runs, self._unused_slot, np.int32)
        all_frames = np.zeros((self._num_runs, *self._layout.stored_shape), self._layout.dtype)
        all_slots[rows], all_frames[rows] = slots, self._layout.pack(frames)
        self.on_device = self._write(self.on_device, *self._place((all_slots, all_frames)))

    def gather(
        self, name: str, slots: np.ndarray, layout: observations.Layout | None = None
    ) -> FrameReferences:
        """References to stacks; see `HostFrameStore.gather`."""
        del name
        layout = layout or self._layout
        return FrameReferences(slots.astype(np.int32), layout.stored_shape, layout.stack_axis)


def _aligned_empty(shape: tuple[int, ...], dtype: type[np.generic]) -> np.ndarray:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.empty(size + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)
