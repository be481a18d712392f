"""The losses of soft actor-critic (Haarnoja et al., 2018b), with a learned temperature.

Actions have A components, the largest number of a suite. `action_mask`, `[A] bool`, marks the
components that a run has. The others are zero and do not enter any density.

The critics use rlax's `td_learning`. The rest of rlax does not fit: `squashed_gaussian` inverts
tanh, which gives NaN where tanh rounds to 1, and its density includes all components; `dpg_loss`
and the policy-gradient losses have no entropy of a Gaussian; no loss learns a temperature.
"""

import math
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import rlax


class Policy(NamedTuple):
    """A diagonal Gaussian whose samples are squashed by tanh."""

    mean: jax.Array  # [..., A]
    log_std: jax.Array  # [..., A]


def mean_action(policy: Policy, action_mask: jax.Array) -> jax.Array:
    """The squashed mean, `[..., A]` in [-1, 1], zero where `action_mask [A] bool` is false."""
    chex.assert_equal_shape(policy)
    return jnp.where(_valid(action_mask, policy), jnp.tanh(policy.mean), 0.0)


def sample_action(
    policy: Policy, noise: jax.Array, action_mask: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """An action by reparametrisation, and its log-density.

    With u = mean + std * noise and a = tanh(u),

        log pi(a) = sum over valid components of  log N(u; mean, std) - log(1 - tanh(u)^2),

    where log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2 u)), which stays finite where tanh(u)
    rounds to 1. (Haarnoja et al., 2018b, appendix C.)

    Args:
      policy: means and log standard deviations `[..., A]`.
      noise: standard normal, `[..., A]`.
      action_mask: `[A] bool`.

    Returns:
      Action `[..., A]` and log-density `[...]`.
    """
    chex.assert_equal_shape([policy.mean, policy.log_std, noise])
    valid = _valid(action_mask, policy)
    u = policy.mean + jnp.exp(policy.log_std) * noise
    log_normal = -0.5 * (jnp.square(noise) + math.log(2.0 * math.pi)) - policy.log_std
    log_slope = 2.0 * (math.log(2.0) - u - jax.nn.softplus(-2.0 * u))
    log_density = jnp.sum(jnp.where(valid, log_normal - log_slope, 0.0), axis=-1)
    return jnp.where(valid, jnp.tanh(u), 0.0), log_density


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


def _valid(action_mask: jax.Array, policy: Policy) -> jax.Array:
    """The mask, `[A]`, for all items of a policy, `[..., A]`."""
    chex.assert_shape(action_mask, policy.mean.shape[-1:])
    return jnp.broadcast_to(action_mask, policy.mean.shape)


def _assert_twin(q: jax.Array, log_density: jax.Array) -> None:
    chex.assert_shape(q, (*log_density.shape, 2))
