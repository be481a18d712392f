"""The configuration of SimPLe, as trained on Atari-100k."""

import dataclasses
from typing import ClassVar

from rcrl_jax.config import fields
from rcrl_jax.config.base import AgentConfig
from rcrl_jax.config.fields import setting, with_default

TEMPERATURES = 0.5, 0.0, 1.0
"""Temperatures of the policy in evaluations, in the source's order; the first gives the scores."""


@dataclasses.dataclass(frozen=True)
class FrameModelConfig:
    """Fields of both world models; the defaults are those of the deterministic model."""

    filters: int = setting(
        64, "channels at full size", "SP (stochastic: 96)", fields.between(8, 10_000)
    )
    compress_steps: int = setting(
        6, "how often the U-Net halves height and width", "SP", fields.between(1, 10)
    )
    double_steps: int = setting(
        2, "how many of the first halvings double the channels", "SP (stochastic: 3)",
        fields.between(0, 10),
    )  # fmt: skip
    middle_layers: int = setting(
        2, "convolutions in the middle of the U-Net", "SP", fields.at_least(1)
    )
    dropout: float = setting(
        0.1, "share of units dropped outside the middle", "SP (stochastic: 0.15)", fields.below_one
    )
    middle_dropout: float = setting(
        0.5, "share of units dropped in the middle", "SP", fields.below_one
    )
    target_frames: int = setting(
        1,
        "frames of a window that the model predicts",
        "SP (stochastic: 6)",
        fields.frames,
    )
    cutoff: float = setting(
        0.01,
        "cross-entropy of a pixel or a reward without a cost [nats]",
        "SP (stochastic: 0.03)",
        fields.not_negative,
    )
    learning_rate: float = setting(
        1.5,
        "step size of Adafactor after warm-up, relative to the parameters' scale; 'deterministic' "
        "divides it by the square root of the number of updates",
        "SP (stochastic: 0.002)",
        fields.positive,
    )
    warmup: int = setting(
        8000, "updates over which the step size rises", "SP (stochastic: 2000)", fields.at_least(1)
    )


@dataclasses.dataclass(frozen=True)
class DeterministicModelConfig(FrameModelConfig):
    """The world model of pixels alone."""

    pixel_noise: float = setting(
        0.05, "share of input pixels that are set to the median colour", "SP", fields.fraction
    )


@dataclasses.dataclass(frozen=True)
class StochasticModelConfig(FrameModelConfig):
    """The world model with bits."""

    filters: int = with_default(FrameModelConfig, "filters", 96)
    double_steps: int = with_default(FrameModelConfig, "double_steps", 3)
    dropout: float = with_default(FrameModelConfig, "dropout", 0.15)
    target_frames: int = with_default(FrameModelConfig, "target_frames", 6)
    cutoff: float = with_default(FrameModelConfig, "cutoff", 0.03)
    learning_rate: float = with_default(FrameModelConfig, "learning_rate", 0.002)
    warmup: int = with_default(FrameModelConfig, "warmup", 2000)
    state_filters: int = setting(
        64, "channels of the state, which sums up all earlier frames", "SP", fields.at_least(1)
    )
    bits: int = setting(
        128,
        "latent bits a step, which tell what past frames do not; a multiple of 8",
        "SP",
        lambda value: None if value in range(8, 10_001, 8) else "a multiple of 8 up to 10000",
    )
    flip_rate: float = setting(
        0.1, "share of bits that are flipped in training", "SP", fields.fraction
    )
    most_predicted: float = setting(
        0.5,
        "probability in training, at the end of the ramp, that a bit comes from the LSTM instead "
        "of the next frame",
        "SP",
        fields.fraction,
    )
    most_used: float = setting(
        0.8,
        "probability in training, after half the ramp, that a frame receives its bits",
        "SP",
        fields.fraction,
    )
    ramp: int = setting(
        40_000,
        "updates until all bits are discrete, and until the model reads only its own predictions "
        "in training",
        "SP",
        fields.at_least(4),
    )
    predictor_size: int = setting(
        128, "width of the LSTM that predicts bits", "SP", fields.at_least(1)
    )


