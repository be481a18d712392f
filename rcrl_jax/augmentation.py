"""Random shifts of stacked frames, on the device.

Each item of a batch is shifted by its own offsets, the frames of one stack all by the same, so
that what moves between frames stays visible.

    crop_pad_crop (CURL)   84 -> crop 80 at a random place -> repeat the border 4 times -> 88
                              -> crop 84 at a random place
    pad_crop (DrQ)         84 -> repeat the border 4 times -> 92 -> crop 84 at a random place

Either moves a picture by at most 4 pixels each way; CURL's also repeats more of its border.
"""

from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp

PAD = 4  # pixels
CROP = 80  # pixels that are left of 84 before CURL pads


def _random_crop(key: chex.PRNGKey, stack: jax.Array, side: int) -> jax.Array:
    """One crop for a whole stack: `[C, H, W] -> [C, side, side]`, every offset equally likely."""
    frames, height, width = stack.shape
    row_key, column_key = jax.random.split(key)
    row = jax.random.randint(row_key, (), 0, height - side + 1)
    column = jax.random.randint(column_key, (), 0, width - side + 1)
    return jax.lax.dynamic_slice(stack, (0, row, column), (frames, side, side))


def _repeat_border(stack: jax.Array) -> jax.Array:
    return jnp.pad(stack, ((0, 0), (PAD, PAD), (PAD, PAD)), mode="edge")


def _crop_pad_crop(key: chex.PRNGKey, stack: jax.Array) -> jax.Array:
    first_key, second_key = jax.random.split(key)
    cropped = _random_crop(first_key, stack, CROP)
    return _random_crop(second_key, _repeat_border(cropped), stack.shape[-1])


def _pad_crop(key: chex.PRNGKey, stack: jax.Array) -> jax.Array:
    return _random_crop(key, _repeat_border(stack), stack.shape[-1])


_ONE_STACK: dict[str, Callable[[chex.PRNGKey, jax.Array], jax.Array]] = {
    "crop_pad_crop": _crop_pad_crop,
    "pad_crop": _pad_crop,
}


def random_shift(key: chex.PRNGKey, stacks: jax.Array, kind: str) -> jax.Array:
    """Shifts each stack of a batch by offsets of its own.

    Args:
      key: of this batch.
      stacks: `[N, C, 84, 84]`, of any type.
      kind: 'crop_pad_crop' or 'pad_crop'.

    Returns:
      `[N, C, 84, 84]` of the same type.
    """
    chex.assert_rank(stacks, 4)
    return jax.vmap(_ONE_STACK[kind])(jax.random.split(key, len(stacks)), stacks)
