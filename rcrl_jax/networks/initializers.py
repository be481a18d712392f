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


def delta_orthogonal(gain: float) -> jax.nn.initializers.Initializer:
    """Convolution kernels `[h, w, in, out]`, h and w odd, that are zero outside the centre tap.

    The centre tap is `gain` times a matrix with orthonormal rows or columns, whichever are fewer
    (Xiao et al., 2018). `jax.nn.initializers.delta_orthogonal` rejects kernels with fewer outputs
    than inputs.
    """
    orthogonal = jax.nn.initializers.orthogonal(gain)

    def init(key: chex.PRNGKey, shape: tuple[int, ...], dtype=jnp.float32) -> jax.Array:
        height, width, *matrix = shape
        centre = orthogonal(key, matrix, dtype)
        return jnp.zeros(shape, dtype).at[height // 2, width // 2].set(centre)

    return init
