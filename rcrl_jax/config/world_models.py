"""What the configurations of Dreamer, PlaNet and SLAC share.

Their schedules count environment steps, so that a preset means the same at every action repeat.
"""

import dataclasses
from collections.abc import Collection
from typing import ClassVar

from rcrl_jax.config import base, fields
from rcrl_jax.config.base import (
    DRAWS_SAMPLES,
    EPISODE,
    ControlReturnContrastConfig,
    UniformReplayConfig,
)
from rcrl_jax.config.fields import setting, with_default


@dataclasses.dataclass(frozen=True)
class WorldModelConfig(base.AgentConfig):
    """What all agents with a world model have."""

    render_size: ClassVar[int] = 64  # the only size that encoder and decoder accept

    action_repeat: int = setting(
        2,
        "environment steps of an agent step; 0 takes the task's value",
        "DR (PlaNet's code: the task's value; SLAC's: 4)",
        fields.between(0, EPISODE),
    )

    # Representation and contrastive samples
    return_contrast: ControlReturnContrastConfig = fields.group(
        ControlReturnContrastConfig(), DRAWS_SAMPLES
    )

    # Learning
    batch_size: int = setting(50, "windows of an update", "DR / PL", fields.at_least(1))
    learn_start: int = setting(
        5000,
        "environment steps with random actions before the first update",
        "DR / PL",
        fields.at_least(1),
    )
    update_period: int = setting(
        1000, "environment steps between series of updates", "DR / PL", fields.at_least(1)
    )
    updates: int = setting(
        100, "updates of a series, one after the other", "DR / PL", fields.at_least(1)
    )
    replay: UniformReplayConfig = UniformReplayConfig()

    # Evaluation
    periodic_episodes: int = with_default(base.AgentConfig, "periodic_episodes", 1)

    def __post_init__(self) -> None:
        """Checks every value, so that a bad one is reported before anything is built."""
        super().__post_init__()
        base.check_batches(self)

    @property
    def window_frames(self) -> int:
        """L, frames of a window."""
        raise NotImplementedError

    @property
    def frames_before_window(self) -> int:
        """Older frames that the replay must hold besides those of a window."""
        return 0

    def agent_steps(self, env_steps: int, action_repeat: int) -> int:
        """Agent steps that take at least `env_steps`."""
        return -(-env_steps // action_repeat)

    def first_update(self, action_repeat: int) -> int:
        """See `AgentConfig.first_update`."""
        period = self.agent_steps(self.update_period, action_repeat)
        return -(-self.agent_steps(self.learn_start, action_repeat) // period) * period

    def check_game(self, games: Collection[str], action_repeat: int) -> None:
        """Checks that the suite's episodes fit the windows and the replay."""
        frames = self.agent_steps(EPISODE, action_repeat) + 1
        if self.window_frames > frames:
            raise ValueError(
                f"sequence_length: windows of {self.window_frames} frames are longer than the "
                f"{frames} frames of an episode at action repeat {action_repeat}"
            )
        least = frames + self.window_frames + self.frames_before_window
        if self.replay.capacity < least:
            raise ValueError(
                f"replay.capacity: must be at least {least}, for an episode of {frames} frames, "
                f"a window and what comes before it; got {self.replay.capacity}"
            )
        if self.learn_start < EPISODE:
            raise ValueError(
                f"learn_start: must be at least {EPISODE} environment steps, so that an episode "
                f"has ended; got {self.learn_start}"
            )
