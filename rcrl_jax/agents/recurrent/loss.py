"""Free nats, lambda-returns, and Dreamer's policy.

rlax's `lambda_returns` takes one sequence; here time is the first axis of a batch.
"""

import math

import chex
import jax
import jax.numpy as jnp
import rlax

from rcrl_jax.networks.policy import Policy, sample_action


def beyond_free_nats(divergence: jax.Array, free_nats: float, *, in_each_step: bool) -> jax.Array:
    """The cost of divergences `[L, B] -> []` [nats].

    Args:
      divergence: of each step.
      free_nats: the part without a cost, in each step or of the mean.
      in_each_step: whether the cost is the mean of max(0, d - free) over steps, as in PlaNet's and
        Dreamer's original code; otherwise it is max(mean, free), as in danijar/dreamer.
    """
    if in_each_step:
        return jnp.mean(jnp.maximum(divergence - free_nats, 0.0))
    return jnp.maximum(jnp.mean(divergence), free_nats)


def lambda_returns(
    reward: jax.Array, discount: float, next_value: jax.Array, lambda_: float
) -> jax.Array:
    """R_t = r_t + discount [(1 - lambda) v_{t+1} + lambda R_{t+1}], from the last value backwards.

    Dreamer's equation 6 (Hafner et al., 2020), as its code computes it.

    Args:
      reward: `[T, N]`.
      discount: of a step.
      next_value: `[T, N]`, the value of the state after each reward.
      lambda_: weight of R_{t+1}; v_{t+1} has the weight 1 - lambda.

    Returns:
      `[T, N]`.
    """
    chex.assert_equal_shape([reward, next_value])
    discounts = jnp.full(len(reward), discount)
    returns = jax.vmap(rlax.lambda_returns, in_axes=(1, None, 1, None), out_axes=1)
    return returns(reward, discounts, next_value, lambda_)


def discount_weights(length: int, discount: float) -> jax.Array:
    """`[T]`: 1, discount, discount^2, ..., the weights of imagined states."""
    return discount ** jnp.arange(length, dtype=jnp.float32)


def dreamer_policy(raw: jax.Array, mean_scale: float, initial_std: float) -> Policy:
    """Dreamer's policy before the tanh of its samples, from the raw outputs of its network.

    mean = scale tanh(m / scale); std = softplus(v + softplus^-1(initial std)) + 1e-4.

    Args:
      raw: `[..., 2 A]`, means then standard deviations.
      mean_scale: bound of the means.
      initial_std: standard deviation where the raw output is 0.
    """
    mean, std = jnp.split(raw, 2, axis=-1)
    # The inverse of softplus; beyond 30 it is the identity, and exp may overflow.
    offset = math.log(math.expm1(initial_std)) if initial_std < 30 else initial_std
    std = jax.nn.softplus(std + offset) + 1e-4
    return Policy(mean_scale * jnp.tanh(mean / mean_scale), jnp.log(std))


def most_likely_action(policy: Policy, noise: jax.Array, action_mask: jax.Array) -> jax.Array:
    """For each row, the sampled action of highest density after the tanh.

    Args:
      policy: `[N, A]`.
      noise: standard normal, `[K, N, A]`.
      action_mask: `[A] bool`; other components are zero and enter no density.

    Returns:
      `[N, A]`.
    """
    chex.assert_shape(noise, (None, *policy.mean.shape))
    action, log_density = jax.vmap(sample_action, (None, 0, None))(policy, noise, action_mask)
    best = jnp.argmax(log_density, axis=0)  # [N]
    return jnp.take_along_axis(action, best[None, :, None], axis=0)[0]
