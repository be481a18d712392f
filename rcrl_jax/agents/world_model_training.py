"""Training settings of agents with a world model: observations and schedule."""

import numpy as np

from rcrl_jax import observations
from rcrl_jax.agents.agent import Schedule
from rcrl_jax.config.world_models import WorldModelConfig
from rcrl_jax.envs.protocol import EnvironmentSpec
from rcrl_jax.observations import ObservationFormat

# Numbers of a frame that an update keeps for its gradients, at 32 filters: what all convolutions
# read and write, once forwards and once backwards.
NUMBERS_A_FRAME = 370_000


def observation_format(
    config: WorldModelConfig, spec: EnvironmentSpec, frame_stack: int
) -> ObservationFormat:
    """Whole frames, the newest ones of an episode with the actions between them.

    Raises:
      Incompatible: the environment's frames do not fit the networks.
    """
    expected = (config.render_size, config.render_size, 3)
    observations.check_frames(spec.frame, expected)
    layout = observations.as_rendered(expected, np.uint8)
    return ObservationFormat.uniform(frame_stack, layout)._replace(with_actions=True)


def schedule(config: WorldModelConfig, action_repeat: int, first_updates: int) -> Schedule:
    """The configuration's environment steps as agent steps."""
    return Schedule(
        config.agent_steps(config.learn_start, action_repeat),
        config.agent_steps(config.update_period, action_repeat),
        config.updates,
        first_updates,
    )
