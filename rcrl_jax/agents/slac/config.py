"""The configuration of SLAC."""

import dataclasses
from typing import ClassVar

from rcrl_jax.config import base, fields
from rcrl_jax.config.fields import setting, with_default
from rcrl_jax.config.world_models import WorldModelConfig


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
        1, "environment steps between updates; at least one agent step", "SL", fields.at_least(1)
    )
    updates: int = setting(1, "updates of a series", "SL", fields.at_least(1))
    periodic_episodes: int = with_default(base.AgentConfig, "periodic_episodes", 10)

    # Network
    filters: int = setting(
        32, "channels of the first convolution; further ones: 2, 4, 8 and 8 times as many", "SL",
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
        "steps of a window, which has one frame more",
        "SL",
        fields.between(1, 99),
    )
    model_batch_size: int = setting(
        32, "windows of the batch that the model learns from", "SL", fields.at_least(1)
    )
    pretraining_updates: int = setting(
        100_000, "first updates, which train only the model", "SL", fields.at_least(0)
    )
    learning_rate: float = setting(
        3e-4, "step size of Adam for actor, critics and log alpha", "SL", fields.positive
    )
    model_learning_rate: float = setting(
        1e-4, "step size of Adam for the model", "SL", fields.positive
    )
    adam_epsilon: float = setting(
        1e-8,
        "epsilon of Adam, added before the bias correction, as in TensorFlow",
        "SL",
        fields.positive,
    )
    initial_temperature: float = setting(
        1.0, "initial alpha, the weight of the entropy", "SL", fields.positive
    )
    critic_tau: float = setting(
        0.005, "tau in target += tau * (critic - target), for the critics", "SL", fields.fraction
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
