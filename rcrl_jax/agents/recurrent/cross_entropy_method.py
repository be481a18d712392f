"""The cross-entropy method, which plans PlaNet's actions (Hafner et al., 2019, algorithm 2)."""

from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp


def plan(
    objective: Callable[[jax.Array, chex.PRNGKey], jax.Array],
    key: chex.PRNGKey,
    action_mask: jax.Array,
    *,
    horizon: int,
    iterations: int,
    candidates: int,
    best: int,
) -> jax.Array:
    """A sequence of actions with a high objective, for one environment.

    Starts from a standard normal, draws candidates, clips them to [-1, 1] and fits a normal to the
    best of them, again and again.

    Args:
      objective: `(actions [K, H, A], key) -> [K]`, to be maximised; the key draws its noise.
      key: of all draws.
      action_mask: `[A] bool`; other components stay zero.
      horizon: H.
      iterations: number of fits.
      candidates: K, sequences drawn in each iteration.
      best: how many of them are fitted.

    Returns:
      `[H, A]`, the mean of the last fit.
    """
    mask = jnp.broadcast_to(action_mask, (horizon, len(action_mask)))

    def iterate(fitted, key):
        mean, std = fitted
        noise_key, objective_key = jax.random.split(key)
        noise = jax.random.normal(noise_key, (candidates, *mean.shape))
        actions = jnp.clip(mean[None] + std[None] * noise, -1.0, 1.0)
        actions = jnp.where(mask[None], actions, 0.0)
        _, top = jax.lax.top_k(objective(actions, objective_key), best)
        chosen = actions[top]
        return (jnp.mean(chosen, axis=0), jnp.sqrt(jnp.var(chosen, axis=0) + 1e-6)), None

    start = jnp.zeros(mask.shape), jnp.ones(mask.shape)
    (mean, _), _ = jax.lax.scan(iterate, start, jax.random.split(key, iterations))
    return mean
