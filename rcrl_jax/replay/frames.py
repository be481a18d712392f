"""Stores of single frames, from which stacks are gathered."""

import math
from collections.abc import Callable
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from rcrl_jax.observations import FrameLayout
from rcrl_jax.replay import aligned, stacks


@flax.struct.dataclass
class FrameReferences:
    """Observations as slots of their frames; an update looks these up on the device.

    All references of a batch share one array of frames.
    """

    slots: jax.Array  # [R, N, C] int32, newest frame last; [N, C] of one run
    frames: jax.Array | None  # [R', slots, L], flat frames of all runs; None once detached
    shape: tuple[int, ...] = flax.struct.field(pytree_node=False)  # of the frame's part read
    stack_axis: int = flax.struct.field(pytree_node=False)

    def look_up(self, run: jax.Array | int) -> jax.Array:
        """Observations `[N, ...]` of one run, whose slots are `[N, C]`."""
        # Not `frames[run][slots]`: for a traced `run`, XLA copies all frames of that run.
        found = self.frames.at[run, self.slots].get(mode="clip")  # [N, C, L]
        found = found[..., : math.prod(self.shape)].reshape(*self.slots.shape, *self.shape)
        return jnp.moveaxis(found, 1, self.stack_axis)


def refer(slots: np.ndarray, frames: jax.Array | None, layout: FrameLayout) -> FrameReferences:
    """References to the stacks at `slots [R, N, C]`, in the order of a layout."""
    slots = slots.astype(np.int32, copy=False)
    return FrameReferences(slots, frames, layout.stored_shape, layout.stack_axis)


def _map_references(function: Callable[[FrameReferences], Any], tree: Any) -> Any:
    return jax.tree.map(
        lambda x: function(x) if isinstance(x, FrameReferences) else x,
        tree,
        is_leaf=lambda x: isinstance(x, FrameReferences),
    )


def detach_frames(tree: Any) -> tuple[Any, jax.Array | None]:
    """Separates the shared array of frames from the references of a tree.

    The array lies on the devices already. As a separate argument it is neither placed nor sliced by
    run, and is passed once for all references.

    Returns:
      The tree, whose references hold no frames, and the array; None if the tree has no references.

    Raises:
      ValueError: the references are to different arrays.
    """
    arrays = {}

    def detach(references: FrameReferences) -> FrameReferences:
        if references.frames is not None:
            arrays[id(references.frames)] = references.frames
        return references.replace(frames=None)

    detached = _map_references(detach, tree)
    if len(arrays) > 1:
        raise ValueError(f"references to {len(arrays)} arrays of frames; they must share one")
    return detached, next(iter(arrays.values()), None)


def resolve_references(tree: Any, frames: jax.Array, run: jax.Array | int) -> Any:
    """Looks up the detached references of one run's tree in the `frames` of all runs."""
    return _map_references(lambda references: references.replace(frames=frames).look_up(run), tree)


class HostFrameStore:
    """A ring of single frames for each of R runs in host memory, plus one slot of zeros.

    Stacks are gathered into two alternating buffers. An asynchronous update may still read the
    stacks of the previous call, so a buffer is used again only two calls later.
    """

    def __init__(self, num_runs: int, capacity: int, layout: FrameLayout) -> None:
        """Reserves `num_runs * (capacity + 1)` frames; memory is committed as they are written."""
        self.zero_slot = capacity  # stays all zero: frames before the start of an episode
        self._layout = layout
        self._frames = np.zeros((num_runs, capacity + 1, *layout.stored_shape), layout.dtype)
        self._offsets = np.arange(num_runs)[:, None, None] * (capacity + 1)
        self._buffers: dict[tuple[str, int, int], list[np.ndarray]] = {}

    def write(self, rows: np.ndarray, slots: np.ndarray, frames: np.ndarray) -> None:
        """Stores `frames [n, *frame_shape]` of runs `rows [n]` at `slots [n]`."""
        self._frames[rows, slots] = self._layout.pack(frames)

    def gather(self, name: str, slots: np.ndarray, layout: FrameLayout) -> np.ndarray:
        """Stacks of stored frames.

        Args:
          name: what the stacks are for; each name has its own buffers.
          slots: `[R, N, C]` integers, newest frame last.
          layout: the part of a stored frame that is read, a prefix of its bytes.

        Returns:
          Observations `[R, N, ...]` in the order of the layout. They survive one more call with
          this name; the second one overwrites them.
        """
        runs, num, frame_stack = slots.shape
        buffers = self._buffers.get((name, num, frame_stack))
        if buffers is None:
            shape = (runs, num, *layout.stack_shape(frame_stack))
            buffers = self._buffers[name, num, frame_stack] = [
                aligned.zeros(shape, layout.dtype) for _ in range(2)
            ]
        buffers.reverse()
        stored = self._frames.reshape(len(self._frames) * self._frames.shape[1], -1)
        pieces = math.prod(layout.stored_shape[: layout.stack_axis + 1])  # before the stack axis
        stacks.gather(stored.view(np.uint8), slots + self._offsets, pieces, buffers[0])
        return buffers[0]


