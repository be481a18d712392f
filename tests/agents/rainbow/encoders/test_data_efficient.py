"""The encoder's initial values; `test_branches.py` compares what the encoder computes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rcrl_jax.agents.rainbow.encoders.data_efficient import DataEfficientEncoder


def test_initial_values_are_uniform_within_one_over_the_root_of_the_fan_in():
    patches = jnp.zeros((1, 225, 4, 25), jnp.uint8)
    p = DataEfficientEncoder().init(jax.random.key(0), patches)["params"]
    assert {n: a.shape for n, a in p.items()} == {
        "conv1_kernel": (5, 5, 4, 32),
        "conv1_bias": (32,),
        "conv2_kernel": (5, 5, 32, 64),
        "conv2_bias": (64,),
    }
    for name, fan_in in (("conv1", 100), ("conv2", 800)):
        for part in ("kernel", "bias"):
            values = np.asarray(p[f"{name}_{part}"]) * np.sqrt(fan_in)
            assert np.abs(values).max() <= 1.0
            assert np.abs(values).max() > 0.85
            assert np.std(values) == pytest.approx(1 / np.sqrt(3), rel=0.25)
