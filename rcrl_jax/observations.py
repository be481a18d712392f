"""How stacked frames are laid out between the replay and the network.

The network's first layer decides: sampling must hand it bytes in the order in which its matrix
product reads them, because reordering pixels costs more than the product itself.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rcrl_jax.config import Config, SacConfig

Array = Any  # a NumPy or a JAX array: the functions below only reshape, slice and transpose

PATCH = 5  # side and stride of both convolutions [pixels, then cells]
GRID = 3  # the second convolution's output is GRID x GRID
CELLS = (GRID * PATCH) ** 2  # 225 outputs of the first convolution that the second reads
USED = GRID * PATCH * PATCH  # 75 of 84 pixels a side have any influence (see `patches`)


@dataclasses.dataclass(frozen=True)
class Layout:
    """A way to store single frames and to stack them.

    Attributes:
      pack: `[..., *frame_shape] -> [..., *stored_shape]`, what the replay keeps of a frame.
      stored_shape: shape of one stored frame.
      stack_axis: where the stack axis goes within a stack of stored frames, from the end.
      unstack: `[..., *stack_shape(C)] -> [..., C, 84, 84]`, undoes `stack`; None where pixels
        are lost.
      dtype: of frames, stored or not.
    """

    pack: Callable[[Array], Array]
    stored_shape: tuple[int, ...]
    stack_axis: int
    unstack: Callable[[jax.Array], jax.Array] | None = None
    dtype: type[np.generic] = np.uint8

    def stack_shape(self, size: int) -> tuple[int, ...]:
        """Shape of an observation of `size` frames."""
        shape = list(self.stored_shape)
        shape.insert(len(shape) + 1 + self.stack_axis, size)
        return tuple(shape)

    def stack(self, stacked_frames: Array) -> Array:
        """Observations from whole stacks: `[..., C, *frame_shape] -> [..., *stack_shape(C)]`."""
        packed = self.pack(stacked_frames)
        return np.moveaxis(packed, -1 - len(self.stored_shape), self.stack_axis)


def pack_patches(frames: Array) -> Array:
    """Cuts frames into the 5x5 pixel patches of the first convolution, ordered for the second.

    Both convolutions of the data-efficient encoder have stride = kernel = 5 and no padding: they
    do not overlap, and each is a matrix product over patches. Of 84 pixels a side the first makes
    16 cells, of which the second reads 15: only the top-left 75x75 pixels have any influence.

        75 rows = I (3) x i (5) x y (5), and likewise 75 columns = J x j x x
        [..., I i y, J j x] -> [..., I J i j, y x]

    I, J number the second convolution's outputs, i, j the first's within one of them, y, x the
    pixels within one of those.

    Args:
      frames: `[..., 84, 84]`.

    Returns:
      `[..., 225, 25]`.
    """
    lead = frames.shape[:-2]
    n = len(lead)
    split = (GRID, PATCH, PATCH)
    blocks = frames[..., :USED, :USED].reshape(lead + split + split)
    order = tuple(range(n)) + tuple(n + k for k in (0, 3, 1, 4, 2, 5))
    return blocks.transpose(order).reshape(*lead, CELLS, PATCH**2)


# Observations are [..., 225 cells, C frames, 25 pixels]: one row of the first product a cell.
PATCHES = Layout(pack_patches, (CELLS, PATCH**2), stack_axis=-2)


def stack_patches(stacked_frames: Array) -> Array:
    """Observations from whole stacks: `[..., C, 84, 84] -> [..., 225, C, 25]`."""
    return pack_patches(stacked_frames).swapaxes(-3, -2)


_SIDE = 84
_MARGIN = _SIDE - USED  # 9 pixels at the right and at the bottom


def pack_whole(frames: np.ndarray) -> np.ndarray:
    """All pixels of a frame, the patches of `pack_patches` first.

    A reader that needs the patches alone takes the first 5625 bytes as they are; one that shifts
    frames calls `unpack_whole`.

    Args:
      frames: `[..., 84, 84]`.

    Returns:
      `[..., 7056]`: 225 * 25 of the patches, 75 * 9 right of them, 9 * 84 below both.
    """
    lead = frames.shape[:-2]
    parts = (pack_patches(frames), frames[..., :USED, USED:], frames[..., USED:, :])
    return np.concatenate([part.reshape(*lead, -1) for part in parts], axis=-1)


def unpack_whole(packed: jax.Array) -> jax.Array:
    """Undoes `pack_whole`, on the device: `[..., 7056] -> [..., 84, 84]`."""
    lead = packed.shape[:-1]
    n = len(lead)
    split = (GRID, GRID, PATCH, PATCH, PATCH, PATCH)  # I J i j y x
    order = tuple(range(n)) + tuple(n + k for k in (0, 2, 4, 1, 3, 5))
    patches, right, below = jnp.split(packed, (USED**2, USED * _SIDE), axis=-1)
    corner = patches.reshape(*lead, *split).transpose(order).reshape(*lead, USED, USED)
    above = jnp.concatenate([corner, right.reshape(*lead, USED, _MARGIN)], axis=-1)
    return jnp.concatenate([above, below.reshape(*lead, _MARGIN, _SIDE)], axis=-2)


def leading_patches(stacks: jax.Array) -> jax.Array:
    """The patches at the head of whole frames: `[..., C, 7056] -> [..., 225, C, 25]`."""
    patches = stacks[..., : USED**2].reshape(*stacks.shape[:-1], CELLS, PATCH**2)
    return patches.swapaxes(-3, -2)


# Observations are [..., C frames, 7056 pixels].
WHOLE = Layout(pack_whole, (_SIDE**2,), stack_axis=-2, unstack=unpack_whole)
# Observations are [..., C frames, 84, 84]; for networks that do not read patches.
FRAMES = Layout(lambda frames: frames, (_SIDE, _SIDE), stack_axis=-3, unstack=lambda x: x)


def as_rendered(frame_shape: tuple[int, ...], dtype: type[np.generic]) -> Layout:
    """Frames as the environment hands them over: `[..., C, H, W, 3]` or, of vectors, `[..., C, D]`.

    A gathered frame stays one piece of memory; the update moves channels once it has cropped.
    """
    return Layout(lambda frames: frames, frame_shape, stack_axis=-1 - len(frame_shape), dtype=dtype)


class Layouts(NamedTuple):
    """How a preset's frames are stored, and how its observations reach an update."""

    stored: Layout  # begins with every other
    network: Layout  # what the network reads: in acting, and of state-action pairs
    observation: Layout  # of transitions
    next_observation: Layout


def layouts_of(config: Config) -> Layouts:
    """The layouts with the fewest bytes that serve a preset.

    On Atari a shift needs whole frames. The others of the update stay patches, at no cost on the
    way. On DMControl crops need whole frames, everywhere.
    """
    if isinstance(config, SacConfig):
        dtype = np.uint8 if config.observation == "pixels" else np.float32
        frames = as_rendered(config.frame_shape, dtype)
        return Layouts(frames, frames, frames, frames)
    if config.encoder == "nature":
        return Layouts(FRAMES, FRAMES, FRAMES, FRAMES)
    shifts_both = config.augmentation != "none"
    first = WHOLE if shifts_both or "curl" in config.tasks else PATCHES
    return Layouts(first, PATCHES, first, WHOLE if shifts_both else PATCHES)
