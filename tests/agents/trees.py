"""Trees of parameters as vectors."""

import jax
import numpy as np


def flattened(tree) -> np.ndarray:
    """All leaves as one vector in float64; in NumPy, where no shape needs a compilation."""
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)]).astype(np.float64)
