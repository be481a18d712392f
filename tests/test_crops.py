"""Crops come from the image, from every place alike, and keep a stack together."""

import jax
import numpy as np
from scipy import stats

from rcrl_jax import crops

# Every pixel says where it is, in which frame and which channel.
FRAMES, ROWS, COLUMNS, CHANNELS = 2, 7, 6, 3
IMAGE = np.arange(FRAMES * ROWS * COLUMNS * CHANNELS, dtype=np.uint8).reshape(
    FRAMES, ROWS, COLUMNS, CHANNELS
)
SIZE = 4


def test_each_crop_is_a_window_at_a_place_of_its_own_the_same_for_all_frames():
    n = 1000
    cropped = np.array(crops.random_crop(jax.random.key(0), np.stack([IMAGE] * n), SIZE))
    assert cropped.shape == (n, FRAMES, SIZE, SIZE, CHANNELS) and cropped.dtype == np.uint8
    counts = np.zeros((ROWS - SIZE + 1, COLUMNS - SIZE + 1))
    for window in cropped:
        top, left = np.argwhere(IMAGE[0, :, :, 0] == window[0, 0, 0, 0])[0]
        np.testing.assert_array_equal(window, IMAGE[:, top : top + SIZE, left : left + SIZE])
        counts[top, left] += 1
    # All places, the last ones included, are equally likely.
    assert stats.chisquare(counts.ravel()).pvalue > 1e-3


def test_a_key_decides_the_places():
    batch = np.stack([IMAGE] * 20)
    one, other = (crops.random_crop(jax.random.key(seed), batch, SIZE) for seed in (0, 1))
    np.testing.assert_array_equal(one, crops.random_crop(jax.random.key(0), batch, SIZE))
    assert np.any(np.asarray(one) != np.asarray(other))


def test_the_middle():
    cropped = crops.center_crop(IMAGE[None], SIZE)
    np.testing.assert_array_equal(cropped[0], IMAGE[:, 1:5, 1:5])
