"""The distributional double Q-learning loss of Rainbow."""

import functools

import chex
import jax
import jax.numpy as jnp
import rlax


def support(v_max: float, num_atoms: int) -> jax.Array:
    """The support of the return distribution: `[num_atoms]` atoms from -v_max to v_max."""
    return jnp.linspace(-v_max, v_max, num_atoms)


def expected_return(logits: jax.Array, atoms: jax.Array) -> jax.Array:
    """Mean of the return distribution: `[..., atoms], [atoms] -> [...]`."""
    chex.assert_shape(atoms, logits.shape[-1:])
    return jnp.sum(jax.nn.softmax(logits) * jnp.broadcast_to(atoms, logits.shape), axis=-1)


def mask_actions(q: jax.Array, num_valid_actions: jax.Array) -> jax.Array:
    """Sets the values `[..., A]` of all actions from number `num_valid_actions []` on to -inf."""
    chex.assert_rank(num_valid_actions, 0)
    action_mask = jnp.arange(q.shape[-1]) < num_valid_actions
    return jnp.where(jnp.broadcast_to(action_mask, q.shape), q, -jnp.inf)


def double_q_cross_entropy(
    logits_tm1: jax.Array,
    a_tm1: jax.Array,
    r_t: jax.Array,
    discount_t: jax.Array,
    target_logits_t: jax.Array,
    selector_logits_t: jax.Array,
    atoms: jax.Array,
    num_valid_actions: jax.Array,
) -> jax.Array:
    """Cross-entropy to the projected double-Q target, for a batch of transitions.

    The cross-entropy includes the entropy of the target, and so do the priorities, as in
    github.com/Kaixhin/Rainbow. Bellemare et al. (2017), algorithm 1; van Hasselt et al. (2016).

    Args:
      logits_tm1: online logits at the first state, `[B, A, atoms]`.
      a_tm1: actions taken there, `[B] int32`.
      r_t: discounted sum of the rewards over the n-step window, `[B]`.
      discount_t: factor of the bootstrap value at the end of the window, `[B]`.
      target_logits_t: target-network logits at the end of the window, `[B, A, atoms]`.
      selector_logits_t: online logits at the end of the window, which select the action,
        `[B, A, atoms]`.
      atoms: `[atoms]`.
      num_valid_actions: `[] int32`; only the first `num_valid_actions` can be selected.

    Returns:
      One loss per transition, `[B]`. Only `logits_tm1` gets a gradient.
    """
    chex.assert_rank(logits_tm1, 3)
    chex.assert_shape([a_tm1, r_t, discount_t], logits_tm1.shape[:1])
    chex.assert_equal_shape([logits_tm1, target_logits_t, selector_logits_t])
    chex.assert_shape(atoms, logits_tm1.shape[-1:])
    q_t_selector = mask_actions(expected_return(selector_logits_t, atoms), num_valid_actions)

    def by_index(logits_tm1, a_tm1, r_t, discount_t, target_logits_t, q_t_selector):
        double_q = rlax.categorical_double_q_learning
        batched = jax.vmap(double_q, in_axes=(None, 0, 0, 0, 0, None, 0, 0))
        return batched(
            atoms, logits_tm1, a_tm1, r_t, discount_t, atoms, target_logits_t, q_t_selector
        )

    # On a TPU, the gradient of a look-up by index is a loop over rows, so we sum under a mask. On
    # the CPU, XLA would simplify such a sum differently in a fleet that is sharded over devices.
    # The rounding would change, and a run would no longer equal the run alone.
    return jax.lax.platform_dependent(
        logits_tm1, a_tm1, r_t, discount_t, target_logits_t, q_t_selector,
        cpu=by_index, default=functools.partial(cross_entropy_by_mask, atoms=atoms),
    )  # fmt: skip


def cross_entropy_by_mask(
    logits_tm1: jax.Array,
    a_tm1: jax.Array,
    r_t: jax.Array,
    discount_t: jax.Array,
    target_logits_t: jax.Array,
    q_t_selector: jax.Array,
    *,
    atoms: jax.Array,
) -> jax.Array:
    """`rlax.categorical_double_q_learning` of a batch, without look-ups by index; `[B]`."""

    def choose(logits, action):
        mask = jnp.arange(logits.shape[1])[None] == action[:, None]
        return jnp.sum(jnp.where(mask[..., None], logits, 0.0), axis=1)

    p_t = jax.nn.softmax(choose(target_logits_t, jnp.argmax(q_t_selector, axis=-1)))
    atoms_t = r_t[:, None] + discount_t[:, None] * atoms[None]
    project = jax.vmap(rlax.categorical_l2_project, in_axes=(0, 0, None))
    target = jax.lax.stop_gradient(project(atoms_t, p_t, atoms))
    return jax.vmap(rlax.categorical_cross_entropy)(target, choose(logits_tm1, a_tm1))
