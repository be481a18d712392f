"""Parameter initialisers that JAX and Flax do not have."""

import math

import chex
import jax
import jax.numpy as jnp


def uniform_fan_in(fan_in: int) -> jax.nn.initializers.Initializer:
    """U(-1/sqrt(fan_in), 1/sqrt(fan_in)), PyTorch's default for weights and biases."""
    bound = 1.0 / math.sqrt(fan_in)

    def init(key: chex.PRNGKey, shape: tuple[int, ...], dtype=jnp.float32) -> jax.Array:
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return init


def by_row(init: jax.nn.initializers.Initializer) -> jax.nn.initializers.Initializer:
    """Initialises each row of the first axis from its own key.

    A row depends on its index and not on the number of rows: the first rows of a longer array are
    those of a shorter one.
    """

    def init_rows(key: chex.PRNGKey, shape: tuple[int, ...], dtype=jnp.float32) -> jax.Array:
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(shape[0]))
        return jax.vmap(lambda row_key: init(row_key, shape[1:], dtype))(keys)

    return init_rows
