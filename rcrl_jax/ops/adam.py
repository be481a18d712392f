"""Adam, with optional clipping of the gradients by their norm."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from rcrl_jax.ops import native


class Optimizer(NamedTuple):
    """An optimizer as two functions.

    Attributes:
      init: parameters -> state. `make_adam` has the state of `optax.adam`, or, with clipping, of
        `optax.chain(clip, adam)`.
      step: (gradients, state, parameters, due) -> (parameters, state, norm of the gradients).
        If `due`, `[] bool`, is false, parameters and state stay unchanged. The default is true.
    """

    init: Callable[[Any], optax.OptState]
    step: Callable[..., tuple[Any, optax.OptState, jax.Array]]


def make_adam(
    learning_rate: float,
    *,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    max_norm: float = math.inf,
) -> Optimizer:
    """Makes Adam (Kingma and Ba, 2015).

    On the CPU, a kernel of ours reads and writes the parameters and moments once. It rounds
    differently from optax.

    Args:
      learning_rate: size of a step.
      b1: decay rate of the first moment.
      b2: decay rate of the second moment.
      eps: added to the root of the second moment.
      max_norm: gradients of a larger Euclidean norm are scaled to it.
    """
    adam = optax.adam(learning_rate, b1, b2, eps)
    clips = math.isfinite(max_norm)
    if clips:
        adam = optax.chain(optax.clip_by_global_norm(max_norm), adam)

    step_by_optax = stepping(adam)

    def step_by_kernel(gradients, state, params, due):
        # The state of optax's chain: (clipping, (moments, learning rate)).
        clipping, (moments, scaling) = state if clips else (None, state)
        count = jnp.where(due, moments.count + 1, 0)
        norm, params, mu, nu = native.get("adam").step(
            count, gradients, params, moments.mu, moments.nu,
            learning_rate=learning_rate, b1=b1, b2=b2, eps=eps, max_norm=max_norm,
        )  # fmt: skip
        stepped = optax.ScaleByAdamState(moments.count + due, mu, nu), scaling
        return params, (clipping, stepped) if clips else stepped, norm

    def step(gradients, state, params, due=True):
        due = jnp.asarray(due)
        if native.get("adam") is None or not jax.tree.leaves(params):
            return step_by_optax(gradients, state, params, due)
        return jax.lax.platform_dependent(
            gradients, state, params, due, cpu=step_by_kernel, default=step_by_optax
        )

    return Optimizer(adam.init, step)


def make_tensorflow_adam(
    learning_rate: float,
    *,
    eps: float,
    max_norm: float = math.inf,
    b1: float = 0.9,
    b2: float = 0.999,
) -> Optimizer:
    """Makes TensorFlow's Adam, which adds epsilon before the correction of the moments.

    step = learning_rate sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) + eps). In the first step, an
    epsilon of 1e-4 here equals 3.2e-3 in optax's form. Arguments as in `make_adam`.
    """

    def update(gradients, state, params=None):
        del params
        count = optax.safe_increment(state.count)
        mu = optax.tree.update_moment(gradients, state.mu, b1, 1)
        nu = optax.tree.update_moment(gradients, state.nu, b2, 2)
        t = count.astype(jnp.float32)
        rate = learning_rate * jnp.sqrt(1.0 - b2**t) / (1.0 - b1**t)
        deltas = jax.tree.map(lambda m, v: -rate * m / (jnp.sqrt(v) + eps), mu, nu)
        return deltas, optax.ScaleByAdamState(count, mu, nu)

    adam = optax.GradientTransformation(optax.scale_by_adam().init, update)
    if math.isfinite(max_norm):
        adam = optax.chain(optax.clip_by_global_norm(max_norm), adam)
    return Optimizer(adam.init, stepping(adam))


def restart_count(state: optax.OptState, due: jax.Array) -> optax.OptState:
    """Adam's state with the step count reset to 0 if `due`, `[] bool`; the moments stay."""
    count = optax.tree.get(state, "count")
    return optax.tree.set(state, count=jnp.where(due, 0, count))


def stepping(transformation: optax.GradientTransformation) -> Callable[..., Any]:
    """`Optimizer.step` for a transformation of optax."""

    def step(gradients, state, params, due=True):
        due = jnp.asarray(due)
        deltas, stepped = transformation.update(gradients, state, params)
        new = optax.apply_updates(params, deltas), stepped
        params, state = jax.tree.map(lambda a, b: jnp.where(due, a, b), new, (params, state))
        return params, state, optax.tree.norm(gradients)

    return step
