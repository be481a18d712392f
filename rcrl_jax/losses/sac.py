"""The losses of soft actor-critic (Haarnoja et al., 2018b), with a learned temperature.

Actions are vectors with room for the largest action of a suite; `own [A] bool` marks the
components that a run has. The others are zero and take no part in any density.
"""

import math
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp


class Policy(NamedTuple):
    """A Gaussian whose samples are squashed by tanh."""

    mean: jax.Array  # [..., A]
    log_std: jax.Array  # [..., A]


def mean_action(policy: Policy, own: jax.Array) -> jax.Array:
    """The squashed mean, `[..., A]` in [-1, 1]."""
    return jnp.where(own, jnp.tanh(policy.mean), 0.0)


def sample_action(
    policy: Policy, noise: jax.Array, own: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """An action by reparametrisation, and its log-density.

    With u = mean + std * noise and a = tanh(u),

        log pi(a) = sum over own components of  log N(u; mean, std) - log(1 - tanh(u)^2),

    where log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2 u)), which stays finite where tanh(u)
    rounds to 1. (Haarnoja et al., 2018b, appendix C.)

    Args:
      policy: means and log standard deviations `[..., A]`.
      noise: standard normal, `[..., A]`.
      own: `[A] bool`.

    Returns:
      Action `[..., A]` and log-density `[...]`.
    """
    chex.assert_equal_shape([policy.mean, policy.log_std, noise])
    u = policy.mean + jnp.exp(policy.log_std) * noise
    log_normal = -0.5 * (jnp.square(noise) + math.log(2.0 * math.pi)) - policy.log_std
    log_slope = 2.0 * (math.log(2.0) - u - jax.nn.softplus(-2.0 * u))
    log_density = jnp.sum(jnp.where(own, log_normal - log_slope, 0.0), axis=-1)
    return jnp.where(own, jnp.tanh(u), 0.0), log_density


def soft_target(
    r_t: jax.Array,
    discount_t: jax.Array,
    q_t: jax.Array,
    log_density_t: jax.Array,
    temperature: jax.Array | float,
) -> jax.Array:
    """The critics' regression target: `r + discount (min q - alpha log pi)`.

    Args:
      r_t: rewards `[...]`.
      discount_t: what the next state's value is multiplied with, `[...]`; 0 after termination.
      q_t: both target critics' values of an action drawn at the next state, `[..., 2]`.
      log_density_t: that action's log-density, `[...]`.
      temperature: alpha.

    Returns:
      `[...]`, without gradient.
    """
    value_t = jnp.min(q_t, axis=-1) - temperature * log_density_t
    return jax.lax.stop_gradient(r_t + discount_t * value_t)


def critic_loss(q_tm1: jax.Array, target: jax.Array) -> jax.Array:
    """Both critics' squared errors, summed: `[..., 2], [...] -> [...]`."""
    return jnp.sum(jnp.square(q_tm1 - target[..., None]), axis=-1)


def actor_loss(
    q: jax.Array, log_density: jax.Array, temperature: jax.Array | float
) -> jax.Array:
    """`alpha log pi - min q` of actions drawn now: `[..., 2], [...] -> [...]`.

    Its gradient reaches the policy through the action; the caller holds the critics fixed.
    """
    return jax.lax.stop_gradient(temperature) * log_density - jnp.min(q, axis=-1)


def temperature_loss(
    log_temperature: jax.Array, log_density: jax.Array, target_entropy: jax.Array | float
) -> jax.Array:
    """`alpha (-log pi - target entropy)`: alpha falls while the entropy is above its target."""
    excess = jax.lax.stop_gradient(-log_density - target_entropy)
    return jnp.exp(log_temperature) * excess
