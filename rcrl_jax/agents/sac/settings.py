"""Training settings of SAC alone: observations and memory."""

import numpy as np

from rcrl_jax import observations
from rcrl_jax.agents.agent import Resources
from rcrl_jax.agents.sac import network as networks
from rcrl_jax.agents.sac.config import SacConfig
from rcrl_jax.envs.protocol import EnvironmentSpec
from rcrl_jax.observations import ObservationFormat
from rcrl_jax.tasks.task import Needs


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


def resources(config: SacConfig, needs: Needs) -> Resources:
    """Memory of an update's images: two per transition, three per anchor, and the tasks' own.

    Pixels and outputs of all convolutions count twice: for the forward and the backward pass.
    """
    images = (2 + needs.encoded) * config.batch_size + 3 * needs.contrast_rule.number
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
