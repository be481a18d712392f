"""The encoder of vectors equals two layers written with NumPy."""

import jax
import numpy as np

from rcrl_jax.agents.rainbow.encoders.dense import DenseEncoder

VECTORS = np.random.default_rng(0).normal(size=(6, 2, 5)).astype(np.float32)


def test_psi_equals_two_layers_with_relu():
    params = DenseEncoder().init(jax.random.key(0), VECTORS)
    own = {name: np.asarray(x, np.float64) for name, x in params["params"].items()}
    assert own["dense1_kernel"].shape == (10, 256) and own["dense2_kernel"].shape == (256, 256)
    psi = VECTORS.reshape(6, 10).astype(np.float64)
    for number in (1, 2):
        psi = np.maximum(psi @ own[f"dense{number}_kernel"] + own[f"dense{number}_bias"], 0)
    assert 0.2 < np.mean(psi > 0) < 0.8
    np.testing.assert_allclose(DenseEncoder().apply(params, VECTORS), psi, rtol=1e-4, atol=1e-5)
    each = DenseEncoder().apply(params, (VECTORS[:1], VECTORS[1:]), method="encode_each")
    np.testing.assert_allclose(np.concatenate(each), psi, rtol=1e-4, atol=1e-5)


def test_initial_values_are_uniform_within_one_over_the_root_of_the_inputs():
    own = DenseEncoder().init(jax.random.key(0), VECTORS)["params"]
    for name, inputs in (("dense1", 10), ("dense2", 256)):
        for part in ("kernel", "bias"):
            largest = np.abs(own[f"{name}_{part}"]).max() * np.sqrt(inputs)
            assert 0.95 < largest <= 1