def write_frame(frames: jax.Array, slot: jax.Array, frame: jax.Array) -> jax.Array:
    """One run's `frames [slots, L]` with `frame [*stored_shape]` at `slot []`."""
    flat = frame.reshape(-1)
    return frames.at[slot].set(jnp.pad(flat, (0, frames.shape[-1] - len(flat))))


_LANES = 128


def device_frame_size(layout: FrameLayout) -> int:
    """L, the elements of a frame on a device: those of a stored frame, then zeros.

    A TPU pads the last axis of an array to 128 and orders the axes differently for gathers. So it
    would copy a whole store of shaped frames in every update and every write. It neither pads nor
    copies flat frames whose length is a multiple of 128.
    """
    return -(-math.prod(layout.stored_shape) // _LANES) * _LANES


class DeviceFrameStore:
    """The ring of `HostFrameStore` in one array of flat frames on the device.

    The host sends new frames and slots. The update gathers the stacks.
    """

    def __init__(
        self,
        num_runs: int,
        zeros: jax.Array,
        place: Callable[[Any], Any],
        layout: FrameLayout,
    ) -> None:
        """Takes over the device array.

        Args:
          num_runs: R; R' may be larger.
          zeros: `[R', capacity + 2, L]`, as `Fleet.zeros` makes it; L is `device_frame_size`.
          place: moves host arrays `[R, ...]` to where the runs are, `Fleet.place`.
          layout: how frames are stored.
        """
        self._num_runs = num_runs
        self._frames = zeros
        self.zero_slot = zeros.shape[1] - 2
        self._unused_slot = zeros.shape[1] - 1  # written by runs that have nothing to write
        self._place = place
        self._layout = layout
        self._write = jax.jit(jax.vmap(write_frame), donate_argnums=0)

    def write(self, rows: np.ndarray, slots: np.ndarray, frames: np.ndarray) -> None:
        """Stores `frames [n, *frame_shape]` of runs `rows [n]`, ascending, at `slots [n]`.

        Donates the array, which invalidates earlier references.
        """
        packed, all_slots = self._layout.pack(frames), slots.astype(np.int32)
        if len(rows) < self._num_runs:
            all_slots = np.full(self._num_runs, self._unused_slot, np.int32)
            all_frames = np.zeros((self._num_runs, *packed.shape[1:]), packed.dtype)
            all_slots[rows], all_frames[rows] = slots, packed
            packed = all_frames
        self._scatter(all_slots, packed)

    def _scatter(self, slots: np.ndarray, frames: np.ndarray) -> None:
        """Writes one packed frame of every run: `slots [R]`, `frames [R, *stored_shape]`."""
        self._frames = self._write(self._frames, *self._place((slots, frames)))

    def gather(self, name: str, slots: np.ndarray, layout: FrameLayout) -> FrameReferences:
        """References to stacks, valid until the next `write`; see `HostFrameStore.gather`."""
        del name
        return refer(slots, self._frames, layout)
