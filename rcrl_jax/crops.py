"""Crops of rendered observations, made on the device: the replay keeps whole frames."""

import chex
import jax


def random_crop(key: chex.PRNGKey, observation: jax.Array, size: int) -> jax.Array:
    """Crops each observation at a place of its own, the same for all frames of its stack.

    Args:
      key: decides the places, uniform over all `(H - size + 1) * (W - size + 1)`.
      observation: `[N, C, H, W, 3]`.
      size: height and width of the result.

    Returns:
      `[N, C, size, size, 3]`.
    """
    n, stack, height, width, channels = observation.shape
    row_key, column_key = jax.random.split(key)
    row = jax.random.randint(row_key, (n,), 0, height - size + 1)
    column = jax.random.randint(column_key, (n,), 0, width - size + 1)

    def crop(image, top, left):
        return jax.lax.dynamic_slice(image, (0, top, left, 0), (stack, size, size, channels))

    return jax.vmap(crop)(observation, row, column)


def center_crop(observation: jax.Array, size: int) -> jax.Array:
    """The middle of each observation: `[N, C, H, W, 3] -> [N, C, size, size, 3]`."""
    top, left = ((side - size) // 2 for side in observation.shape[2:4])
    return observation[:, :, top : top + size, left : left + size]
