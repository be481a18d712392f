"""Adafactor (Shazeer and Stern, 2018), as SimPLe's world models are trained."""

import optax

from rcrl_jax.ops.adam import Optimizer, stepping


def make_adafactor(learning_rate: optax.Schedule, *, max_norm: float) -> Optimizer:
    """Makes optax's Adafactor behind a clip of the gradients' norm.

    Second moments of every matrix are factored, as in Tensor2Tensor; optax would leave those with a
    side below 128 whole. Tensor2Tensor factors the last two axes and optax the two largest. In
    SimPLe's networks they are the same: kernels have more channels than pixels a side.

    Args:
      learning_rate: updates so far -> size of a step, relative to that of a parameter.
      max_norm: gradients of a larger Euclidean norm are scaled to it.
    """
    transformation = optax.chain(
        optax.clip_by_global_norm(max_norm),
        optax.adafactor(learning_rate, min_dim_size_to_factor=1),
    )
    return Optimizer(transformation.init, stepping(transformation))
