"""Losses and ramps of SimPLe's world models.

As in SimPLe's code, github.com/tensorflow/tensor2tensor.
"""

import chex
import jax
import jax.numpy as jnp
import optax


def cut_cross_entropy(logits: jax.Array, label: jax.Array, cutoff: float) -> jax.Array:
    """Mean of `max(-log p(label) - cutoff, 0)`: good enough predictions give no gradient.

    Args:
      logits: `[..., K]`.
      label: `[...] int32`.
      cutoff: [nats].

    Returns:
      `[]`.
    """
    chex.assert_equal_shape_prefix([logits, label], label.ndim)
    surprise = optax.softmax_cross_entropy_with_integer_labels(logits, label)
    return jnp.mean(jax.nn.relu(surprise - cutoff))


_LEAST = 0.01  # where ramps begin


def linear_ramp(step: jax.Array, length: int) -> jax.Array:
    """`[]`: rises linearly from 0.01 to 1 over `length` updates."""
    return jnp.minimum(step / length, 1.0) * (1.0 - _LEAST) + _LEAST


def exponential_ramp(step: jax.Array, length: int) -> jax.Array:
    """`[]`: rises exponentially from 0.01 to 1 over `length` updates."""
    return _LEAST ** (jnp.maximum(length - step, 0.0) / length)


def scheduled_sampling(step: jax.Array, length: int) -> jax.Array:
    """`[]`: the probability that a model reads its own prediction instead of the true frame."""
    return exponential_ramp(step, length // 4) * linear_ramp(step, length)
