"""Host arrays that start at a cache line."""

import math
from collections.abc import Sequence

import numpy as np

LINE = 64  # bytes of a cache line; JAX also needs this alignment to read an array in place


def zeros(shape: Sequence[int], dtype: np.typing.DTypeLike) -> np.ndarray:
    """Zeros whose first byte starts a cache line; memory is committed as it is written.

    NumPy alone aligns to 16 bytes. Then an item of 64 bytes lies in two cache lines, and costs two
    misses when it is read at random.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    raw = np.zeros(size + LINE, np.uint8)
    start = -raw.ctypes.data % LINE
    return raw[start : start + size].view(dtype).reshape(shape)
