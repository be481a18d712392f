"""The configuration of soft actor-critic, as trained on DMControl."""

import dataclasses
from typing import ClassVar

from rcrl_jax.config import base, fields
from rcrl_jax.config.fields import setting

_OF_PIXELS = fields.when("observation", "pixels")
_DECODED = fields.with_task("reconstruction")
_SMALLEST_CROP = 15  # pixels that four convolutions need
_LARGEST_FRAME = 480  # pixels; height of the simulator's frame buffer


@dataclasses.dataclass(frozen=True)
class SacConfig(base.AgentConfig):
    """SAC from pixels or from the state vector, with optional auxiliary tasks."""

    family: ClassVar[str] = "sac"
    action_repeat: ClassVar[int] = 0  # 0: the task's value; world models have a field instead

    # Observation
    observation: str = setting(
        "pixels",
        "what the agent sees: 'pixels' or the 'state' vector",
        "CURL / RCRL section 5.1",
        fields.one_of("pixels", "state"),
    )
    frame_stack: int = setting(3, "frames of an observation", "CURL", fields.frames)
    render_size: int = setting(
        100,
        "height and width of a rendered frame [pixels]",
        "CURL",
        fields.between(_SMALLEST_CROP, _LARGEST_FRAME),
        _OF_PIXELS,
    )
    crop_size: int = setting(
        84,
        "height and width of the crops that the network reads [pixels]",
        "CURL",
        fields.at_least(_SMALLEST_CROP),
        _OF_PIXELS,
    )
    augmentation: str = setting(
        "random_crop",
        "how an update crops every observation: 'random_crop' or 'center_crop'",
        "CURL",
        fields.one_of("random_crop", "center_crop"),
        _OF_PIXELS,
    )

    # Network
    filters: int = setting(
        32, "channels of each of the four convolutions", "CURL", fields.at_least(1), _OF_PIXELS
    )
    embedding_size: int = setting(
        50, "width of psi(s)", "CURL / RCRL appendix C.2", fields.at_least(1), _OF_PIXELS
    )
    hidden_size: int = setting(
        1024, "units of each hidden layer of actor and critics", "CURL", fields.at_least(1)
    )
    log_std_min: float = setting(
        -10.0, "lower bound of the policy's log sigma", "CURL", fields.finite
    )
    log_std_max: float = setting(
        2.0, "upper bound of the policy's log sigma", "CURL", fields.finite
    )
    precision: str = fields.precision(
        ", which accelerators also use to store the outputs of convolutions"
    )

    # Auxiliary tasks
    auxiliary: tuple[str, ...] = base.auxiliary_tasks("sac", "the critic's loss")
    auxiliary_weight: float = base.auxiliary_weight()
    return_contrast: base.ControlReturnContrastConfig = fields.group(
        base.ControlReturnContrastConfig(), base.DRAWS_SAMPLES
    )
    latent_penalty: float = setting(
        1e-6,
        "weight of |psi(s)|^2 / 2 in the reconstruction loss",
        "AE",
        fields.not_negative,
        _DECODED,
    )
    decoder_weight_decay: float = setting(
        1e-7, "weight decay of the decoder", "AE", fields.not_negative, _DECODED
    )

    # Learning
    batch_size: int = setting(
        512, "transitions of an update", "CURL (its code: 32 or 128)", fields.at_least(1)
    )
    learning_rate: float = setting(
        1e-3,
        "step size of Adam for actor, critic and auxiliary tasks; 2e-4 on cheetah_run",
        "CURL",
        fields.positive,
    )
    temperature_learning_rate: float = setting(
        1e-4, "step size of Adam for log alpha", "CURL", fields.positive
    )
    temperature_beta1: float = setting(
        0.5, "decay of Adam's first moment for log alpha", "CURL", fields.below_one
    )
    initial_temperature: float = setting(
        0.1, "initial alpha, the weight of the entropy", "CURL", fields.positive
    )
    actor_period: int = setting(
        2, "updates between steps of actor and temperature", "CURL", fields.at_least(1)
    )
    target_period: int = setting(
        2, "updates between steps of the target networks", "CURL", fields.at_least(1)
    )
    critic_tau: float = setting(
        0.01, "tau in target += tau * (critic - target), for the critics", "CURL", fields.fraction
    )
    encoder_tau: float = setting(
        0.05, "tau in target += tau * (encoder - target), for the encoder", "CURL", fields.fraction
    )
    learn_start: int = setting(
        1000,
        "agent steps with random actions before the first update; at least 3, so that there is a "
        "transition to sample",
        "CURL",
        fields.at_least(3),
    )
    update_period: int = setting(1, "agent steps between updates", "CURL", fields.at_least(1))
    replay: base.UniformReplayConfig = base.UniformReplayConfig()

    def __post_init__(self) -> None:
        """Checks every value, so that a bad one is reported before anything is built."""
        super().__post_init__()
        if not self.log_std_min < self.log_std_max:
            raise ValueError(
                f"log_std_min: must be below log_std_max = {self.log_std_max}; "
                f"got {self.log_std_min}"
            )
        if self.crop_size > self.render_size:
            raise ValueError(
                f"crop_size: must be at most render_size = {self.render_size}; got {self.crop_size}"
            )
        if "curl" in self.auxiliary and self.crop_size == self.render_size:
            raise ValueError(
                "crop_size: 'curl' compares crops at random places, so crop_size must be below "
                f"render_size = {self.render_size}; got {self.crop_size}"
            )
        base.check_anchors(self.return_contrast, self.batch_size)
        base.check_capacity(self, n_step=1)

    @property
    def needs_large_blocks(self) -> bool:
        """Whether an update on the CPU allocates arrays above 64 MB."""
        return self.observation == "pixels"
