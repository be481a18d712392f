"""Random shifts and crops of stacked frames, on the device.

Every item of a batch has its own offsets. All frames of a stack share them, so that motion between
frames is preserved.

Atari (`random_shift`): the size stays 84 x 84, the image moves by at most 4 pixels each way.

    crop_pad_crop (CURL)   84 -> random crop to 80 -> repeat the border 4 times -> 88
                              -> random crop to 84
    pad_crop (DrQ)         84 -> repeat the border 4 times -> 92 -> random crop to 84

DMControl (`random_crop`, `center_crop`): the replay keeps whole rendered frames, and an update
reads crops of them.
"""

import functools

import chex
import jax
import jax.numpy as jnp

PAD = 4  # pixels added at each side
CROP = 80  # side of CURL's first crop [pixels]


def random_shift(key: chex.PRNGKey, stacks: jax.Array, kind: str) -> jax.Array:
    """Shifts each stack of a batch by its own random offsets.

    Args:
      key: decides the offsets.
      stacks: `[N, C, 84, 84]`, any dtype.
      kind: 'crop_pad_crop' or 'pad_crop'.

    Returns:
      `[N, C, 84, 84]`, same dtype.
    """
    chex.assert_shape(stacks, (None, None, 84, 84))
    images, keys = stacks[..., None], jax.random.split(key, len(stacks))
    side = stacks.shape[-1]
    if kind == "crop_pad_crop":
        first, keys = jax.vmap(jax.random.split, out_axes=1)(keys)
        images = _crop(images, *_offsets(first, side - CROP + 1), CROP)
    images = jnp.pad(images, ((0, 0), (0, 0), (PAD, PAD), (PAD, PAD), (0, 0)), mode="edge")
    return _crop(images, *_offsets(keys, images.shape[2] - side + 1), side)[..., 0]


def _offsets(keys: chex.PRNGKey, number: int) -> list[jax.Array]:
    """First rows and first columns `[N]` below `number`; each item draws with its own key."""
    draw = jax.vmap(lambda key: jax.random.randint(key, (), 0, number))
    return [draw(k) for k in jax.vmap(jax.random.split, out_axes=1)(keys)]


def random_crop(key: chex.PRNGKey, observation: jax.Array, size: int) -> jax.Array:
    """Crops each observation at its own random position.

    Args:
      key: decides the positions, uniform over all `(H - size + 1) * (W - size + 1)`.
      observation: `[N, C, H, W, 3] uint8`.
      size: height and width of the result [pixels].

    Returns:
      `[N, C, size, size, 3] uint8`.
    """
    chex.assert_shape(observation, (None, None, None, None, 3))
    chex.assert_type(observation, jnp.uint8)
    n, _, height, width, _ = observation.shape
    row_key, column_key = jax.random.split(key)
    row = jax.random.randint(row_key, (n,), 0, height - size + 1)
    column = jax.random.randint(column_key, (n,), 0, width - size + 1)
    return _crop(observation, row, column, size)


def _crop(observation, row, column, size):
    """`[N, C, H, W, c] -> [N, C, size, size, c]` from first rows and columns `[N]` on."""
    by_slices = functools.partial(_crop_by_slices, size=size)
    if observation.dtype != jnp.uint8:  # the products are exact for bytes alone
        return by_slices(observation, row, column)
    by_products = functools.partial(_crop_by_products, size=size)
    return jax.lax.platform_dependent(observation, row, column, tpu=by_products, default=by_slices)


def _crop_by_slices(observation, row, column, *, size):
    _, frame_stack, _, _, channels = observation.shape

    def crop(stack, top, left):
        return jax.lax.dynamic_slice(stack, (0, top, left, 0), (frame_stack, size, size, channels))

    return jax.vmap(crop)(observation, row, column)


def _crop_by_products(observation, row, column, *, size):
    """Selects rows, then columns, by products with matrices of zeros and ones.

    On a TPU, slices at different places would be a loop over the batch. The products are exact:
    bytes are exact in bfloat16, and each sum has one term that is not zero.
    """
    n, frame_stack, height, width, channels = observation.shape
    rows = row[:, None] + jnp.arange(size)[None]  # [N, size]
    # The bytes of a row of pixels as one axis: an axis of 3 would fill 3 of 128 lanes.
    columns = channels * column[:, None] + jnp.arange(channels * size)[None]
    select = functools.partial(
        jnp.einsum, precision=jax.lax.Precision.DEFAULT, preferred_element_type=jnp.bfloat16
    )
    pixels = observation.reshape(n, frame_stack, height, width * channels).astype(jnp.bfloat16)
    by_row = jax.nn.one_hot(rows, height, dtype=jnp.bfloat16)
    by_column = jax.nn.one_hot(columns, width * channels, dtype=jnp.bfloat16)
    cropped = select("nsh,nchw->ncsw", by_row, pixels)
    cropped = select("ncsw,nvw->ncsv", cropped, by_column)
    return cropped.astype(jnp.uint8).reshape(n, frame_stack, size, size, channels)


def center_crop(observation: jax.Array, size: int) -> jax.Array:
    """The middle of each observation: `[N, C, H, W, 3] -> [N, C, size, size, 3]`."""
    chex.assert_shape(observation, (None, None, None, None, 3))
    top, left = ((side - size) // 2 for side in observation.shape[2:4])
    return observation[:, :, top : top + size, left : left + size]
