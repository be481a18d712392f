"""The losses of soft actor-critic (Haarnoja et al., 2018b), of SAC and SLAC.

The temperature is learned. The critics use rlax's `td_learning`. The rest of rlax does not fit:
`dpg_loss` and the policy-gradient losses have no entropy of a Gaussian; no loss learns a
temperature.
"""

import chex
import jax
import jax.numpy as jnp
import rlax


def soft_value(q: jax.Array, log_density: jax.Array, temperature: jax.Array | float) -> jax.Array:
    """The soft value of a state, `min q - alpha log pi`, from one action drawn there.

    Args:
      q: values of the action by both critics, `[..., 2]`.
      log_density: log-density of the action, `[...]`.
      temperature: alpha, `[]`.

    Returns:
      `[...]`.
    """
    _assert_twin(q, log_density)
    chex.assert_rank(temperature, 0)
    return jnp.min(q, axis=-1) - temperature * log_density


def critic_loss(
    q_tm1: jax.Array, r_t: jax.Array, discount_t: jax.Array, v_t: jax.Array
) -> jax.Array:
    """Sum of both critics' squared TD errors, for a batch of transitions.

    Args:
      q_tm1: values of the action taken by both critics, `[B, 2]`.
      r_t: rewards `[B]`.
      discount_t: factor of the next state's value, `[B]`; 0 after termination.
      v_t: soft value of the next state by the target critics, `[B]`.

    Returns:
      One loss per transition, `[B]`. Only `q_tm1` gets a gradient.
    """
    chex.assert_shape(q_tm1, (None, 2))
    chex.assert_shape([r_t, discount_t, v_t], q_tm1.shape[:1])
    of_both_critics = jax.vmap(rlax.td_learning, in_axes=(0, None, None, None))
    td_errors = jax.vmap(of_both_critics)(q_tm1, r_t, discount_t, v_t)
    return jnp.sum(jnp.square(td_errors), axis=-1)


def actor_loss(q: jax.Array, log_density: jax.Array, temperature: jax.Array | float) -> jax.Array:
    """`alpha log pi - min q` of actions that the policy draws now.

    The gradient reaches the policy through the action and its log-density; the caller holds the
    critics' parameters fixed.

    Args:
      q: values of the actions by both critics, `[..., 2]`.
      log_density: log-densities of the actions, `[...]`.
      temperature: alpha, `[]`; it gets no gradient.

    Returns:
      `[...]`.
    """
    _assert_twin(q, log_density)
    chex.assert_rank(temperature, 0)
    return jax.lax.stop_gradient(temperature) * log_density - jnp.min(q, axis=-1)


def temperature_loss(
    log_temperature: jax.Array, log_density: jax.Array, target_entropy: jax.Array | float
) -> jax.Array:
    """`alpha (-log pi - target entropy)`: alpha falls while the entropy is above its target.

    Args:
      log_temperature: log alpha, `[]`.
      log_density: log-densities of actions that the policy draws now, `[...]`; no gradient.
      target_entropy: `[]`.

    Returns:
      `[...]`.
    """
    chex.assert_rank([log_temperature, target_entropy], 0)
    excess = jax.lax.stop_gradient(-log_density - target_entropy)
    return jnp.exp(log_temperature) * excess


def _assert_twin(q: jax.Array, log_density: jax.Array) -> None:
    chex.assert_shape(q, (*log_density.shape, 2))
