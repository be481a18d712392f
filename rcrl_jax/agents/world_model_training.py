"""Training settings of agents with a world model: observations, replay, protocol, schedule."""

import numpy as np

from rcrl_jax import observations
from rcrl_jax.agents.agent import EvaluationSettings, Schedule
from rcrl_jax.config.world_models import EPISODE, WorldModelConfig
from rcrl_jax.envs.protocol import EnvironmentProtocol, EnvironmentSpec
from rcrl_jax.observations import ObservationFormat
from rcrl_jax.replay.settings import ReplaySettings, SequenceRule
from rcrl_jax.return_contrast.rule import ContrastRule, make_rule
from rcrl_jax.return_contrast.segments import closes_above


def observation_format(
    config: WorldModelConfig, spec: EnvironmentSpec, frame_stack: int
) -> ObservationFormat:
    """Whole frames, the newest ones of an episode with the actions between them.

    Raises:
      ValueError: the environment's frames do not fit the networks.
    """
    expected = (config.render_size, config.render_size, 3)
    if tuple(spec.frame.shape) != expected or spec.frame.dtype != np.uint8:
        raise ValueError(
            f"frames must be uint8 {list(expected)}, got {spec.frame.dtype} "
            f"{list(spec.frame.shape)}"
        )
    formats = ObservationFormat.uniform(frame_stack, observations.as_rendered(expected, np.uint8))
    return formats._replace(with_actions=True)


def environment_protocol(frame_stack: int) -> EnvironmentProtocol:
    """Raw rewards, and no time limit but the suite's own."""
    return EnvironmentProtocol(
        frame_stack=frame_stack,
        life_loss_ends_episode=False,
        clip_rewards=False,
        max_episode_steps=EPISODE,  # environment steps, so never fewer than agent steps
    )


def contrast_rule(config: WorldModelConfig, action_repeat: int) -> ContrastRule:
    """Contrastive samples, as of SAC: returns of a segment differ by at most its threshold."""
    contrast = config.return_contrast
    scale = action_repeat if contrast.segment_reward == "mean" else 1
    return make_rule(contrast, tolerance=contrast.segment_threshold * scale)


def replay_settings(
    config: WorldModelConfig, samples: ContrastRule, sequence: SequenceRule
) -> ReplaySettings:
    """A uniform replay of windows, with the contrastive samples that the tasks need."""
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


def schedule(config: WorldModelConfig, action_repeat: int, first_updates: int) -> Schedule:
    """The configuration's environment steps as agent steps."""
    return Schedule(
        config.agent_steps(config.learn_start, action_repeat),
        config.agent_steps(config.update_period, action_repeat),
        config.updates,
        first_updates,
    )


def evaluation_settings(config: WorldModelConfig, policy: str) -> EvaluationSettings:
    """How an agent is evaluated; `policy` says by which of its policies, for the manifest."""
    return EvaluationSettings(
        config.evaluation_period, config.periodic_episodes, {"policy": policy}
    )
