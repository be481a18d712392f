"""How stacked frames are laid out between the replay and the network.

The network's first layer decides: sampling must hand it bytes in the order in which its matrix
product reads them, because reordering pixels costs more than the product itself.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

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
      dtype: of frames, stored or not.
    """

    pack: Callable[[Array], Array]
    stored_shape: tuple[int, ...]
    stack_axis: int
    dtype: type[np.generic] = np.uint8

    def stack(self, frames: Array) -> Array:
        """Observations from whole stacks: `[..., C, *frame_shape] -> [..., *stack_shape]`."""
        packed = self.pack(frames)
        first = packed.ndim - len(self.stored_shape) - 1
        return np.moveaxis(packed, first, self.stack_axis)

    def stack_shape(self, size: int) -> tuple[int, ...]:
        """Shape of an observation of `size` frames."""
        shape = list(self.stored_shape)
        shape.insert(len(shape) + 1 + self.stack_axis, size)
        return tuple(shape)


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


def as_rendered(frame_shape: tuple[int, ...], dtype: type[np.generic]) -> Layout:
    """Frames as the environment hands them over: `[..., C, H, W, 3]` or, of vectors, `[..., C, D]`.

    A gathered frame stays one piece of memory; the update moves channels once it has cropped.
    """
    return Layout(lambda frames: frames, frame_shape, stack_axis=-1 - len(frame_shape), dtype=dtype)
