"""The random numbers are those of JAX's own keys."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rcrl_jax.ops import native

threefry = pytest.importorskip("rcrl_jax.ops.kernels.threefry")

SHAPES = st.sampled_from([(), (1,), (7,), (2, 3), (3, 1, 4)])
DRAWS = {
    "bits": lambda key, shape: jax.random.bits(key, shape),
    "uniform": lambda key, shape: jax.random.uniform(key, shape, minval=-2.0, maxval=3.0),
    "normal": lambda key, shape: jax.random.normal(key, shape),
    "randint": lambda key, shape: jax.random.randint(key, shape, -5, 1000),
    "split": lambda key, shape: jax.random.key_data(jax.random.split(key, shape)),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
@given(seed=st.integers(0, 2**31 - 1), data=st.integers(0, 2**32 - 1), shape=SHAPES)
@settings(max_examples=10)
def test_draws_equal_those_of_jax(draw, seed, data, shape):
    theirs = jax.random.key(seed)
    mine = threefry.wrap(jax.random.key_data(theirs))
    np.testing.assert_array_equal(draw(mine, shape), draw(theirs, shape))
    mine, theirs = (jax.random.fold_in(key, np.uint32(data)) for key in (mine, theirs))
    np.testing.assert_array_equal(jax.random.key_data(mine), jax.random.key_data(theirs))
    np.testing.assert_array_equal(draw(mine, shape), draw(theirs, shape))


def test_draws_of_a_batch_of_keys_equal_those_of_jax():
    theirs = jax.random.split(jax.random.key(5), 3)
    mine = threefry.wrap(jax.random.key_data(theirs))
    draw = jax.jit(jax.vmap(lambda key: jax.random.normal(jax.random.fold_in(key, 7), (4,))))
    np.testing.assert_array_equal(draw(mine), draw(theirs))


def test_published_numbers():
    """Known answers of Random123, the source's code: `kat_vectors`, threefry2x32 20."""
    key, ones = jnp.zeros(2, jnp.uint32), jnp.full(2, 0xFFFFFFFF, jnp.uint32)
    x0, x1 = threefry._encrypt(key, jnp.zeros(1, jnp.uint32))
    assert (int(x0[0]), int(x1[0])) == (0x6B200159, 0x99BA4EFE)
    # The first word of a counter is always 0 here, so other counters are compared with JAX's.
    their_bits = jax.random.bits(jax.random.wrap_key_data(ones), (5,))
    np.testing.assert_array_equal(jax.random.bits(threefry.wrap(ones), (5,)), their_bits)


def test_a_draw_has_no_loop_and_other_widths_are_refused():
    key_data = jax.random.key_data(jax.random.key(0))
    draw = jax.jit(lambda data: jax.random.normal(threefry.wrap(data), (8,)))
    assert "while" not in draw.lower(key_data).as_text()
    with pytest.raises(NotImplementedError, match="16 bits"):
        jax.random.bits(threefry.wrap(key_data), (2,), jnp.uint16)


def test_the_agents_keys_are_these_and_without_them_jax_s_with_the_same_numbers(monkeypatch):
    key_data = jax.random.key_data(jax.random.key(5))
    mine = native.wrap_key(key_data)
    assert mine.dtype == threefry.wrap(key_data).dtype
    monkeypatch.setattr(native, "get", lambda name: None)
    theirs = native.wrap_key(key_data)
    assert theirs.dtype == jax.random.key(5).dtype != mine.dtype
    np.testing.assert_array_equal(jax.random.bits(mine, (3,)), jax.random.bits(theirs, (3,)))
