"""CURL's task on DMControl: initial values, and from what queries and keys are computed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from rcrl_jax import types
from rcrl_jax.auxiliary import instance_contrast
from rcrl_jax.auxiliary.task import UpdateView

KEY = jax.random.key(0)


def test_the_bilinear_matrix_starts_uniform_between_0_and_1():
    task = instance_contrast.make_instance_contrast(None, None, psi_size=50, weight=1.0)
    bilinear = np.asarray(task.init(KEY)["bilinear"])
    assert bilinear.shape == (50, 50)
    assert stats.kstest(bilinear.ravel(), "uniform").pvalue > 1e-3


def test_keys_are_the_target_encoder_s_psi_of_another_crop():
    """Encoder and crop are simple replacements; queries are the psi of the update."""
    rng = np.random.default_rng(0)
    psi, sampled = rng.normal(size=(2, 4, 3)).astype(np.float32)
    scale = jnp.float32(3.0)  # the target's parameters

    def crop(key, observation):
        return observation + jax.random.normal(key, observation.shape)

    task = instance_contrast.make_instance_contrast(
        lambda target_params, observation: target_params * observation, crop, 3, 1.0
    )
    params = task.init(KEY)
    batch = types.Batch(types.TransitionBatch(sampled, *[None] * 5), None)

    def loss(psi, scale):
        view = UpdateView(None, scale, psi, None, batch)
        return task.loss(params, view, None, KEY)[0]

    keys = 3.0 * np.asarray(crop(KEY, sampled))
    logits = psi @ np.asarray(params["bilinear"]) @ keys.T
    expected = -np.mean(np.diag(logits) - np.log(np.sum(np.exp(logits), axis=1)))
    assert float(loss(psi, scale)) == pytest.approx(expected, rel=1e-4)
    to_queries, to_target = jax.grad(loss, argnums=(0, 1))(psi, scale)
    assert np.any(to_queries != 0) and to_target == 0.0
