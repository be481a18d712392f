"""The configurations of agents with a world model, as trained on DMControl.

Their schedules count environment steps, so that a preset means the same at every action repeat.
"""

import dataclasses
from collections.abc import Collection
from typing import ClassVar

from rcrl_jax.config import base, fields
from rcrl_jax.config.fields import setting, with_default
from rcrl_jax.config.groups import (
    DRAWS_SAMPLES,
    ControlReturnContrastConfig,
    UniformReplayConfig,
)

EPISODE = 1000
"""Environment steps of every episode of the suite."""


@dataclasses.dataclass(frozen=True)
class WorldModelConfig(base.AgentConfig):
    """What all agents with a world model have."""

    render_size: ClassVar[int] = 64  # the only size that encoder and decoder accept

    action_repeat: int = setting(
        2,
        "environment steps of an agent step; 0: that of the task",
        "DR (PlaNet's code: that of the task; SLAC's: 4)",
        fields.between(0, EPISODE),
    )

    # Representation and contrastive samples
    return_contrast: ControlReturnContrastConfig = fields.group(
        ControlReturnContrastConfig(), DRAWS_SAMPLES
    )

    # Learning
    batch_size: int = setting(50, "windows in an update", "DR / PL", fields.at_least(1))
    learn_start: int = setting(
        5000,
        "environment steps with random actions before the first update",
        "DR / PL",
        fields.at_least(1),
    )
    update_period: int = setting(
        1000, "environment steps between updates", "DR / PL", fields.at_least(1)
    )
    updates: int = setting(
        100, "updates at a time, one after the other", "DR / PL", fields.at_least(1)
    )
    replay: UniformReplayConfig = UniformReplayConfig()

    # Evaluation
    periodic_episodes: int = with_default(base.AgentConfig, "periodic_episodes", 1)

    def __post_init__(self) -> None:
        """Checks every value, so that a bad one is reported before anything is built."""
        super().__post_init__()
        # Two more slots: the final frame, which has no step, and the step that led to a window's
        # first frame.
        least = self.window_frames + 2
        if self.replay.capacity < least:
            raise ValueError(
                f"replay.capacity: must be at least {least}, for a window of "
                f"{self.window_frames} frames; got {self.replay.capacity}"
            )
        for name, size in (
            ("batch_size", self.batch_size),
            ("return_contrast.batch_size", self.return_contrast.batch_size),
        ):
            if size > self.replay.capacity:
                raise ValueError(
                    f"{name}: must be at most replay.capacity = {self.replay.capacity}; got {size}"
                )

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


@dataclasses.dataclass(frozen=True)
class RecurrentModelConfig(WorldModelConfig):
    """The recurrent state-space model that Dreamer and PlaNet share."""

    cell: ClassVar[str] = "block"  # a field of Dreamer
    free_nats_of: ClassVar[str] = "step"  # a field of Dreamer

    # Network
    filters: int = setting(
        32, "channels of the first convolution; each next one has twice as many", "DR / PL",
        fields.at_least(1),
    )  # fmt: skip
    deter_size: int = setting(
        200, "width of the deterministic state", "DR / PL", fields.at_least(1)
    )
    stoch_size: int = setting(30, "width of the stochastic state", "DR / PL", fields.at_least(1))
    hidden_size: int = setting(
        200, "units of the dense layers of the transition", "DR / PL", fields.at_least(1)
    )
    head_size: int = setting(
        400,
        "units of each hidden layer of reward network, value and policy",
        "DR (PlaNet's code: 300)",
        fields.at_least(1),
    )

    # Auxiliary tasks
    auxiliary: tuple[str, ...] = base.auxiliary_tasks("dreamer", "the model's loss")
    auxiliary_weight: float = base.auxiliary_weight()
    context: int = setting(
        8,
        "frames that are filtered for the representation of a state-action pair, for auxiliary "
        "tasks and measurements",
        "ours",
        fields.frames,
    )

    # Learning
    sequence_length: int = setting(50, "frames of a window", "DR / PL", fields.between(2, 100))
    free_nats: float = setting(
        3.0, "divergence that costs nothing [nats]", "DR / PL", fields.not_negative
    )
    model_learning_rate: float = setting(
        6e-4, "step size of Adam for the model", "DR (PlaNet's code: 1e-3)", fields.positive
    )
    adam_epsilon: float = setting(
        1e-4,
        "epsilon of Adam, added before the correction of the second moment, as in TensorFlow",
        "DR / PL (danijar/dreamer: 1e-7)",
        fields.positive,
    )
    max_gradient_norm: float = setting(
        100.0, "L2 norm at which gradients are clipped", "DR (PlaNet's code: 1000)", fields.positive
    )
    exploration_std: float = setting(
        0.3,
        "standard deviation of the noise that is added to actions in training",
        "DR / PL",
        fields.not_negative,
    )
    first_updates: int = setting(
        100, "updates at the first time", "DR (PlaNet's code: 101)", fields.at_least(1)
    )
    replay: UniformReplayConfig = UniformReplayConfig(capacity=251_000)

    @property
    def window_frames(self) -> int:
        """See `WorldModelConfig.window_frames`."""
        return self.sequence_length

    @property
    def frames_before_window(self) -> int:
        """Those of the context of its first frame; see `WorldModelConfig.frames_before_window`."""
        return self.context - 1


