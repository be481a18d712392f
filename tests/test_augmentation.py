"""Random shifts and crops, on images whose pixels hold their own positions."""

import jax
import numpy as np
import pytest
from scipy import stats

from rcrl_jax import augmentation

SIDE, ITEMS, FRAMES = 84, 3000, 2
ADDRESS = np.arange(SIDE * SIDE, dtype=np.int16).reshape(SIDE, SIDE)  # of each pixel of a frame
# Every pixel of this image holds its position, frame and channel.
ROWS, COLUMNS, CHANNELS, SIZE = 7, 6, 3, 4
IMAGE = np.arange(FRAMES * ROWS * COLUMNS * CHANNELS, dtype=np.uint8).reshape(
    FRAMES, ROWS, COLUMNS, CHANNELS
)


def rows_of(kind: str) -> dict[tuple[int, ...], np.ndarray]:
    """Offsets -> source row of each of the 84 rows; the same holds for columns."""
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
    """Kind and result `[ITEMS, FRAMES, 84, 84]` of a shift of addresses."""
    stack = np.stack([ADDRESS + frame * SIDE * SIDE for frame in range(FRAMES)])
    stacks = np.broadcast_to(stack, (ITEMS, *stack.shape))
    shift = jax.jit(augmentation.random_shift, static_argnums=2)
    return request.param, np.asarray(shift(jax.random.key(0), stacks, request.param))


def test_all_shifts_are_possible_ones_and_equally_likely(shifted):
    kind, stacks = shifted
    expected = {tuple(rows): offsets for offsets, rows in rows_of(kind).items()}
    assert len(expected) == len(rows_of(kind))  # offsets follow from the shift
    rows, columns = np.divmod(stacks[:, 0], SIDE)
    # A shift moves whole rows and whole columns.
    assert np.all(rows == rows[:, :, :1]) and np.all(columns == columns[:, :1])
    for lines in (rows[:, :, 0], columns[:, 0]):
        seen = [expected[tuple(line)] for line in lines.tolist()]
        counts = np.unique(seen, axis=0, return_counts=True)[1]
        assert len(counts) == len(expected)
        # All counts lie within 6 standard deviations of their mean.
        mean = ITEMS / len(expected)
        assert np.abs(counts - mean).max() < 6 * np.sqrt(mean)


def test_all_frames_of_a_stack_have_the_same_shift(shifted):
    _, stacks = shifted
    for frame in range(1, FRAMES):
        np.testing.assert_array_equal(stacks[:, frame], stacks[:, 0] + frame * SIDE * SIDE)


def test_shifts_of_items_and_of_rows_and_columns_are_independent(shifted):
    kind, stacks = shifted
    row, column = np.divmod(stacks[:, 0, SIDE // 2, SIDE // 2].astype(float), SIDE)
    for one, other in ((row[:-1], row[1:]), (row, column), (column[:-1], column[1:])):
        assert abs(np.corrcoef(one, other)[0, 1]) < 6 / np.sqrt(ITEMS)


def test_each_crop_is_a_window_at_a_uniform_position_shared_by_all_frames():
    n = 1000
    cropped = np.array(augmentation.random_crop(jax.random.key(0), np.stack([IMAGE] * n), SIZE))
    assert cropped.shape == (n, FRAMES, SIZE, SIZE, CHANNELS) and cropped.dtype == np.uint8
    counts = np.zeros((ROWS - SIZE + 1, COLUMNS - SIZE + 1))
    for window in cropped:
        top, left = np.argwhere(IMAGE[0, :, :, 0] == window[0, 0, 0, 0])[0]
        np.testing.assert_array_equal(window, IMAGE[:, top : top + SIZE, left : left + SIZE])
        counts[top, left] += 1
    # All positions, the last ones included, are equally likely.
    assert stats.chisquare(counts.ravel()).pvalue > 1e-3


def test_a_center_crop_is_the_middle_window():
    cropped = augmentation.center_crop(IMAGE[None], SIZE)
    np.testing.assert_array_equal(cropped[0], IMAGE[:, 1:5, 1:5])
