"""Stacks of frames, copied in NumPy and in C."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rcrl_jax.ops import native
from rcrl_jax.replay import stacks

needs_kernel = pytest.mark.skipif(native.get("stacks") is None, reason="stacks.c is not compiled")


def slowly(stored, slots, pieces: int, piece: int) -> np.ndarray:
    """`[N, P, C, p]`."""
    out = np.empty((len(slots), pieces, slots.shape[1], piece), np.uint8)
    for n, i, k in np.ndindex(out.shape[:3]):
        out[n, i, k] = stored[slots[n, k], i * piece : (i + 1) * piece]
    return out


@pytest.fixture(params=[pytest.param("C", marks=needs_kernel), "NumPy"])
def way(request, monkeypatch):
    if request.param == "NumPy":
        monkeypatch.setattr(native, "get", lambda name: None)


def check(num_slots, count, frames, pieces, piece, unread, seed):
    rng = np.random.default_rng(seed)
    stored = rng.integers(0, 256, (num_slots, pieces * piece + unread), np.uint8)
    slots = rng.integers(0, num_slots, (count, frames))
    slots[-1, -1] = num_slots - 1
    guarded = np.full(count * pieces * frames * piece + 64, 7, np.uint8)
    stacks.gather(stored, slots, pieces, guarded[:-64])
    found = guarded[:-64].reshape(count, pieces, frames, piece)
    np.testing.assert_array_equal(found, slowly(stored, slots, pieces, piece))
    assert np.all(guarded[-64:] == 7)


SIZES = (st.integers(1, n) for n in (9, 5, 5, 6, 40))


@needs_kernel
@example(3, 2, 4, 225, 25, 0, 0)  # a stack of Atari
@given(*SIZES, st.integers(0, 40), st.integers(0, 2**32 - 1))
def test_stacks_of_any_shape_in_c(num_slots, count, frames, pieces, piece, unread, seed):
    check(num_slots, count, frames, pieces, piece, unread, seed)


@pytest.mark.parametrize(
    "pieces, piece", [(225, 25), (1, 7056), (84, 84), (7, 1), (3, 16), (3, 32)]
)
@pytest.mark.parametrize("unread", [0, 31])
def test_stacks_of_shapes_in_use(way, pieces, piece, unread):
    check(5, 4, 4, pieces, piece, unread, seed=0)


def test_a_stack_may_have_as_many_frames_as_the_configuration_allows(way):
    check(5, 2, 100, 3, 25, unread=0, seed=0)


def test_a_stack_of_whole_frames_may_be_as_long_as_a_rollout(way):
    check(5, 2, 3203, 1, 25, unread=3, seed=0)


def test_what_does_not_fit_together_is_refused(way):
    stored, out = np.zeros((3, 50), np.uint8), np.zeros((2, 2, 4, 25), np.uint8)
    slots = np.zeros((2, 4), np.int64)
    for outside in (-1, 3):
        with pytest.raises(IndexError, match="slot out of range"):
            stacks.gather(stored, np.full((2, 4), outside), 2, out)
    for pieces, size in ((2, 401), (3, 400), (2, 0), (2, 8 * 52)):
        with pytest.raises(ValueError, match="do not fit together"):
            stacks.gather(stored, slots, pieces, np.zeros(size, np.uint8))
    with pytest.raises(ValueError, match="do not fit together"):
        stacks.gather(stored, np.zeros((1, 101), np.int64), 2, np.zeros((2, 101, 25), np.uint8))
    with pytest.raises(ValueError, match="contiguous"):
        stacks.gather(stored, slots, 2, np.zeros((2, 2, 4, 50), np.uint8)[..., ::2])
    with pytest.raises(TypeError):
        stacks.gather(stored, slots + 0.5, 2, out)
