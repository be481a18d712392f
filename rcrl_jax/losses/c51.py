"""The distributional double Q-learning loss of Rainbow."""

import chex
import jax
import jax.numpy as jnp
import rlax


def support(v_max: float, num_atoms: int) -> jax.Array:
    """The atoms of the return distribution, `[num_atoms]` from -v_max to v_max."""
    return jnp.linspace(-v_max, v_max, num_atoms)


def expected_return(logits: jax.Array, atoms: jax.Array) -> jax.Array:
    """Mean of the return distribution: `[..., num_atoms] -> [...]`."""
    return jnp.sum(jax.nn.softmax(logits) * atoms, axis=-1)


def mask_actions(q: jax.Array, own_actions: jax.Array) -> jax.Array:
    """Values `[..., A]` with -inf for the actions that the run does not have."""
    return jnp.where(jnp.arange(q.shape[-1]) < own_actions, q, -jnp.inf)


def double_q_cross_entropy(
    logits_tm1: jax.Array,
    a_tm1: jax.Array,
    r_t: jax.Array,
    discount_t: jax.Array,
    target_logits_t: jax.Array,
    selector_logits_t: jax.Array,
    atoms: jax.Array,
    own_actions: jax.Array,
) -> jax.Array:
    """Cross-entropy to the projected double-Q target, one value a transition.

    The target's entropy is part of it, as in github.com/Kaixhin/Rainbow, and so it is part of
    the priorities. Bellemare et al. (2017), algorithm 1; van Hasselt et al. (2016).

    Args:
      logits_tm1: online logits at the first state, `[B, A, atoms]`.
      a_tm1: actions taken there, `[B] int32`.
      r_t: discounted sum of the rewards over the n-step window, `[B]`.
      discount_t: what the bootstrap at the window's end is multiplied with, `[B]`.
      target_logits_t: target-network logits at the window's end, `[B, A, atoms]`.
      selector_logits_t: online logits there, which choose the action, `[B, A, atoms]`.
      atoms: `[atoms]`.
      own_actions: `[] int32`; only the first `own_actions` can be selected.

    Returns:
      `[B]`.
    """
    chex.assert_rank([logits_tm1, a_tm1, r_t, discount_t, atoms], [3, 1, 1, 1, 1])
    chex.assert_equal_shape([logits_tm1, target_logits_t, selector_logits_t])
    batched = jax.vmap(
        rlax.categorical_double_q_learning, in_axes=(None, 0, 0, 0, 0, None, 0, 0)
    )
    q_t_selector = mask_actions(expected_return(selector_logits_t, atoms), own_actions)
    return batched(
        atoms, logits_tm1, a_tm1, r_t, discount_t, atoms, target_logits_t, q_t_selector
    )
