"""Parameters as arrays by name: so they are kept on the disk."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np


def by_name(params: Any) -> dict[str, Any]:
    """The arrays of a tree by their paths, such as `agent/params/encoder/...`."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(params)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): x for path, x in leaves}


def fit(arrays: Mapping[str, np.ndarray], rows: Sequence[int], like: Any) -> Any:
    """Some runs of named arrays as a tree.

    Args:
        arrays: by their paths in the tree, leading axis R.
        rows: `[R']`, places of the wanted runs.
        like: types and shapes of what is returned; the length of the leading axis is free.

    Raises:
        ValueError: they have other names or shapes.
    """
    wanted = by_name(like)
    for name in sorted(arrays.keys() | wanted.keys()):
        theirs, ours = (
            list(of[name].shape[1:]) if name in of else "absent" for of in (arrays, wanted)
        )
        if theirs != ours:
            raise ValueError(f"it holds other parameters: {name} is {theirs}, and {ours} here")
    chosen = [arrays[name][rows].astype(leaf.dtype) for name, leaf in wanted.items()]
    return jax.tree.unflatten(jax.tree.structure(like), chosen)
