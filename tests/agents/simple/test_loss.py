"""Losses and ramps of SimPLe's world models by hand."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rcrl_jax.agents.simple import loss as simple


def test_the_cut_off_is_subtracted_from_each_label_before_the_mean():
    logits = jnp.log(jnp.array([[0.5, 0.5], [0.999, 0.001]]))
    found = simple.cut_cross_entropy(logits, jnp.array([0, 0]), 0.01)
    assert found == pytest.approx((math.log(2) - 0.01) / 2, rel=1e-5)
    slope = jax.grad(lambda x: simple.cut_cross_entropy(x, jnp.array([0, 0]), 0.01))(logits)
    np.testing.assert_allclose(slope, [[-0.25, 0.25], [0.0, 0.0]], atol=1e-6)


def test_without_a_cut_off_it_is_the_cross_entropy_of_pixels_and_rewards():
    rng = np.random.default_rng(0)
    logits, label = rng.normal(size=(2, 3, 4, 5)), rng.integers(0, 5, (2, 3, 4))
    chosen = jax.nn.log_softmax(logits)[*np.indices(label.shape), label]
    assert simple.cut_cross_entropy(logits, label, 0.0) == pytest.approx(float(-chosen.mean()))


@pytest.mark.parametrize(("step", "linear", "exponential"), [(0, 0.01, 0.01), (50, 0.505, 0.1)])
def test_ramps_rise_from_a_hundredth_to_one(step, linear, exponential):
    assert simple.linear_ramp(step, 100) == pytest.approx(linear, rel=1e-5)
    assert simple.exponential_ramp(step, 100) == pytest.approx(exponential, rel=1e-5)
    for ramp in (simple.linear_ramp, simple.exponential_ramp):
        assert ramp(100, 100) == ramp(1000, 100) == 1.0


def test_scheduled_sampling_is_the_product_of_a_fast_and_a_slow_ramp():
    assert simple.scheduled_sampling(0, 40_000) == pytest.approx(1e-4, rel=1e-4)
    assert simple.scheduled_sampling(10_000, 40_000) == pytest.approx(0.2575, rel=1e-4)
    assert simple.scheduled_sampling(40_000, 40_000) == 1.0
