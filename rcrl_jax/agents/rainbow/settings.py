"""Training settings of C51 Rainbow: observations, replay, protocol, evaluation, memory."""

import numpy as np
from dm_env import specs

from rcrl_jax import observations
from rcrl_jax.agents.agent import EvaluationSettings, Resources
from rcrl_jax.agents.rainbow.config import RainbowConfig
from rcrl_jax.config.choices import ENCODERS
from rcrl_jax.envs.protocol import EnvironmentProtocol
from rcrl_jax.observations import ObservationFormat
from rcrl_jax.replay.settings import ContrastRule, ReplaySettings
from rcrl_jax.tasks.task import Needs


def observation_format(
    config: RainbowConfig, frame: specs.Array, whole_frames: bool
) -> ObservationFormat:
    """The smallest format that serves: without a shift, only the encoder's patches are stored.

    Args:
      config: of the agent.
      frame: of the environment.
      whole_frames: whether an auxiliary task needs whole frames of a transition's first state.

    Raises:
      Incompatible: the encoder does not read such frames.
    """
    stack = config.frame_stack
    encoder = ENCODERS[config.encoder]
    if encoder.reads == "bits":
        observations.check_frames(frame, (10, 10, "C"))
        return ObservationFormat.uniform(stack, observations.as_bits(frame.shape))
    if encoder.reads == "vectors":
        observations.check_frames(frame, ("D",), np.float32)
        return ObservationFormat.uniform(stack, observations.as_rendered(frame.shape, np.float32))
    observations.check_frames(frame, observations.FRAMES.stored_shape)
    if encoder.reads == "frames":
        return ObservationFormat.uniform(stack, observations.FRAMES)
    shifts_both = config.augmentation != "none"
    first = observations.PATCHES
    if shifts_both or whole_frames:
        first = observations.WHOLE
    return ObservationFormat(
        stack,
        stored=first,
        network=observations.PATCHES,
        observation=first,
        next_observation=observations.WHOLE if shifts_both else observations.PATCHES,
    )


def environment_protocol(config: RainbowConfig) -> EnvironmentProtocol:
    """How the agent sees a game in training."""
    return EnvironmentProtocol(
        frame_stack=config.frame_stack,
        life_loss_ends_episode=config.life_loss_ends_episode,
        clip_rewards=config.clip_rewards,
        max_episode_steps=config.max_episode_steps,
    )


def replay_settings(config: RainbowConfig, rule: ContrastRule) -> ReplaySettings:
    """A prioritised replay with the contrastive samples that the tasks need."""
    return ReplaySettings(
        capacity=config.replay.capacity,
        n_step=config.n_step,
        discount=config.discount,
        priority_exponent=config.replay.priority_exponent,
        importance_exponent=config.replay.importance_exponent,
        batch_size=config.batch_size,
        contrast_rule=rule,
    )


def evaluation_settings(config: RainbowConfig) -> EvaluationSettings:
    """Mean weights, few random actions, raw rewards; the loss of a life does not end an episode."""
    return EvaluationSettings(
        config.evaluation_period,
        config.periodic_episodes,
        {
            "evaluation_epsilon": config.evaluation_epsilon,
            "noise": "off",
            "life_loss_ends_episode": False,
            "clip_rewards": False,
            "unfinished_episodes": "count with what they have at the frame limit",
        },
    )


def resources(config: RainbowConfig, needs: Needs) -> Resources:
    """Memory of an update's images: two per transition, three per anchor, and those of tasks."""
    images = (2 + needs.encoded) * config.batch_size + 3 * needs.contrast_rule.number
    return Resources(
        batches_over_runs=not ENCODERS[config.encoder].convolves,
        logs_frames=False,
        activation_bytes=images * ENCODERS[config.encoder].bytes_an_image,
    )
