"""Calls the kernel of `adam.cc`, a step of Adam on the CPU."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rcrl_jax.ops.kernels import _adam

jax.ffi.register_ffi_target("rcrl_adam_step", _adam.step, platform="cpu")
INSTRUCTIONS = _adam.INSTRUCTIONS


def step(
    count: jax.Array, gradients: Any, params: Any, mu: Any, nu: Any, **constants: float
) -> tuple[jax.Array, Any, Any, Any]:
    """One step; gradients, parameters and moments are pytrees of one structure, all float32.

    Args:
      count: `[] int32`, the number of this step, from 1; 0 takes no step.
      gradients: before they are clipped.
      params: with one leaf at least.
      mu: first moments.
      nu: second moments.
      **constants: `learning_rate`, `b1`, `b2`, `eps` and `max_norm`.

    Returns:
      The norm of the gradients, and the new `params`, `mu` and `nu`.
    """
    leaves, structure = jax.tree.flatten(params)
    shapes = [jax.ShapeDtypeStruct(leaf.shape, jnp.float32) for leaf in leaves]
    call = jax.ffi.ffi_call(
        "rcrl_adam_step",
        [jax.ShapeDtypeStruct((), jnp.float32), *shapes * 3],
        # The kernel takes all runs of a fleet at once.
        vmap_method="broadcast_all",
        # The kernel updates parameters and moments in place; count and gradients come before them.
        input_output_aliases={1 + len(leaves) + k: 1 + k for k in range(3 * len(leaves))},
    )
    trees = (gradients, params, mu, nu)
    arguments = [leaf for tree in trees for leaf in structure.flatten_up_to(tree)]
    norm, *results = call(
        count, *arguments, **{name: np.float64(value) for name, value in constants.items()}
    )
    n = len(leaves)
    parts = (results[:n], results[n : 2 * n], results[2 * n :])
    return norm, *(jax.tree.unflatten(structure, part) for part in parts)