@dataclasses.dataclass(frozen=True)
class SimpleConfig(AgentConfig):
    """SimPLe: PPO in the real game for data, and in a learned game for the policy."""

    family: ClassVar[str] = "simple"
    learns_from: ClassVar[str] = "real_rollout"
    before_action: ClassVar[bool] = True

    # Environment
    frame_height: int = setting(
        105, "height of a frame [pixels]; half of the console's 210", "SP", fields.between(8, 1000)
    )
    frame_width: int = setting(
        80, "width of a frame [pixels]; half of the console's 160", "SP", fields.between(8, 1000)
    )
    frame_stack: int = setting(4, "frames that policy and model read", "SP", fields.frames)
    most_noops: int = setting(
        32,
        "maximum of random no-ops at the start of a game [emulated frames]; the source takes up to "
        "8 steps of 4 frames",
        "SP",
        fields.between(1, 1000),
    )
    max_episode_steps: int = setting(
        27_000, "agent steps after which a game is cut", "ours", fields.at_least(1)
    )

    # Rounds: of data, model, policy
    rounds: int = setting(
        15,
        "rounds of data, model updates and policy updates; one more round of data follows",
        "SP",
        fields.between(1, 1000),
    )
    round_steps: int = setting(6400, "agent steps of a round's data", "SP", fields.at_least(1))
    model_updates: int = setting(
        15_000, "updates of the model in a round", "SP", fields.at_least(1)
    )
    first_model_factor: int = setting(
        3, "factor of model_updates in the first round", "SP", fields.at_least(1)
    )
    policy_updates: int = setting(
        1000,
        "updates of the policy in a round, each on one batch of rollouts in the model; twice as "
        "many in the fourth-last and eighth-last round, three times as many in the last",
        "SP",
        fields.at_least(1),
    )

    # World model
    model: str = setting(
        "deterministic",
        "world model: 'deterministic' or 'stochastic'",
        "SP (its headline: stochastic)",
        fields.one_of("deterministic", "stochastic"),
    )
    deterministic: DeterministicModelConfig = fields.group(
        DeterministicModelConfig(), fields.when("model", "deterministic")
    )
    stochastic: StochasticModelConfig = fields.group(
        StochasticModelConfig(), fields.when("model", "stochastic")
    )
    model_batch_size: int = setting(
        4, "windows of an update of the model", "SP", fields.at_least(1)
    )
    model_gradient_norm: float = setting(
        1.0, "L2 norm to which the model's gradients are clipped", "SP", fields.positive
    )

    # Policy
    real_rollout: int = setting(
        3200, "agent steps in the real game between updates of the policy", "SP", fields.at_least(2)
    )
    real_agents: int = setting(
        16, "parts of a real rollout, which count as parallel agents", "SP", fields.at_least(1)
    )
    model_rollout: int = setting(50, "steps of a rollout in the model", "SP", fields.at_least(2))
    model_agents: int = setting(
        16, "rollouts in the model for an update of the policy", "SP", fields.at_least(1)
    )
    minibatch_steps: int = setting(
        20, "steps of a minibatch; each step holds all agents", "SP", fields.at_least(1)
    )
    passes: int = setting(
        3, "passes over a rollout, cut to whole minibatches", "SP", fields.at_least(1)
    )
    advantage_lambda: float = setting(
        0.95, "lambda of generalised advantage estimates", "SP", fields.fraction
    )
    ratio_clip: float = setting(
        0.1, "distance from 1 to which ratios of probabilities are clipped", "SP", fields.positive
    )
    entropy_weight: float = setting(0.01, "weight of the entropy", "SP", fields.not_negative)
    policy_learning_rate: float = setting(
        1e-4, "step size of Adam for policy and value", "SP", fields.positive
    )
    adam_b1: float = setting(0.85, "decay of Adam's first moment", "SP", fields.below_one)
    adam_b2: float = setting(0.997, "decay of Adam's second moment", "SP", fields.below_one)
    adam_epsilon: float = setting(
        1e-6,
        "epsilon of Adam, added before the bias correction, as in TensorFlow",
        "SP",
        fields.positive,
    )
    policy_gradient_norm: float = setting(
        0.5, "L2 norm to which the policy's gradients are clipped", "SP", fields.positive
    )

    # Evaluation
    evaluation_period: int = with_default(AgentConfig, "evaluation_period", 6400)
    periodic_episodes: int = with_default(AgentConfig, "periodic_episodes", 32)

    def __post_init__(self) -> None:
        """Checks every value, so that a bad one is reported before anything is built."""
        super().__post_init__()
        if self.round_steps % self.real_rollout:
            raise ValueError(
                f"round_steps: must be a multiple of real_rollout = {self.real_rollout}; "
                f"got {self.round_steps}"
            )
        if self.real_rollout % self.real_agents:
            raise ValueError(
                f"real_rollout: must be a multiple of real_agents = {self.real_agents}; "
                f"got {self.real_rollout}"
            )
        if self.max_episode_steps < self.round_steps:
            raise ValueError(
                f"max_episode_steps: must be at least round_steps = {self.round_steps}; "
                f"got {self.max_episode_steps}"
            )
        shortest = self.frame_stack + self.world.target_frames
        # Ten elevenths of a round's frames (`replay/sequences.py`), one final frame included.
        if (learned := (self.round_steps + 1) // 11 * 10) < shortest:
            raise ValueError(
                f"round_steps: the model learns from {learned} frames of a round of "
                f"{self.round_steps} steps; a window needs {shortest}"
            )
        for name, steps in (
            ("real_rollout", self.real_rollout // self.real_agents),
            ("model_rollout", self.model_rollout),
        ):
            if (steps - 1) * self.passes < self.minibatch_steps:
                raise ValueError(
                    f"{name}: {self.passes} passes over {steps - 1} steps must hold a minibatch of "
                    f"{self.minibatch_steps}"
                )
        if self.world.double_steps > self.world.compress_steps:
            raise ValueError(
                f"{self.model}.double_steps: must be at most compress_steps = "
                f"{self.world.compress_steps}; got {self.world.double_steps}"
            )

    @property
    def world(self) -> FrameModelConfig:
        """The world model in use."""
        return self.stochastic if self.model == "stochastic" else self.deterministic

    @property
    def frame_shape(self) -> tuple[int, int, int]:
        """Height, width and colours of a frame."""
        return self.frame_height, self.frame_width, 3

    @property
    def total_steps(self) -> int:
        """Agent steps of a whole run."""
        return (self.rounds + 1) * self.round_steps

    @property
    def most_steps(self) -> int:
        """See `AgentConfig.most_steps`."""
        return self.total_steps

    def first_update(self, action_repeat: int) -> int:
        """See `AgentConfig.first_update`."""
        return self.real_rollout

    def updates_of_round(self, number: int) -> tuple[int, int]:
        """Updates in round `number`, from 0 on: of the model, and of the policy in the model."""
        left = self.rounds - 1 - number
        factor = {0: 3, 3: 2, 7: 2}.get(left, 1)
        first = self.first_model_factor if number == 0 else 1
        return first * self.model_updates, factor * self.policy_updates
