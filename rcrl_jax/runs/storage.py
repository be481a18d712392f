"""A file of named arrays: written atomically, and read only if no bit has changed.

line 1   `rcrl-jax arrays 1`, and the SHA-256 of line 2
line 2   JSON: `about`, what the file is; `arrays`, the name, type, shape and SHA-256 of each
rest     the bytes of the arrays, in this order, rows first
"""

import hashlib
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from rcrl_jax import files

_MAGIC = b"rcrl-jax arrays 1 "
_LONGEST_LINE = 2**24


class Kind(NamedTuple):
    """Type and shape of an array; the file's header adds a digest."""

    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        """As in messages: `float32[2, 3]`."""
        return f"{self.dtype}{[*self.shape]}"


def kind(array: Any) -> Kind:
    """Type and shape of an array, or of a template."""
    return Kind(np.dtype(array.dtype).name, tuple(array.shape))


def write(path: pathlib.Path, arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> None:
    """Writes a file; `path` holds the complete new or old file.

    Args:
      path: the file; its directory exists.
      arrays: by name.
      about: what the file is, for `read`; plain JSON values.

    Raises:
      OSError: it cannot be written.
    """
    whole = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    described = [[name, *kind(array), _digest(array)] for name, array in whole.items()]
    header = json.dumps({"about": about, "arrays": described}).encode()
    with files.replacing(path) as partial, open(partial, "wb") as file:
        file.write(_MAGIC + hashlib.sha256(header).hexdigest().encode() + b"\n" + header + b"\n")
        for array in whole.values():
            file.write(_bytes(array))


def read(path: pathlib.Path, prefix: str = "") -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Reads a file, or those of its arrays whose names begin with `prefix`.

    Returns:
      What `write` was given: `about`, and the arrays by name.

    Raises:
      ValueError: it is no such file, or it has changed since it was written.
      OSError: it cannot be read.
      MemoryError: there is too little memory for it.
    """
    with open(files.open_regular(path), "rb") as file:
        about, described = _read_header(file)
        arrays = {}
        for name, found, digest in described:
            array = np.empty(found.shape, found.dtype)
            if not name.startswith(prefix):
                file.seek(array.nbytes, os.SEEK_CUR)
                continue
            if file.readinto(_bytes(array)) != array.nbytes or _digest(array) != digest:
                raise ValueError(f"its array {name} has changed since it was saved")
            arrays[name] = array
        if file.tell() != os.fstat(file.fileno()).st_size:
            raise ValueError("its length has changed since it was saved")
    return about, arrays


def _read_header(file: BinaryIO) -> tuple[dict[str, Any], list[tuple[str, Kind, str]]]:
    first, header = (file.readline(_LONGEST_LINE)[:-1] for _ in range(2))
    if first != _MAGIC + hashlib.sha256(header).hexdigest().encode():
        raise ValueError("its first lines have changed since it was saved")
    described = json.loads(header)
    return described["about"], [
        (name, Kind(dtype, tuple(shape)), digest)
        for name, dtype, shape, digest in described["arrays"]
    ]


def _bytes(array: np.ndarray) -> memoryview:
    # JAX's own types, such as bfloat16, do not support buffers.
    return memoryview(array.reshape(-1).view(np.uint8))


def _digest(array: np.ndarray) -> str:
    return hashlib.sha256(_bytes(array)).hexdigest()