@dataclasses.dataclass(frozen=True)
class DreamerConfig(RecurrentModelConfig):
    """Dreamer, its first version."""

    family: ClassVar[str] = "dreamer"
    cell: str = setting(
        "block",
        "the GRU: 'block' (the reset gate acts before the recurrent product) or 'keras' (after it; "
        "means and deviations of a latent then come from one layer instead of two)",
        "DR (danijar/dreamer: 'keras')",
        fields.one_of("block", "keras"),
    )
    free_nats_of: str = setting(
        "step",
        "what costs nothing: the first free_nats of each 'step', or, if it is below free_nats, the "
        "'mean' over all steps of a batch",
        "DR (danijar/dreamer: 'mean')",
        fields.one_of("step", "mean"),
    )
    pixel_noise: bool = setting(
        True,
        "adds uniform noise of one 256th to pixels in [0, 255/256]; otherwise pixels lie in [0, 1]",
        "DR (danijar/dreamer: False)",
    )
    horizon: int = setting(15, "imagined agent steps", "DR", fields.between(2, 100))
    return_lambda: float = setting(0.95, "lambda of the lambda-returns", "DR", fields.fraction)
    value_learning_rate: float = setting(
        8e-5, "step size of Adam for the value", "DR", fields.positive
    )
    actor_learning_rate: float = setting(
        8e-5, "step size of Adam for the policy", "DR", fields.positive
    )
    initial_std: float = setting(
        5.0, "standard deviation of the policy's normal at the start", "DR", fields.positive
    )
    mean_scale: float = setting(
        5.0, "bound of the means of the policy's normal", "DR", fields.positive
    )
    mode_samples: int = setting(
        100,
        "actions of which the evaluation takes the one of highest density",
        "DR",
        fields.at_least(1),
    )


@dataclasses.dataclass(frozen=True)
class PlanetConfig(RecurrentModelConfig):
    """PlaNet."""

    family: ClassVar[str] = "planet"
    action_repeat: int = with_default(WorldModelConfig, "action_repeat", 0)
    head_size: int = with_default(RecurrentModelConfig, "head_size", 300)
    model_learning_rate: float = with_default(RecurrentModelConfig, "model_learning_rate", 1e-3)
    max_gradient_norm: float = with_default(RecurrentModelConfig, "max_gradient_norm", 1000.0)
    first_updates: int = with_default(RecurrentModelConfig, "first_updates", 101)
    reward_scale: float = setting(
        10.0, "weight of the reward's log-likelihood", "PL", fields.not_negative
    )
    horizon: int = setting(12, "agent steps of a planned sequence", "PL", fields.frames)
    iterations: int = setting(10, "fits of the planner", "PL", fields.at_least(1))
    candidates: int = setting(
        1000, "sequences that the planner draws for a fit", "PL", fields.at_least(1)
    )
    best_candidates: int = setting(100, "sequences that the planner fits", "PL", fields.at_least(1))

    def __post_init__(self) -> None:
        """Checks every value, so that a bad one is reported before anything is built."""
        super().__post_init__()
        if self.best_candidates > self.candidates:
            raise ValueError(
                f"best_candidates: must be at most candidates = {self.candidates}; "
                f"got {self.best_candidates}"
            )


