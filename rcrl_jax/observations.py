"""How stacked frames are laid out between the replay and the network.

Sampling returns bytes in the order in which the network's first matrix product reads them,
because reordering pixels costs more than the product itself.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from rcrl_jax import types

Array = Any  # a NumPy or a JAX array: the functions below only reshape, slice and transpose

PATCH = 5  # side and stride of both convolutions [pixels, then cells]
GRID = 3  # the second convolution's output is GRID x GRID
CELLS = (GRID * PATCH) ** 2  # 225 outputs of the first convolution that the second reads
USED = GRID * PATCH * PATCH  # 75 of 84 pixels per side have any influence (see `pack_patches`)


@dataclasses.dataclass(frozen=True)
class FrameLayout:
    """A way to store single frames and to stack them.

    Attributes:
      pack: `[..., *frame_shape] -> [..., *stored_shape]`, the part of a frame that is kept.
      stored_shape: shape of one stored frame.
      stack_axis: position of the stack axis in a stack of stored frames, negative.
      unstack: `[..., *stack_shape(C)] -> [..., C, 84, 84]`, the inverse of `stack`; None for
        layouts of observations that no update shifts.
      dtype: of frames, stored or not.
      frame_shape: of a whole frame, if `pack` would take frames of other shapes, too.
    """

    pack: Callable[[Array], Array]
    stored_shape: tuple[int, ...]
    stack_axis: int
    unstack: Callable[[jax.Array], jax.Array] | None = None
    dtype: type[np.generic] = np.uint8
    frame_shape: tuple[int, ...] | None = None

    def stack_shape(self, frame_stack: int) -> tuple[int, ...]:
        """Shape of an observation of `frame_stack` frames."""
        shape = list(self.stored_shape)
        shape.insert(len(shape) + 1 + self.stack_axis, frame_stack)
        return tuple(shape)

    def stack(self, stacked_frames: Array) -> Array:
        """Observations from whole stacks: `[..., C, *frame_shape] -> [..., *stack_shape(C)]`."""
        packed = self.pack(stacked_frames)
        return np.moveaxis(packed, -1 - len(self.stored_shape), self.stack_axis)


def pack_patches(frames: Array) -> Array:
    """Cuts frames into the 5x5 pixel patches of the first convolution, ordered for the second.

    Both convolutions of the data-efficient encoder have stride = kernel = 5 and no padding. So
    their windows do not overlap, and each convolution is a matrix product over patches. Along each
    side, the first turns 84 pixels into 16 cells, and the second reads 15 of these: only the
    top-left 75x75 pixels have any influence.

        75 rows = I (3) x i (5) x y (5), and likewise 75 columns = J x j x x
        [..., I i y, J j x] -> [..., I J i j, y x]

    I, J number the outputs of the second convolution; i, j the cells in one of its windows; y, x
    the pixels in one window of the first convolution.

    Args:
      frames: `[..., 84, 84]`.

    Returns:
      `[..., 225, 25]`.

    Raises:
      ValueError: the frames have another size.
    """
    if frames.shape[-2:] != (84, 84):
        raise ValueError(f"frames: expected [..., 84, 84], got {list(frames.shape)}")
    lead = frames.shape[:-2]
    n = len(lead)
    split = (GRID, PATCH, PATCH)
    pixels = frames[..., :USED, :USED]
    if isinstance(frames, np.ndarray) and frames.strides[-1] == frames.itemsize:
        # Copies the pixels x of a row as one void item: a third less time.
        items = pixels.view(np.dtype((np.void, PATCH * frames.itemsize)))
        blocks = items.reshape(lead + split + split[:-1])
        order = tuple(range(n)) + tuple(n + k for k in (0, 3, 1, 4, 2))
        copied = np.ascontiguousarray(blocks.transpose(order)).view(frames.dtype)
        return copied.reshape(*lead, CELLS, PATCH**2)
    blocks = pixels.reshape(lead + split + split)
    order = tuple(range(n)) + tuple(n + k for k in (0, 3, 1, 4, 2, 5))
    return blocks.transpose(order).reshape(*lead, CELLS, PATCH**2)


# Observations are [..., 225 cells, C frames, 25 pixels]; each cell is a row of the first product.
PATCHES = FrameLayout(pack_patches, (CELLS, PATCH**2), stack_axis=-2)


_SIDE = 84
_MARGIN = _SIDE - USED  # 9 pixels at the right and at the bottom


def pack_whole(frames: np.ndarray) -> np.ndarray:
    """Orders all pixels of a frame, the patches of `pack_patches` first.

    The first 5625 bytes are the patches. `unpack_whole` restores the frame, for shifts.

    Args:
      frames: `[..., 84, 84]`.

    Returns:
      `[..., 7056]`: 225 * 25 pixels of patches, 75 * 9 to their right, 9 * 84 below both.
    """
    lead = frames.shape[:-2]
    parts = (pack_patches(frames), frames[..., :USED, USED:], frames[..., USED:, :])
    return np.concatenate([part.reshape(*lead, -1) for part in parts], axis=-1)


def unpack_whole(packed: jax.Array) -> jax.Array:
    """The inverse of `pack_whole`, on the device: `[..., 7056] -> [..., 84, 84]`."""
    lead = packed.shape[:-1]
    n = len(lead)
    split = (GRID, GRID, PATCH, PATCH, PATCH, PATCH)  # I J i j y x
    order = tuple(range(n)) + tuple(n + k for k in (0, 2, 4, 1, 3, 5))
    patches, right, below = jnp.split(packed, (USED**2, USED * _SIDE), axis=-1)
    corner = patches.reshape(*lead, *split).transpose(order).reshape(*lead, USED, USED)
    above = jnp.concatenate([corner, right.reshape(*lead, USED, _MARGIN)], axis=-1)
    return jnp.concatenate([above, below.reshape(*lead, _MARGIN, _SIDE)], axis=-2)


def leading_patches(stacks: jax.Array) -> jax.Array:
    """The patches that whole frames begin with: `[..., C, 7056] -> [..., 225, C, 25]`."""
    patches = stacks[..., : USED**2].reshape(*stacks.shape[:-1], CELLS, PATCH**2)
    return patches.swapaxes(-3, -2)


# Observations are [..., C frames, 7056 pixels].
WHOLE = FrameLayout(pack_whole, (_SIDE**2,), stack_axis=-2, unstack=unpack_whole)
# Observations are [..., C frames, 84, 84]; for networks that do not read patches.
FRAMES = FrameLayout(lambda frames: frames, (_SIDE, _SIDE), stack_axis=-3, unstack=lambda x: x)


def as_rendered(frame_shape: tuple[int, ...], dtype: type[np.generic]) -> FrameLayout:
    """Frames as the environment returns them: `[..., C, H, W, 3]`, or `[..., C, D]` of vectors.

    A frame stays contiguous, so gathering it is one copy. The update moves the channels after it
    has cropped the images.
    """
    return FrameLayout(
        lambda frames: frames, frame_shape, stack_axis=-1 - len(frame_shape), dtype=dtype
    )


def as_bits(frame_shape: tuple[int, ...]) -> FrameLayout:
    """Frames of zeros and ones, eight pixels a byte: observations are `[..., C, bytes]`.

    The network unpacks them. The last byte of a frame ends with zeros if the number of pixels is
    no multiple of 8.
    """
    pixels = math.prod(frame_shape)

    def pack(frames: Array) -> Array:
        flat = frames.reshape(*frames.shape[: -len(frame_shape)], pixels)
        packbits = np.packbits if isinstance(frames, np.ndarray) else jnp.packbits
        return packbits(flat, axis=-1)

    return FrameLayout(pack, (-(-pixels // 8),), stack_axis=-2, frame_shape=frame_shape)


def unpack_bits(packed: jax.Array, frame_shape: tuple[int, ...]) -> jax.Array:
    """The inverse of packing as in `as_bits`: `[..., bytes] -> [..., *frame_shape] uint8`."""
    flat = jnp.unpackbits(packed, axis=-1, count=math.prod(frame_shape))
    return flat.reshape(*packed.shape[:-1], *frame_shape)


def quantise(frames: jax.Array, key: jax.Array | None, levels: int = 32) -> jax.Array:
    """Reduces pixels to `levels` levels and scales to [-0.5, 0.5), `[...] uint8 -> float32`.

    With a key, a pixel is uniform within its level; without one, it is the middle of the level.
    SAC+AE and PlaNet take 32 levels, five bits, from Glow.
    """
    noise = 0.5 if key is None else jax.random.uniform(key, frames.shape)
    return ((frames // (256 // levels)).astype(jnp.float32) + noise) / levels - 0.5


def check_frames(
    frame: specs.Array, shape: tuple[int | str, ...], dtype: type[np.generic] = np.uint8
) -> None:
    """Checks that an agent can read the frames of an environment.

    Args:
      frame: of the environment.
      shape: of a frame that the agent reads; a letter in place of a size that may differ.
      dtype: of such a frame.

    Raises:
      Incompatible: the frames have another shape or type.
    """
    fits = len(frame.shape) == len(shape) and all(
        isinstance(wanted, str) or wanted == size
        for wanted, size in zip(shape, frame.shape, strict=True)
    )
    if not fits or frame.dtype != dtype:
        wanted = ", ".join(map(str, shape))
        raise types.Incompatible(
            f"the environment's frames must be {dtype.__name__} [{wanted}], "
            f"got {frame.dtype} {list(frame.shape)}"
        )


class ObservationFormat(NamedTuple):
    """How the frames of an agent are stored, and how its observations reach acting and updates."""

    frame_stack: int  # C, frames in an observation
    stored: FrameLayout  # every other layout is a prefix of this one
    network: FrameLayout  # what the network reads in acting and in state-action pairs
    observation: FrameLayout  # of transitions
    next_observation: FrameLayout  # of transitions
    with_actions: bool = False  # whether the observations of pairs are a `types.Context`

    @classmethod
    def uniform(cls, frame_stack: int, layout: FrameLayout) -> "ObservationFormat":
        """One layout everywhere."""
        return cls(frame_stack, layout, layout, layout, layout)

    @property
    def network_shape(self) -> tuple[int, ...]:
        """Shape of one observation in the network's layout."""
        return self.network.stack_shape(self.frame_stack)


def stack_places(age: np.ndarray, frame_stack: int) -> tuple[np.ndarray, np.ndarray]:
    """Where the frames of stacks lie in their episodes.

    Args:
      age: `[N]`, how many frames of the episode precede the newest one of each stack.
      frame_stack: C.

    Returns:
      back: `[C]`, how many frames each lies behind the newest: C - 1 to 0.
      exists: `[N, C] bool`, False before the start of the episode, where a stack holds zeros.
    """
    back = np.arange(frame_stack)[::-1]
    return back, back <= age[:, None]
