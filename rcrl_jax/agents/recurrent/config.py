"""The configurations of Dreamer and PlaNet."""

import dataclasses
from typing import ClassVar

from rcrl_jax.config import base, fields
from rcrl_jax.config.base import UniformReplayConfig
from rcrl_jax.config.fields import setting, with_default
from rcrl_jax.config.world_models import WorldModelConfig


@dataclasses.dataclass(frozen=True)
class RecurrentModelConfig(WorldModelConfig):
    """The recurrent state-space model that Dreamer and PlaNet share."""

    cell: ClassVar[str] = "block"  # fixed here, a field in Dreamer's configuration
    free_nats_of: ClassVar[str] = "step"  # likewise

    # Network
    filters: int = setting(
        32, "channels of the first convolution; each further one doubles them", "DR / PL",
        fields.at_least(1),
    )  # fmt: skip
    deter_size: int = setting(
        200, "width of the deterministic state", "DR / PL", fields.at_least(1)
    )
    stoch_size: int = setting(30, "width of the stochastic state", "DR / PL", fields.at_least(1))
    hidden_size: int = setting(
        200, "units of the dense layers around the GRU", "DR / PL", fields.at_least(1)
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
        "frames that the model filters to represent a state-action pair, for auxiliary tasks and "
        "measurements",
        "ours",
        fields.frames,
    )

    # Learning
    sequence_length: int = setting(50, "frames of a window", "DR / PL", fields.between(2, 100))
    free_nats: float = setting(
        3.0, "KL divergence without a cost [nats]", "DR / PL", fields.not_negative
    )
    model_learning_rate: float = setting(
        6e-4, "step size of Adam for the model", "DR (PlaNet's code: 1e-3)", fields.positive
    )
    adam_epsilon: float = setting(
        1e-4,
        "epsilon of Adam, added before the bias correction, as in TensorFlow",
        "DR / PL (danijar/dreamer: 1e-7)",
        fields.positive,
    )
    max_gradient_norm: float = setting(
        100.0, "L2 norm to which gradients are clipped", "DR (PlaNet's code: 1000)", fields.positive
    )
    exploration_std: float = setting(
        0.3,
        "standard deviation of the noise on training actions",
        "DR / PL",
        fields.not_negative,
    )
    first_updates: int = setting(
        100,
        "updates of the first series",
        "ours (as danijar/dreamer; DR and PlaNet's code: 101)",
        fields.at_least(1),
    )
    replay: UniformReplayConfig = UniformReplayConfig(capacity=251_000)

    def __post_init__(self) -> None:
        """Checks every value, so that a bad one is reported before anything is built."""
        super().__post_init__()
        if "return_contrast" in self.auxiliary and self.return_contrast.anchors == "rl_batch":
            raise ValueError(
                "return_contrast.anchors: 'rl_batch' needs an agent that learns from transitions, "
                "this one learns from windows; choose 'as_transitions' or 'uniform'"
            )

    @property
    def window_frames(self) -> int:
        """See `WorldModelConfig.window_frames`."""
        return self.sequence_length

    @property
    def frames_before_window(self) -> int:
        """For the context of the first frame; see `WorldModelConfig.frames_before_window`."""
        return self.context - 1


@dataclasses.dataclass(frozen=True)
class DreamerConfig(RecurrentModelConfig):
    """Dreamer, its first version."""

    family: ClassVar[str] = "dreamer"
    cell: str = setting(
        "block",
        "the GRU: 'block' (the reset gate acts before the recurrent product) or 'keras' (the reset "
        "gate acts after the product, and one layer instead of two yields means and deviations of "
        "a latent)",
        "DR (danijar/dreamer: 'keras')",
        fields.one_of("block", "keras"),
    )
    free_nats_of: str = setting(
        "step",
        "how free_nats apply: 'step' (each step's divergence costs only what exceeds free_nats) or "
        "'mean' (the mean divergence of a batch costs nothing below free_nats)",
        "DR (danijar/dreamer: 'mean')",
        fields.one_of("step", "mean"),
    )
    pixel_noise: bool = setting(
        True,
        "whether uniform noise of up to 1/256 is added to pixels in [0, 255/256]; without noise, "
        "pixels lie in [0, 1]",
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
        5.0, "initial standard deviation of the policy before the tanh", "DR", fields.positive
    )
    mean_scale: float = setting(
        5.0, "bound of the policy's means before the tanh", "DR", fields.positive
    )
    mode_samples: int = setting(
        100,
        "actions that evaluation samples, to take the one with the highest density",
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
    iterations: int = setting(10, "iterations of the planner", "PL", fields.at_least(1))
    candidates: int = setting(
        1000, "sequences that the planner draws in an iteration", "PL", fields.at_least(1)
    )
    best_candidates: int = setting(
        100, "best sequences, to which the planner fits its next normal", "PL", fields.at_least(1)
    )

    def __post_init__(self) -> None:
        """Checks every value, so that a bad one is reported before anything is built."""
        super().__post_init__()
        if self.best_candidates > self.candidates:
            raise ValueError(
                f"best_candidates: must be at most candidates = {self.candidates}; "
                f"got {self.best_candidates}"
            )
