"""Proximal policy optimisation (Schulman et al., 2017), as SimPLe's code has it.

The code is github.com/tensorflow/tensor2tensor, `rl/ppo.py`. Time is the first axis; a rollout of T
steps teaches T - 1 of them, since the value of the last state ends every estimate.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import rlax


class Rollout(NamedTuple):
    """What a policy has done in N environments for T steps."""

    action: jax.Array  # [T, N] int32
    reward: jax.Array  # [T, N]
    done: jax.Array  # [T, N] bool, the step ended its episode
    log_probability: jax.Array  # [T, N], of the action
    value: jax.Array  # [T, N], of the state before it


class Targets(NamedTuple):
    """What a rollout's steps but the last teach."""

    value: jax.Array  # [T - 1, N]
    advantage: jax.Array  # [T - 1, N], of mean 0 and variance 1


def generalised_advantages(rollout: Rollout, discount: float, lambda_: float) -> jax.Array:
    """Generalised advantage estimates (Schulman et al., 2016): `[T - 1, N]`.

    As in the code, step t counts as the last of an episode if step t + 1 is. So in the real game
    the step before the last loses the value of what follows, and the last one keeps that of the
    next episode. The simulated game never ends.
    """
    chex.assert_rank([rollout.reward, rollout.value, rollout.done], 2)
    discounts = discount * (1.0 - rollout.done[1:].astype(jnp.float32))
    estimate = jax.vmap(
        rlax.truncated_generalized_advantage_estimation, in_axes=(1, 1, None, 1), out_axes=1
    )
    return estimate(rollout.reward[:-1], discounts, lambda_, rollout.value)


def targets(rollout: Rollout, discount: float, lambda_: float) -> Targets:
    """What all steps of a rollout but the last teach; advantages are normalised over all."""
    advantage = generalised_advantages(rollout, discount, lambda_)
    value = advantage + rollout.value[:-1]
    return Targets(value, (advantage - advantage.mean()) / (advantage.std() + 1e-8))


def minibatches(key: chex.PRNGKey, steps: int, passes: int, size: int) -> jax.Array:
    """Steps of minibatches `[M, size] int32`: some passes, shuffled one by one, cut at the end.

    A minibatch may lie across two passes. M is the whole number of minibatches in all passes.

    Args:
      key: of the shuffles.
      steps: to shuffle, T - 1.
      passes: over them.
      size: of a minibatch [steps].
    """
    keys = jax.random.split(key, passes)
    shuffled = jax.vmap(lambda k: jax.random.permutation(k, steps))(keys).reshape(-1)
    number = steps * passes // size
    return shuffled[: number * size].reshape(number, size)


def loss(
    log_probabilities: jax.Array,
    value: jax.Array,
    rollout: Rollout,
    taught: Targets,
    clip: float,
    entropy_weight: float,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The loss of a minibatch `[]`, and its parts.

    Args:
      log_probabilities: `[..., A]`, of all actions; -inf for those that a run lacks.
      value: `[...]`.
      rollout: its steps, each field `[...]`.
      taught: likewise.
      clip: of the ratio of probabilities.
      entropy_weight: in the loss.
    """
    chex.assert_equal_shape([value, rollout.action, taught.value, taught.advantage])
    chosen = jnp.take_along_axis(log_probabilities, rollout.action[..., None], axis=-1)[..., 0]
    ratio = jnp.exp(chosen - rollout.log_probability)
    clipped = jnp.clip(ratio, 1.0 - clip, 1.0 + clip)
    surrogate = jnp.minimum(clipped * taught.advantage, ratio * taught.advantage)
    valid = jnp.isfinite(log_probabilities)
    finite = jnp.where(valid, log_probabilities, 0.0)
    entropy = -jnp.sum(jnp.where(valid, jnp.exp(finite) * finite, 0.0), axis=-1)
    parts = {
        "loss_policy": -jnp.mean(surrogate),
        "loss_value": jnp.mean(jnp.square(value - taught.value)),
        "entropy": jnp.mean(entropy),
    }
    total = parts["loss_policy"] + parts["loss_value"] - entropy_weight * parts["entropy"]
    return total, parts
