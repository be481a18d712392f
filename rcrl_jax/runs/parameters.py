"""Final parameters of runs, as `RunPaths.parameters` keeps them: arrays by name."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from rcrl_jax import files, types
from rcrl_jax.runs.paths import RunPaths


def by_name(params: Any) -> dict[str, Any]:
    """The arrays of a tree by their paths, such as `agent/params/encoder/...`."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(params)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): x for path, x in leaves}


def read(paths: Sequence[RunPaths], like: types.TrainableParams) -> types.TrainableParams:
    """The final parameters of runs, rounded to half precision when they were written.

    Args:
        paths: `[R]`, the files of the runs.
        like: their shapes and types, leading axis R.

    Raises:
        Damaged: a file holds other parameters.
        OSError: it cannot be read.
    """
    wanted = by_name(like)
    runs = []
    for own in paths:
        with files.reading(own.parameters, passing=(OSError,)), np.load(own.parameters) as file:
            found = dict(file)
            for name in sorted(found.keys() | wanted.keys()):
                there = found[name].shape if name in found else None
                if name not in wanted or there != wanted[name].shape[1:]:
                    raise ValueError(f"it holds no parameters of this agent: {name} is {there}")
        runs.append(found)
    stacked = [
        np.stack([run[name] for run in runs]).astype(shape.dtype) for name, shape in wanted.items()
    ]
    return jax.tree.unflatten(jax.tree.structure(like), stacked)
