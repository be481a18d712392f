"""The encoder's matrix products equal convolutions, on the CPU and on accelerators."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rcrl_jax import observations
from rcrl_jax.agents.rainbow.encoders.data_efficient import DataEfficientEncoder
from tests.ops import lax

FRAME_STACK = 4
ENCODER = DataEfficientEncoder()


@pytest.fixture(scope="module")
def stacks() -> np.ndarray:
    """`[3, C, 84, 84] uint8`."""
    return np.random.default_rng(0).integers(0, 256, (3, FRAME_STACK, 84, 84), np.uint8)


@pytest.fixture(scope="module")
def params():
    return ENCODER.init(jax.random.key(0), jnp.zeros((1, 225, FRAME_STACK, 25), jnp.uint8))


def convolutional(params, stacks):
    """The published encoder on raw pixels."""
    p = params["params"]
    images = jnp.moveaxis(stacks, 1, -1).astype(jnp.float32) / 255.0
    cells = jax.nn.relu(lax.convolve(images, p["conv1_kernel"], p["conv1_bias"], 5))
    features = jax.nn.relu(lax.convolve(cells, p["conv2_kernel"], p["conv2_bias"], 5))
    return features.reshape(len(stacks), -1)


def ours(params, stacks):
    return ENCODER.apply(params, observations.PATCHES.stack(stacks))


def test_equals_the_convolutions(params, stacks):
    psi = ours(params, stacks)
    assert psi.shape == (3, 576)
    assert psi.dtype == jnp.float32
    assert np.mean(np.asarray(psi) > 0) > 0.2
    np.testing.assert_allclose(psi, convolutional(params, stacks), rtol=1e-4, atol=1e-5)


def test_gradients_equal_those_of_the_convolutions(params, stacks):
    direction = np.random.default_rng(1).normal(size=(3, 576)).astype(np.float32)
    one, other = (
        jax.jit(jax.grad(lambda p, f=f: jnp.sum(f(p, stacks) * direction)))(params)
        for f in (ours, convolutional)
    )
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3 * float(jnp.abs(b).max()))


def test_initial_values_are_uniform_within_one_over_the_root_of_the_fan_in(params):
    p = params["params"]
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