@dataclasses.dataclass(frozen=True)
class SlacConfig(WorldModelConfig):
    """SLAC: soft actor-critic on the latents of a model."""

    family: ClassVar[str] = "slac"
    action_repeat: int = with_default(WorldModelConfig, "action_repeat", 4)
    batch_size: int = setting(256, "windows of actor and critics", "SL", fields.at_least(1))
    learn_start: int = setting(
        10_000,
        "environment steps with random actions before the first update",
        "ours",
        fields.at_least(1),
    )
    update_period: int = setting(
        1, "environment steps between updates, at least an agent step", "SL", fields.at_least(1)
    )
    updates: int = setting(1, "updates at a time", "SL", fields.at_least(1))
    periodic_episodes: int = with_default(base.AgentConfig, "periodic_episodes", 10)

    # Network
    filters: int = setting(
        32, "channels of the first convolution; the next have 2, 4, 8 and 8 times as many", "SL",
        fields.at_least(1),
    )  # fmt: skip
    z1_size: int = setting(32, "width of the first latent", "SL", fields.at_least(1))
    z2_size: int = setting(256, "width of the second latent", "SL", fields.at_least(1))
    hidden_size: int = setting(
        256, "units of the two hidden layers of all dense networks", "SL", fields.at_least(1)
    )
    log_std_min: float = setting(
        -20.0, "lower bound of the policy's log sigma", "SL", fields.finite
    )
    log_std_max: float = setting(2.0, "upper bound of the policy's log sigma", "SL", fields.finite)
    pixel_variance: float = setting(
        0.1, "variance of a pixel given the latents; pixels lie in [0, 1]", "SL", fields.positive
    )

    # Learning
    sequence_length: int = setting(
        8,
        "steps of a window, which has a frame more",
        "SL",
        fields.between(1, 99),
    )
    model_batch_size: int = setting(
        32, "windows of the batch from which the model learns", "SL", fields.at_least(1)
    )
    pretraining_updates: int = setting(
        100_000, "updates of the model alone, before any others", "SL", fields.at_least(0)
    )
    learning_rate: float = setting(
        3e-4, "step size of Adam for actor, critics and log alpha", "SL", fields.positive
    )
    model_learning_rate: float = setting(
        1e-4, "step size of Adam for the model", "SL", fields.positive
    )
    adam_epsilon: float = setting(
        1e-8,
        "epsilon of Adam, added before the correction of the second moment, as in TensorFlow",
        "SL",
        fields.positive,
    )
    initial_temperature: float = setting(1.0, "alpha at the start", "SL", fields.positive)
    critic_tau: float = setting(
        0.005, "step of the target critics towards the critics", "SL", fields.fraction
    )

    def __post_init__(self) -> None:
        """Checks every value, so that a bad one is reported before anything is built."""
        super().__post_init__()
        if self.model_batch_size > self.batch_size:
            raise ValueError(
                f"model_batch_size: must be at most batch_size = {self.batch_size}; "
                f"got {self.model_batch_size}"
            )
        if not self.log_std_min < self.log_std_max:
            raise ValueError(
                f"log_std_min: must be below log_std_max = {self.log_std_max}; "
                f"got {self.log_std_min}"
            )

    @property
    def window_frames(self) -> int:
        """See `WorldModelConfig.window_frames`."""
        return self.sequence_length + 1
