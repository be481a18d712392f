"""Losses of soft actor-critic by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rcrl_jax.agents import control as sac

# By hand: soft value min(3, 2) - 0.5 (-4) = 4; targets 1 + 0.9 * 4 = 4.6 and, terminal, 1.
R_T, DISCOUNT_T = jnp.array([1.0, 1.0]), jnp.array([0.9, 0.0])
Q_T, LOG_DENSITY_T, ALPHA = jnp.array([[3.0, 2.0], [3.0, 2.0]]), jnp.array([-4.0, -4.0]), 0.5
V_T, Q_TM1 = jnp.array([4.0, 4.0]), jnp.array([[4.0, 5.0], [1.5, 0.0]])


def test_soft_value_by_hand():
    np.testing.assert_array_equal(sac.soft_value(Q_T, LOG_DENSITY_T, ALPHA), V_T)


def test_critic_loss_by_hand():
    loss = sac.critic_loss(Q_TM1, R_T, DISCOUNT_T, V_T)
    np.testing.assert_allclose(loss, [0.6**2 + 0.4**2, 0.5**2 + 1.0], rtol=1e-5)


def test_only_the_values_of_the_action_taken_get_a_gradient():
    total = jax.grad(lambda *a: sac.critic_loss(*a).sum(), argnums=(0, 1, 2, 3))
    by_values, *others = total(Q_TM1, R_T, DISCOUNT_T, V_T)
    np.testing.assert_allclose(by_values, [[-1.2, 0.8], [1.0, -2.0]], rtol=1e-5)
    assert not any(gradient.any() for gradient in others)


def test_actor_loss_by_hand_has_a_gradient_through_the_smaller_critic_only():
    loss = sac.actor_loss(Q_T, LOG_DENSITY_T, ALPHA)
    np.testing.assert_allclose(loss, [-2.0 - 2.0] * 2)
    gradient = jax.grad(lambda q: sac.actor_loss(q, LOG_DENSITY_T, ALPHA).sum())(Q_T)
    np.testing.assert_array_equal(gradient, [[0.0, -1.0], [0.0, -1.0]])
    assert jax.grad(lambda a: sac.actor_loss(Q_T, LOG_DENSITY_T, a).sum())(ALPHA) == 0.0


@pytest.mark.parametrize("target_entropy, slope", [(-2.0, 1.0), (6.0, -1.0)])
def test_temperature_falls_while_the_entropy_is_above_its_target(target_entropy, slope):
    log_alpha = jnp.log(ALPHA)
    loss = sac.temperature_loss(log_alpha, LOG_DENSITY_T, target_entropy)
    np.testing.assert_allclose(loss, ALPHA * (4.0 - target_entropy), rtol=1e-6)
    gradient = jax.grad(lambda x: sac.temperature_loss(x, LOG_DENSITY_T, target_entropy).sum())
    assert np.sign(gradient(log_alpha)) == slope
    by_density = jax.grad(lambda d: sac.temperature_loss(log_alpha, d, target_entropy).sum())(
        LOG_DENSITY_T
    )
    assert not by_density.any()
