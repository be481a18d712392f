"""The discriminator against a slow forward pass."""

import jax
import jax.numpy as jnp
import numpy as np

from rcrl_jax.networks.discriminator import Discriminator

RNG = np.random.default_rng(0)


def test_equals_a_slow_forward_pass():
    network = Discriminator(hidden=4)
    first, second = RNG.normal(size=(2, 6, 3)).astype(np.float32)
    params = network.init(jax.random.key(0), first, second)
    hidden, out = (params["params"][f"Dense_{i}"] for i in (0, 1))
    assert hidden["kernel"].shape == (6, 4)
    assert out["kernel"].shape == (4, 1)
    for i, w in enumerate(network.apply(params, first, second)):
        pair = np.concatenate([first[i], second[i]])
        h = np.maximum(pair @ hidden["kernel"] + hidden["bias"], 0.0)
        logit = h @ out["kernel"] + out["bias"]
        np.testing.assert_allclose(w, 1 / (1 + np.exp(-logit[0])), rtol=1e-5)


def test_outputs_are_probabilities_one_a_pair():
    network = Discriminator()
    first, second = 100 * RNG.normal(size=(2, 50, 8)).astype(np.float32)
    w = network.apply(network.init(jax.random.key(0), first, second), first, second)
    assert w.shape == (50,)
    assert jnp.all((w >= 0) & (w <= 1))
    assert float(w.max() - w.min()) > 0.5
