"""The forms of small networks compute what plain ones do, to rounding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rcrl_jax.agents.rainbow.network import RainbowNetwork
from rcrl_jax.config.choices import ENCODERS
from rcrl_jax.ops import products

HEADS = ("state", "state_action", "state_action_both", "state_action_single")


def assert_close(one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def gradients_of(function, *arguments):
    """The result, and the gradients of its sum under random weights."""
    result = function(*arguments)
    weights = np.random.default_rng(9).normal(size=result.shape).astype(np.float32)
    places = tuple(range(len(arguments)))
    slope = jax.grad(lambda *x: jnp.sum(function(*x) * weights), argnums=places)
    return result, jax.jit(slope)(*arguments)


def normal(*shapes):
    rng = np.random.default_rng(0)
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


# The second moves the gradient of the outputs, the others the inputs.
@pytest.mark.parametrize("shape", [(6, 5, 7), (40, 30, 2), (2, 3, 3, 5, 4)])
def test_a_product_and_its_gradients_are_those_of_a_plain_one(shape):
    *rows, fan_in, fan_out = shape
    arguments = normal((*rows, fan_in), (fan_in, fan_out))
    assert_close(gradients_of(products.multiply, *arguments), gradients_of(jnp.matmul, *arguments))


def test_pairs_of_all_actions_stand_action_by_action():
    psi, vectors = normal((4, 5), (3, 5))

    def plain(psi, vectors):
        return jnp.concatenate([psi * vector[None] for vector in vectors])

    assert_close(gradients_of(products.spread, psi, vectors), gradients_of(plain, psi, vectors))


@pytest.mark.parametrize("head", HEADS)
def test_a_small_network_is_the_plain_one(head, monkeypatch):
    """With noise, and an action that is padding."""
    psi, valid = np.abs(normal((5, 256))[0]), np.int32(2)

    def apply():
        network = RainbowNetwork(3, 7, 8, 0.5, head, "minatar", "normal")
        observation = np.zeros((1, 1, 50), np.uint8)
        params = network.init(jax.random.key(1), observation, valid)
        noise = network.draw_noise(jax.random.key(2))

        def logits(psi, params):
            return network.apply(params, psi, valid, noise, method="logits_of")[:, :2]

        return gradients_of(logits, psi, params)

    small = apply()
    monkeypatch.setitem(ENCODERS, "minatar", ENCODERS["minatar"]._replace(is_small=False))
    assert_close(small, apply())
