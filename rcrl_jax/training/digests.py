"""What a checkpoint says of itself: digests of its files, types and shapes of its arrays.

The files are verified before the storage library reads them. Its C++ threads print a traceback for
every array that they cannot read.
"""

import hashlib
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from rcrl_jax import files

NAME = "digests.json"
"""The file in a checkpoint's directory."""

Kinds = Mapping[str, Sequence[Any]]
"""Name of an array -> its type, its shape."""


def write(directory: pathlib.Path, learner: Any) -> None:
    """Writes the digests of all files in a directory, and the kinds of the arrays of `learner`.

    Raises:
      OSError: they cannot be written.
    """
    described = {
        "sha256": {
            str(path.relative_to(directory)): _digest(path)
            for path in sorted(directory.rglob("*"))
            if path.is_file()
        },
        "learner": kinds(learner),
    }
    files.write_json_atomically(directory / NAME, described)


def verify(directory: pathlib.Path, part: str = "") -> Kinds | None:
    """Compares the files of a directory with their digests.

    Args:
      directory: of a checkpoint.
      part: verifies only files whose relative path begins with this.

    Returns:
      The kinds of the learner's arrays; None if the checkpoint is older than digests.

    Raises:
      ValueError: a file is missing or has changed; the message names it.
      OSError: a file cannot be read.
    """
    if not (directory / NAME).exists():
        return None
    described = files.read_json(directory / NAME, dict)
    for name, digest in described["sha256"].items():
        if not name.startswith(part):
            continue
        if not (directory / name).is_file():
            raise ValueError(f"its file {name} is missing")
        if _digest(directory / name) != digest:
            raise ValueError(f"its file {name} has changed since it was saved")
    return described["learner"]


def kinds(tree: Any) -> dict[str, list[Any]]:
    """Types and shapes of the arrays of a tree, or of what stands for them, by name."""
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): [str(leaf.dtype), [*leaf.shape]]
        for path, leaf in jax.tree.leaves_with_path(tree)
    }


def check_kinds(there: Kinds, wanted: Kinds) -> None:
    """Raises ValueError unless arrays have the wanted names, types and shapes."""
    for name in sorted(there.keys() | wanted.keys()):
        if there.get(name) != wanted.get(name):
            raise ValueError(
                f"it holds no parameters of these agents: {name} is {_describe(there.get(name))}, "
                f"expected {_describe(wanted.get(name))}"
            )


def _digest(path: pathlib.Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _describe(kind: Sequence[Any] | None) -> str:
    return f"{kind[0]}{kind[1]}" if kind else "absent"
