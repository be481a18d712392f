"""Losses of the discriminator and the cosine, by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rcrl_jax.return_contrast import losses


def test_squared_error_by_hand():
    loss = losses.squared_error(jnp.array([0.0, 0.25, 1.0]), 1.0)
    assert loss.tolist() == [1.0, 0.5625, 0.0]
    assert losses.squared_error(jnp.array([0.25]), 0.0).tolist() == [0.0625]


def test_gradient_of_the_squared_error_is_twice_the_difference():
    assert float(jax.grad(losses.squared_error)(0.25, 1.0)) == -1.5


def test_cosine_by_hand():
    first = jnp.array([[3.0, 4.0], [1.0, 0.0], [2.0, 2.0], [1.0, 1.0]])
    second = jnp.array([[4.0, 3.0], [0.0, 5.0], [9.0, 9.0], [-2.0, -2.0]])
    similarity = losses.cosine_similarity(first, second)
    np.testing.assert_allclose(similarity, [24 / 25, 0.0, 1.0, -1.0], atol=1e-6)


def test_cosine_of_a_zero_vector_is_zero():
    similarity = losses.cosine_similarity(jnp.zeros((1, 3)), jnp.ones((1, 3)))
    assert similarity.tolist() == [0.0]


def test_shapes_are_checked():
    with pytest.raises(AssertionError):
        losses.cosine_similarity(jnp.ones((2, 3)), jnp.ones((1, 3)))
    for loss in (losses.squared_error, losses.binary_cross_entropy):
        with pytest.raises(AssertionError):
            loss(jnp.ones((2, 3)), jnp.ones(3))


def test_binary_cross_entropy_by_hand():
    logit, label = np.array([-3.0, 0.0, 2.0, 2.0]), np.array([0.0, 1.0, 1.0, 0.0])
    w = 1 / (1 + np.exp(-logit))
    expected = -np.log(np.where(label == 1, w, 1 - w))
    np.testing.assert_allclose(losses.binary_cross_entropy(logit, label), expected, rtol=1e-5)
    assert float(losses.binary_cross_entropy(jnp.float32(-200.0), 1.0)) == 200.0
