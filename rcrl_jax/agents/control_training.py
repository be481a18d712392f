"""What agents with continuous actions share: replay, protocol, evaluation, actions, phi(s, a)."""

import chex
import jax
import jax.numpy as jnp

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
    """How contrastive samples are drawn: the returns of a segment differ by at most its threshold.

    Args:
      config: of the agent.
      action_repeat: environment steps of an agent step.
    """
    contrast = config.return_contrast
    # Rewards are sums over the action repeat. For 'mean' the threshold is scaled instead: the means
    # exceed the threshold exactly where the sums exceed action_repeat times the threshold.
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
    """How an agent is evaluated; `policy` says by which of its policies, for the manifest."""
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
