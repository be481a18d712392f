"""Final parameters of runs, as `RunPaths.parameters` keeps them: arrays by name."""

import pathlib
from typing import Any

import jax
import numpy as np

from rcrl_jax import files, types


def by_name(params: Any) -> dict[str, Any]:
    """The arrays of a tree by their paths, such as `agent/params/encoder/...`."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(params)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): x for path, x in leaves}


def read_agent(path: pathlib.Path) -> dict[str, np.ndarray]:
    """The final parameters of a run's agent by their paths, leading axis 1; see `read`."""
    prefix = "agent/"
    with files.reading(path), np.load(path) as file:
        return {n.removeprefix(prefix): file[n][None] for n in file if n.startswith(prefix)}


def read(path: pathlib.Path, like: types.TrainableParams) -> types.TrainableParams:
    """The final parameters of a run, rounded to half precision when they were written.

    Args:
        path: the run's file.
        like: shapes and types of what is returned, leading axis 1.

    Raises:
        Damaged: the file holds other parameters.
        OSError: it cannot be read.
    """
    wanted = by_name(like)
    with files.reading(path), np.load(path) as file:
        found = dict(file)
        for name in sorted(found.keys() | wanted.keys()):
            there = found[name].shape if name in found else None
            if name not in wanted or there != wanted[name].shape[1:]:
                raise ValueError(f"it holds no parameters of this agent: {name} is {there}")
    arrays = [found[name][None].astype(shape.dtype) for name, shape in wanted.items()]
    return jax.tree.unflatten(jax.tree.structure(like), arrays)
