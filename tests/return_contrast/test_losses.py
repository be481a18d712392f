"""Losses of the discriminator and the cosine, by hand."""

import jax.numpy as jnp
import numpy as np

from rcrl_jax.return_contrast import losses


def test_cosine_of_a_zero_vector_is_zero():
    similarity = losses.cosine_similarity(jnp.zeros((1, 3)), jnp.ones((1, 3)))
    assert similarity.tolist() == [0.0]


def test_binary_cross_entropy_by_hand():
    logit, label = np.array([-3.0, 0.0, 2.0, 2.0]), np.array([0.0, 1.0, 1.0, 0.0])
    w = 1 / (1 + np.exp(-logit))
    expected = -np.log(np.where(label == 1, w, 1 - w))
    np.testing.assert_allclose(losses.binary_cross_entropy(logit, label), expected, rtol=1e-5)
    assert float(losses.binary_cross_entropy(jnp.float32(-200.0), 1.0)) == 200.0
