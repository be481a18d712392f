"""Gaussian policies squashed by tanh, for SAC, SLAC and Dreamer.

Actions have A components, as many as the largest action of the suite. `action_mask`, `[A] bool`,
marks the components that a run's task has. The others are zero and enter no density.

rlax's `squashed_gaussian` does not fit: it inverts tanh, which gives NaN where tanh rounds to 1,
and its density includes all components.
"""

import math
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp


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


def _valid(action_mask: jax.Array, policy: Policy) -> jax.Array:
    """The mask, `[A]`, for all items of a policy, `[..., A]`."""
    chex.assert_shape(action_mask, policy.mean.shape[-1:])
    return jnp.broadcast_to(action_mask, policy.mean.shape)
