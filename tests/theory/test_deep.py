"""Z-learning with a network."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rcrl_jax.theory import deep, pairs


def test_features_are_the_one_hot_base_and_the_bits():
    features = deep.factored_features(4, 1)
    assert features.tolist() == [[1, 0, -1], [1, 0, 1], [0, 1, -1], [0, 1, 1]]


def test_class_similarity_by_hand():
    embedding = np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
    assert deep.class_similarity(embedding, np.array([0, 0, 1])) == pytest.approx((1.0, 0.0))
    with pytest.raises(ValueError, match="class"):
        deep.class_similarity(embedding, np.arange(3))


def test_network_learns_the_bayes_predictor():
    probability = np.repeat(np.eye(2), 2, axis=0)  # state 0 always returns 0, state 1 always 1
    weights = np.full(4, 0.25)
    x1, x2, y = pairs.sample_pairs(jax.random.key(0), weights, probability, 2000)
    fit = deep.fit(
        jax.random.key(1), x1[None], x2[None], y[None].astype(jnp.float32), np.eye(2), 2, 300
    )
    target = pairs.independent_pairs(weights, probability).label
    assert fit.embedding.shape == (1, 4, 16)
    assert np.abs(fit.predictor[0] - target).max() < 0.1
