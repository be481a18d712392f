"""Losses and similarities of contrastive tasks by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rcrl_jax.losses import contrastive


def test_squared_error_by_hand():
    loss = contrastive.squared_error(jnp.array([0.0, 0.25, 1.0]), 1.0)
    assert loss.tolist() == [1.0, 0.5625, 0.0]
    assert contrastive.squared_error(jnp.array([0.25]), 0.0).tolist() == [0.0625]


def test_gradient_of_the_squared_error_is_twice_the_difference():
    assert float(jax.grad(contrastive.squared_error)(0.25, 1.0)) == -1.5


def test_cosine_by_hand():
    first = jnp.array([[3.0, 4.0], [1.0, 0.0], [2.0, 2.0], [1.0, 1.0]])
    second = jnp.array([[4.0, 3.0], [0.0, 5.0], [9.0, 9.0], [-2.0, -2.0]])
    similarity = contrastive.cosine_similarity(first, second)
    np.testing.assert_allclose(similarity, [24 / 25, 0.0, 1.0, -1.0], atol=1e-6)


def test_cosine_of_a_zero_vector_is_zero():
    similarity = contrastive.cosine_similarity(jnp.zeros((1, 3)), jnp.ones((1, 3)))
    assert similarity.tolist() == [0.0]


def test_shapes_are_checked():
    with pytest.raises(AssertionError):
        contrastive.cosine_similarity(jnp.ones((2, 3)), jnp.ones((1, 3)))
    for loss in (contrastive.squared_error, contrastive.binary_cross_entropy):
        with pytest.raises(AssertionError):
            loss(jnp.ones((2, 3)), jnp.ones(3))


def test_binary_cross_entropy_by_hand():
    logit, label = np.array([-3.0, 0.0, 2.0, 2.0]), np.array([0.0, 1.0, 1.0, 0.0])
    w = 1 / (1 + np.exp(-logit))
    expected = -np.log(np.where(label == 1, w, 1 - w))
    np.testing.assert_allclose(contrastive.binary_cross_entropy(logit, label), expected, rtol=1e-5)
    assert float(contrastive.binary_cross_entropy(jnp.float32(-200.0), 1.0)) == 200.0


def test_info_nce_equals_a_slow_loop():
    logits = np.random.default_rng(0).normal(size=(5, 5)) * 3
    expected = 0.0
    for i in range(5):
        chances = [np.exp(logits[i, j]) for j in range(5)]
        expected -= np.log(chances[i] / sum(chances)) / 5
    assert float(contrastive.info_nce(logits)) == pytest.approx(expected, rel=1e-5)
    # A constant added to all logits of a row does not change the loss.
    shifted = logits - logits.max(axis=1, keepdims=True)
    assert float(contrastive.info_nce(shifted)) == pytest.approx(expected, rel=1e-5)
    assert float(contrastive.info_nce(jnp.eye(4) * 1e4)) == 0.0
    assert float(contrastive.info_nce(jnp.zeros((4, 4)))) == pytest.approx(np.log(4))


def test_info_nce_requires_one_key_per_query():
    with pytest.raises(AssertionError):
        contrastive.info_nce(jnp.zeros((4, 3)))
