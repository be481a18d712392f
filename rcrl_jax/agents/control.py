"""What agents with continuous actions share: settings, actions, phi(s, a), SAC's losses.

The losses (Haarnoja et al., 2018b) are those of SAC and, but for the temperature's, of SLAC; the
temperature is learned. The critics use rlax's `td_learning`. The rest of rlax does not fit:
`dpg_loss` and the policy-gradient losses have no entropy of a Gaussian; no loss learns a
temperature.
"""

import chex
import jax
import jax.numpy as jnp
import rlax

from rcrl_jax import types
from rcrl_jax.agents.agent import EvaluationSettings
from rcrl_jax.config.base import EPISODE, AgentConfig
from rcrl_jax.envs.protocol import EnvironmentProtocol
from rcrl_jax.replay.settings import ContrastRule, ReplaySettings, SequenceRule, make_rule


def environment_protocol(frame_stack: int) -> EnvironmentProtocol:
    """Raw rewards, and no time limit but the suite's own."""
    return EnvironmentProtocol(
        frame_stack=frame_stack,
        life_loss_ends_episode=False,
        clip_rewards=False,
        max_episode_steps=EPISODE,  # environment steps, so no episode has more agent steps
    )


def contrast_rule(config: AgentConfig, action_repeat: int) -> ContrastRule:
    """How contrastive samples are drawn: returns in a segment differ by at most the threshold.

    Args:
      config: of the agent.
      action_repeat: environment steps of an agent step.
    """
    contrast = config.return_contrast
    # Rewards are sums over the action repeat. For 'mean', we multiply the threshold by the action
    # repeat instead of dividing the rewards.
    scale = action_repeat if contrast.segment_reward == "mean" else 1
    return make_rule(contrast, tolerance=contrast.segment_threshold * scale)


def replay_settings(
    config: AgentConfig,
    rule: ContrastRule,
    *sequences: SequenceRule,
) -> ReplaySettings:
    """A uniform replay of single steps or windows, with the contrastive samples that tasks need."""
    return ReplaySettings(
        capacity=config.replay.capacity,
        discount=config.discount,
        batch_size=config.batch_size,
        contrast_rule=rule,
        sequences=sequences,
    )


def evaluation_settings(config: AgentConfig, policy: str) -> EvaluationSettings:
    """How an agent is evaluated; `policy` describes the policy for the manifest."""
    return EvaluationSettings(
        config.evaluation_period, config.periodic_episodes, {"policy": policy}
    )


def action_mask(run: types.RunSpec, max_num_actions: int) -> jax.Array:
    """`[A] bool`, which action components are valid for the run."""
    return jnp.arange(max_num_actions) < run.num_valid_actions


def uniform_action(key: chex.PRNGKey, number: int, mask: jax.Array) -> jax.Array:
    """`[N, A]` in [-1, 1), zero where `mask [A] bool` is false."""
    uniform = jax.random.uniform(key, (number, len(mask)), minval=-1.0, maxval=1.0)
    return jnp.where(jnp.broadcast_to(mask, uniform.shape), uniform, 0.0)


def join(params: types.Params, psi: jax.Array, action: jax.Array) -> jax.Array:
    """The state-action embedding phi(s, a) = [psi(s), a]."""
    del params  # other agents embed actions
    return jnp.concatenate([psi, action], axis=-1)


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
    twin_td_learning = jax.vmap(rlax.td_learning, in_axes=(0, None, None, None))
    td_errors = jax.vmap(twin_td_learning)(q_tm1, r_t, discount_t, v_t)
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


def _assert_twin(q: jax.Array, log_density: jax.Array) -> None:
    chex.assert_shape(q, (*log_density.shape, 2))
