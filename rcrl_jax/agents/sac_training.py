"""Training settings of SAC: observations, replay, protocol, evaluation, memory.

World models share its samples, protocol and replay.
"""

import numpy as np

from rcrl_jax import observations
from rcrl_jax.agents.agent import EvaluationSettings, Resources
from rcrl_jax.auxiliary.task import Needs
from rcrl_jax.config.sac import SacConfig
from rcrl_jax.config.world_models import WorldModelConfig
from rcrl_jax.envs.protocol import EnvironmentProtocol, EnvironmentSpec
from rcrl_jax.networks import sac as networks
from rcrl_jax.observations import ObservationFormat
from rcrl_jax.replay.settings import ReplaySettings, SequenceRule
from rcrl_jax.return_contrast.rule import ContrastRule, make_rule
from rcrl_jax.return_contrast.segments import closes_above

# The suite cuts episodes after 1000 environment steps, so no episode has more agent steps.
_MAX_EPISODE_STEPS = 1000


def observation_format(config: SacConfig, spec: EnvironmentSpec) -> ObservationFormat:
    """Whole frames everywhere, since every observation is cropped.

    Raises:
      Incompatible: the environment's frames do not fit the configuration.
    """
    pixels = config.observation == "pixels"
    size = config.render_size
    shape = (size, size, 3) if pixels else tuple(spec.frame.shape[:1])
    dtype = np.uint8 if pixels else np.float32
    observations.check_frames(spec.frame, shape, dtype)
    return ObservationFormat.uniform(config.frame_stack, observations.as_rendered(shape, dtype))


def environment_protocol(frame_stack: int) -> EnvironmentProtocol:
    """Raw rewards, and no time limit but the suite's own."""
    return EnvironmentProtocol(
        frame_stack=frame_stack,
        life_loss_ends_episode=False,
        clip_rewards=False,
        max_episode_steps=_MAX_EPISODE_STEPS,
    )


def contrast_rule(config: SacConfig | WorldModelConfig, action_repeat: int) -> ContrastRule:
    """Contrastive samples: the returns of a segment differ by at most its threshold.

    Args:
      config: of the agent.
      action_repeat: environment steps of an agent step.
    """
    contrast = config.return_contrast
    # Rewards are sums over the action repeat. For 'mean' the threshold is scaled instead: means add
    # up to more than it if sums add up to more than action_repeat times it.
    scale = action_repeat if contrast.segment_reward == "mean" else 1
    return make_rule(contrast, tolerance=contrast.segment_threshold * scale)


def replay_settings(
    config: SacConfig | WorldModelConfig,
    samples: ContrastRule,
    sequence: SequenceRule | None = None,
) -> ReplaySettings:
    """A uniform replay of single steps or windows, with the contrastive samples that tasks need."""
    return ReplaySettings(
        capacity=config.replay.capacity,
        n_step=1,
        discount=config.discount,
        priority_exponent=0.0,
        importance_exponent=1.0,
        batch_size=config.batch_size,
        closes_segment=closes_above(samples.tolerance),
        contrast=samples,
        sequence=sequence,
    )


def evaluation_settings(config: SacConfig) -> EvaluationSettings:
    """The policy's mean action."""
    return EvaluationSettings(
        config.evaluation_period, config.periodic_episodes, {"policy": "squashed mean"}
    )


def resources(config: SacConfig, needs: Needs) -> Resources:
    """Memory of an update's images: two per transition, three per anchor, and the tasks' own.

    Pixels and outputs of all convolutions count twice: for the forward and the backward pass.
    """
    images = (2 + needs.encoded) * config.batch_size + 3 * needs.samples.number
    if config.observation == "state":
        activations = images * 8 * config.hidden_size * 4
        return Resources(batches_over_runs=True, logs_frames=False, activation_bytes=activations)
    pixels = config.crop_size**2 * 3 * config.frame_stack
    outputs = sum(side**2 for side in networks.conv_sizes(config.crop_size)) * config.filters
    return Resources(
        batches_over_runs=False,
        logs_frames=config.replay.resumed_frames == "stored",
        activation_bytes=images * 4 * (2 * pixels + 2 * outputs),
    )
