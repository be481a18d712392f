"""The losses of the discriminator, and the similarity of embeddings.

rlax's `l2_loss` is half of `squared_error`; its `log_loss` takes probabilities and is infinite
where a sigmoid saturates.
"""

import chex
import jax
import jax.numpy as jnp


def squared_error(prediction: jax.Array, label: jax.Array | float) -> jax.Array:
    """(w - y)^2, one loss per pair: the summand of the Z-learning loss (RCRL, equation 1).

    Args:
      prediction: w(phi(x1), phi(x2)) in [0, 1], `[...]`.
      label: y, 0 where the two returns count as equal and 1 where they differ; `[...]`, or `[]`
        for all pairs.

    Returns:
      `[...]`.
    """
    _assert_label(prediction, label)
    return jnp.square(prediction - label)


def binary_cross_entropy(logit: jax.Array, label: jax.Array | float) -> jax.Array:
    """-log p(label) with p(1) = sigmoid(logit), one loss per pair.

    Args:
      logit: w before the sigmoid, `[...]`.
      label: y, 0 where the two returns count as equal and 1 where they differ; `[...]`, or `[]`
        for all pairs.

    Returns:
      `[...]`.
    """
    _assert_label(logit, label)
    return jax.nn.softplus(logit) - label * logit


def cosine_similarity(first: jax.Array, second: jax.Array) -> jax.Array:
    """Cosine of the angle between vectors: `[..., d], [..., d] -> [...]` (RCRL, section 5.2)."""
    chex.assert_equal_shape([first, second])
    norms = jnp.linalg.norm(first, axis=-1) * jnp.linalg.norm(second, axis=-1)
    return jnp.sum(first * second, axis=-1) / jnp.maximum(norms, 1e-12)


def _assert_label(prediction: jax.Array, label: jax.Array | float) -> None:
    if jnp.ndim(label):
        chex.assert_equal_shape([prediction, label])
