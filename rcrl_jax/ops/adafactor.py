"""Adafactor (Shazeer and Stern, 2018), the optimizer of SimPLe's world models."""

import optax

from rcrl_jax.ops.adam import Optimizer, stepping


def make_adafactor(learning_rate: optax.Schedule, *, max_norm: float) -> Optimizer:
    """Makes optax's Adafactor, applied to gradients clipped by their norm.

    The second moments of every matrix are factored, as in Tensor2Tensor. By default, optax factors
    only matrices without a side below 128. Tensor2Tensor factors the last two axes, optax the two
    largest. In SimPLe's networks these are the same axes: kernels have more channels than pixels a
    side.

    Args:
      learning_rate: number of updates so far -> step size, relative to the parameters' scale.
      max_norm: gradients of a larger Euclidean norm are scaled to it.
    """
    transformation = optax.chain(
        optax.clip_by_global_norm(max_norm),
        optax.adafactor(learning_rate, min_dim_size_to_factor=1),
    )
    return Optimizer(transformation.init, stepping(transformation))
