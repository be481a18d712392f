"""Crops of rendered observations, made on the device: the replay keeps whole frames."""

import chex
import jax


def random_crop(key: chex.PRNGKey, observation: jax.Array, size: int) -> jax.Array:
    """Crops each observation at a place of its own, the same for all frames of its stack.

    Args:
      key: decides the places, uniform over all `(H - size + 1) * (W - size + 1)`.
      observation: `[N, H, W, C, 3]`.
      size: height and width of the result.

    Returns:
      `[N, size, size, C, 3]`.
    """
    n, height, width, *rest = observation.shape
    row_key, column_key = jax.random.split(key)
    row = jax.random.randint(row_key, (n,), 0, height - size + 1)
    column = jax.random.randint(column_key, (n,), 0, width - size + 1)

    def crop(image, top, left):
        return jax.lax.dynamic_slice(image, (top, left, 0, 0), (size, size, *rest))

    return jax.vmap(crop)(observation, row, column)


def center_crop(observation: jax.Array, size: int) -> jax.Array:
    """The middle of each observation: `[N, H, W, C, 3] -> [N, size, size, C, 3]`."""
    top, left = ((side - size) // 2 for side in observation.shape[1:3])
    return observation[:, top : top + size, left : left + size]
