"""Losses and similarities of contrastive tasks."""

import chex
import jax
import jax.numpy as jnp


def squared_error(prediction: jax.Array, label: jax.Array | float) -> jax.Array:
    """(w - y)^2 of each pair: the summand of the Z-learning loss (RCRL, equation 2).

    Args:
      prediction: w(phi(x1), phi(x2)) in [0, 1], `[...]`.
      label: y, 0 where the two returns count as equal and 1 where they differ.

    Returns:
      `[...]`, one loss a pair.
    """
    return jnp.square(prediction - label)


def info_nce(logits: jax.Array) -> jax.Array:
    """Cross-entropy of each query against all keys, its own key lying on the diagonal.

    van den Oord et al. (2018), equation 4, with the bilinear logits of CURL (section 4.4).

    Args:
      logits: similarity of query i and key j, `[B, B]`.

    Returns:
      `[B]`, one loss a query.
    """
    chex.assert_rank(logits, 2)
    return jax.nn.logsumexp(logits, axis=-1) - jnp.diagonal(logits)


def cosine_similarity(first: jax.Array, second: jax.Array) -> jax.Array:
    """Cosine of the angle between vectors: `[..., d], [..., d] -> [...]` (RCRL, section 5.2)."""
    chex.assert_equal_shape([first, second])
    norms = jnp.linalg.norm(first, axis=-1) * jnp.linalg.norm(second, axis=-1)
    return jnp.sum(first * second, axis=-1) / jnp.maximum(norms, 1e-12)
