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


def binary_cross_entropy(logit: jax.Array, label: jax.Array | float) -> jax.Array:
    """-log of the probability that a sigmoid of `logit` gives to `label`, one loss a pair.

    Args:
      logit: what the sigmoid of w makes a probability of, `[...]`.
      label: y, 0 where the two returns count as equal and 1 where they differ.

    Returns:
      `[...]`.
    """
    return jax.nn.softplus(logit) - label * logit


def info_nce(logits: jax.Array) -> jax.Array:
    """Mean cross-entropy of telling which key belongs to each query (van den Oord et al., 2018).

    Args:
      logits: similarity of query i and key j, `[N, N]`; key i is the one that belongs to query i,
        the others of the batch are its negatives.

    Returns:
      A scalar.
    """
    chex.assert_shape(logits, (len(logits), len(logits)))
    return -jnp.mean(jnp.diagonal(jax.nn.log_softmax(logits, axis=1)))


def cosine_similarity(first: jax.Array, second: jax.Array) -> jax.Array:
    """Cosine of the angle between vectors: `[..., d], [..., d] -> [...]` (RCRL, section 5.2)."""
    chex.assert_equal_shape([first, second])
    norms = jnp.linalg.norm(first, axis=-1) * jnp.linalg.norm(second, axis=-1)
    return jnp.sum(first * second, axis=-1) / jnp.maximum(norms, 1e-12)
