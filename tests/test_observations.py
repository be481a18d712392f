"""The order of pixels between the replay and the network."""

import jax.numpy as jnp
import numpy as np
import pytest

from rcrl_jax import observations, types
from rcrl_jax.agents.make_agent import make_agent
from rcrl_jax.agents.rainbow.config import RainbowConfig
from rcrl_jax.config.presets import ATARI_PRESETS, all_presets
from rcrl_jax.envs.protocol import control_spec, discrete_spec


def stack_patches(stacked_frames):
    """[..., C, 84, 84] -> [..., 225, C, 25]."""
    return observations.pack_patches(stacked_frames).swapaxes(-3, -2)


def test_patch_order_is_that_of_the_docstring():
    frame = np.arange(84 * 84).reshape(84, 84)
    patches = observations.pack_patches(frame)
    assert patches.shape == (225, 25)
    for row, column in [(0, 0), (4, 4), (5, 0), (0, 5), (26, 3), (74, 74), (37, 61)]:
        big_i, small_i, y = row // 25, row // 5 % 5, row % 5
        big_j, small_j, x = column // 25, column // 5 % 5, column % 5
        cell = ((big_i * 3 + big_j) * 5 + small_i) * 5 + small_j
        assert patches[cell, 5 * y + x] == frame[row, column]


def test_packing_does_not_depend_on_the_order_in_memory():
    for dtype in (np.uint8, np.float32):
        frames = np.random.default_rng(0).integers(0, 256, (2, 84, 84)).astype(dtype)
        expected = np.asarray(observations.pack_patches(jnp.asarray(frames)))
        np.testing.assert_array_equal(observations.pack_patches(frames), expected)
        transposed = np.asfortranarray(frames)
        np.testing.assert_array_equal(observations.pack_patches(transposed), expected)
        cropped = np.pad(frames, ((0, 0), (3, 1), (2, 7)))[:, 3:-1, 2:-7]
        np.testing.assert_array_equal(observations.pack_patches(cropped), expected)


def test_stacking_commutes_with_packing():
    stack = np.random.default_rng(0).integers(0, 256, (6, 4, 84, 84), np.uint8)
    packed = observations.PATCHES.stack(stack)
    assert packed.shape == (6, *observations.PATCHES.stack_shape(4)) == (6, 225, 4, 25)
    for c in range(4):
        np.testing.assert_array_equal(packed[:, :, c], observations.PATCHES.pack(stack[:, c]))


def test_whole_frames_begin_with_the_patches_and_lose_no_pixel():
    stacks = np.random.default_rng(0).integers(0, 256, (2, 3, 84, 84), np.uint8)
    packed = observations.WHOLE.stack(stacks)
    assert packed.shape == (2, *observations.WHOLE.stack_shape(3)) == (2, 3, 7056)
    np.testing.assert_array_equal(observations.WHOLE.unstack(packed), stacks)
    patches = observations.leading_patches(packed)
    np.testing.assert_array_equal(patches, stack_patches(stacks))


@pytest.mark.parametrize("channels", [1, 4, 6, 7, 10])
def test_bits_hold_a_frame_in_an_eighth_of_its_bytes_and_lose_none(channels):
    layout = observations.as_bits((10, 10, channels))
    stacks = np.random.default_rng(0).integers(0, 2, (3, 2, 10, 10, channels), np.uint8)
    packed = layout.stack(stacks)
    assert packed.shape == (3, *layout.stack_shape(2)) == (3, 2, -(-100 * channels // 8))
    unpacked = observations.unpack_bits(jnp.asarray(packed), (10, 10, channels))
    np.testing.assert_array_equal(unpacked, stacks)
    np.testing.assert_array_equal(layout.stack(jnp.asarray(stacks)), packed)


def format_of(preset: str) -> observations.ObservationFormat:
    return make_agent(ATARI_PRESETS[preset], discrete_spec((84, 84), 4)).observations


def test_each_preset_stores_the_fewest_bytes_it_needs():
    for name, config in ATARI_PRESETS.items():
        shifts = config.augmentation != "none" or "curl" in config.auxiliary
        fewest = observations.WHOLE if shifts else observations.PATCHES
        expected = observations.FRAMES if config.encoder == "nature" else fewest
        assert format_of(name).stored is expected, name
    curl = format_of("curl")  # shifts the first state alone
    assert curl.observation is observations.WHOLE
    assert curl.next_observation is curl.network is observations.PATCHES


@pytest.mark.parametrize(
    ("preset", "spec", "message"),
    [
        ("rcrl", discrete_spec((64, 64), 4), r"uint8 \[84, 84\], got uint8 \[64, 64\]"),
        ("rainbow", discrete_spec((84, 84, 3), 4), r"uint8 \[84, 84\], got uint8 \[84, 84, 3\]"),
        ("minatar_rcrl", discrete_spec((84, 84), 4), r"uint8 \[10, 10, C\], got uint8 \[84, 84\]"),
        ("minatar_rcrl", discrete_spec((10, 9, 4), 4), r"uint8 \[10, 10, C\], got uint8 \[10, 9, "),
        ("rcrl", discrete_spec((10, 10, 4), 4), r"uint8 \[84, 84\], got uint8 \[10, 10, 4\]"),
        ("simple", discrete_spec((84, 84), 4), r"uint8 \[105, 80, 3\], got uint8 \[84, 84\]"),
        ("rcrl_sac", control_spec((84, 84, 3), 6), r"uint8 \[100, 100, 3\], got uint8 \[84, "),
        ("state_sac", control_spec((84, 84, 3), 6), r"float32 \[D\], got uint8 \[84, 84, 3\]"),
        ("dense", discrete_spec((84, 84), 4), r"float32 \[D\], got uint8 \[84, 84\]"),
        ("dreamer", control_spec((84, 84, 3), 6), r"uint8 \[64, 64, 3\], got uint8 \[84, 84, 3\]"),
    ],
)
def test_frames_that_an_agent_cannot_read_are_refused(preset, spec, message):
    presets = {**all_presets(), "dense": RainbowConfig(encoder="dense")}
    with pytest.raises(types.Incompatible, match=f"frames must be {message}"):
        make_agent(presets[preset], spec)


@pytest.mark.parametrize("shape", [(96, 96), (210, 160), (80, 84)])
def test_frames_of_another_size_have_no_patches(shape):
    with pytest.raises(ValueError, match=r"frames: expected \[..., 84, 84\], got "):
        observations.pack_patches(np.zeros((2, *shape), np.uint8))
