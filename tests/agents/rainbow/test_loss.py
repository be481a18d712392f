"""The distributional loss by hand; `test_branches.py` compares the loss with slow loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rcrl_jax.agents.rainbow import loss as c51

ATOMS = c51.support(2.0, 5)
BATCH, ACTIONS = 16, 3
LOSS = jax.jit(c51.double_q_cross_entropy)  # operation by operation, compilation takes seconds


@pytest.fixture(scope="module")
def arguments():
    rng = np.random.default_rng(0)
    logits, target, selector = rng.normal(0, 2, (3, BATCH, ACTIONS, 5)).astype(np.float32)
    action = rng.integers(0, ACTIONS, BATCH).astype(np.int32)
    reward = rng.uniform(-3, 3, BATCH).astype(np.float32)
    discount = np.where(rng.random(BATCH) < 0.3, 0, 0.8).astype(np.float32)
    return logits, action, reward, discount, target, selector, ATOMS


def test_support_is_symmetric_and_evenly_spaced():
    assert ATOMS.tolist() == [-2.0, -1.0, 0.0, 1.0, 2.0]
    assert float(c51.support(10.0, 51)[25]) == pytest.approx(0.0, abs=1e-6)


def test_expected_return_by_hand():
    logits = jnp.log(jnp.array([[0.1, 0.2, 0.3, 0.2, 0.2], [1, 0, 0, 0, 1]]) + 1e-20)
    # -0.2 - 0.2 + 0 + 0.2 + 0.4
    np.testing.assert_allclose(c51.expected_return(logits, ATOMS), [0.2, 0.0], atol=1e-6)


def by_hand(reward, discount, selector=((0.0, 0.0, 9.0), (9.0, 0.0, 0.0))):
    """Two actions, atoms -1, 0, 1; target probabilities of action 0: 1/4, 1/2, 1/4."""
    return float(
        LOSS(
            jnp.log(jnp.array([[[0.6, 0.3, 0.1], [0.2, 0.3, 0.5]]])),
            jnp.array([1]),
            jnp.array([reward]),
            jnp.array([discount]),
            jnp.log(jnp.array([[[0.25, 0.5, 0.25], [0.98, 0.01, 0.01]]])),
            jnp.array([selector]),
            c51.support(1.0, 3),
            num_valid_actions=2,
        )[0]
    )


def test_cross_entropy_by_hand():
    # Atoms -1, 0, 1 move to 0, 1/2, 1. Atoms 0 and 1 both get 1/4 and half of the middle 1/2.
    assert by_hand(0.5, 0.5) == pytest.approx(-0.5 * np.log(0.3) - 0.5 * np.log(0.5))


def test_the_online_network_selects_and_the_target_network_evaluates():
    # The target network prefers action 0; selecting action 1 online must change the target.
    other = by_hand(0.0, 1.0, ((9.0, 0.0, 0.0), (0.0, 0.0, 9.0)))
    assert other == pytest.approx(-0.98 * np.log(0.2) - 0.01 * np.log(0.3) - 0.01 * np.log(0.5))
    assert by_hand(0.0, 1.0) == pytest.approx(
        -0.25 * np.log(0.2) - 0.5 * np.log(0.3) - 0.25 * np.log(0.5)
    )


def test_only_the_logits_of_the_action_taken_get_a_gradient(arguments):
    logits, action, *_ = arguments
    gradients = jax.jit(jax.grad(lambda *a: jnp.sum(LOSS(*a, ACTIONS)), argnums=(0, 4, 5)))(
        *arguments
    )
    online, target, selector = map(np.asarray, gradients)
    assert not target.any()
    assert not selector.any()
    taken = np.arange(ACTIONS) == action[:, None]
    assert not online[~taken].any()
    assert np.all(np.abs(online[taken]).max(axis=-1) > 1e-4)
