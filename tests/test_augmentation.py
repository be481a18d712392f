"""Random shifts, seen through frames whose pixels are their own addresses."""

import jax
import numpy as np
import pytest

from rcrl_jax import augmentation

SIDE, ITEMS, FRAMES = 84, 3000, 3
ADDRESS = np.arange(SIDE * SIDE).reshape(SIDE, SIDE)


def rows_of(kind: str) -> dict[tuple[int, ...], np.ndarray]:
    """Source row of each of the 84 rows, for every choice of offsets; columns are alike."""
    i = np.arange(SIDE)
    if kind == "pad_crop":
        return {(offset,): np.clip(i + offset - 4, 0, 83) for offset in range(9)}
    return {
        (top, offset): top + np.clip(i + offset - 4, 0, 79)
        for top in range(5)
        for offset in range(5)
    }


@pytest.fixture(scope="module", params=["crop_pad_crop", "pad_crop"])
def shifted(request):
    """(kind, `[ITEMS, FRAMES, 84, 84]` of addresses)."""
    stacks = np.broadcast_to(ADDRESS, (ITEMS, 1, SIDE, SIDE)).astype(np.int32)
    stacks = stacks + SIDE * SIDE * np.arange(FRAMES, dtype=np.int32)[:, None, None]
    shift = jax.jit(augmentation.random_shift, static_argnums=2)
    return request.param, np.asarray(shift(jax.random.key(0), stacks, request.param))


def test_shapes_and_types():
    stacks = np.zeros((2, 4, SIDE, SIDE), np.uint8)
    shifted = augmentation.random_shift(jax.random.key(0), stacks, "pad_crop")
    assert shifted.shape == stacks.shape and shifted.dtype == np.uint8


def test_every_item_is_one_of_the_possible_shifts_and_every_offset_is_reached(shifted):
    kind, stacks = shifted
    expected = {tuple(rows): offsets for offsets, rows in rows_of(kind).items()}
    assert len(expected) == len(rows_of(kind))  # a shift tells its offsets
    rows, columns = np.divmod(stacks[:, 0], SIDE)
    # A shift moves whole rows and whole columns.
    assert np.all(rows == rows[:, :, :1]) and np.all(columns == columns[:, :1])
    for lines in (rows[:, :, 0], columns[:, 0]):
        seen = [expected[tuple(line)] for line in lines.tolist()]
        counts = np.unique(seen, axis=0, return_counts=True)[1]
        assert len(counts) == len(expected)
        # All equally likely: no count is 6 standard deviations from its mean.
        mean = ITEMS / len(expected)
        assert np.abs(counts - mean).max() < 6 * np.sqrt(mean)


def test_the_frames_of_a_stack_are_shifted_alike(shifted):
    _, stacks = shifted
    for frame in range(1, FRAMES):
        np.testing.assert_array_equal(stacks[:, frame], stacks[:, 0] + frame * SIDE * SIDE)


def test_items_are_shifted_independently_of_each_other_and_rows_of_columns(shifted):
    kind, stacks = shifted
    row, column = np.divmod(stacks[:, 0, SIDE // 2, SIDE // 2].astype(float), SIDE)
    for one, other in ((row[:-1], row[1:]), (row, column), (column[:-1], column[1:])):
        assert abs(np.corrcoef(one, other)[0, 1]) < 6 / np.sqrt(ITEMS)


def test_a_key_decides_the_shift():
    stacks = np.broadcast_to(ADDRESS, (20, 1, SIDE, SIDE)).astype(np.int32)
    one, two, other = (
        np.asarray(augmentation.random_shift(jax.random.key(k), stacks, "crop_pad_crop"))
        for k in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, two)
    assert np.any(one != other)
