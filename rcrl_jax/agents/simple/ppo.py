"""Proximal policy optimisation (Schulman et al., 2017), as in SimPLe's code.

The code is github.com/tensorflow/tensor2tensor, `rl/ppo.py`. Time is the first axis. The policy
learns from T - 1 of the T steps of a rollout: every estimate bootstraps from the last value.
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
    value: jax.Array  # [T, N], of the state before the action


class Targets(NamedTuple):
    """Targets for all steps of a rollout but the last."""

    value: jax.Array  # [T - 1, N]
    advantage: jax.Array  # [T - 1, N], of mean 0 and variance 1


def generalised_advantages(rollout: Rollout, discount: float, lambda_: float) -> jax.Array:
    """Generalised advantage estimates (Schulman et al., 2016): `[T - 1, N]`.

    As in the code, `done` is read one step late: step t counts as the last of its episode if step
    t + 1 is. So in the real game, the second-last step of an episode does not bootstrap, and the
    last step bootstraps from the next episode. The learned game never ends.
    """
    chex.assert_rank([rollout.reward, rollout.value, rollout.done], 2)
    discounts = discount * (1.0 - rollout.done[1:].astype(jnp.float32))
    estimate = jax.vmap(
        rlax.truncated_generalized_advantage_estimation, in_axes=(1, 1, None, 1), out_axes=1
    )
    return estimate(rollout.reward[:-1], discounts, lambda_, rollout.value)


def targets(rollout: Rollout, discount: float, lambda_: float) -> Targets:
    """Targets for all steps of a rollout but the last; advantages are normalised over all."""
    advantage = generalised_advantages(rollout, discount, lambda_)
    value = advantage + rollout.value[:-1]
    return Targets(value, (advantage - advantage.mean()) / (advantage.std() + 1e-8))


def minibatches(key: chex.PRNGKey, steps: int, passes: int, size: int) -> jax.Array:
    """Steps of M minibatches `[M, size] int32`, from several passes in random order.

    Each pass is shuffled separately. A minibatch may lie across two passes. Steps that fill no
    whole minibatch are dropped.

    Args:
      key: of the shuffles.
      steps: number of steps to shuffle, T - 1.
      passes: number of passes over the steps.
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
      rollout: steps of the minibatch, each field `[...]`.
      taught: their targets, each field `[...]`.
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
