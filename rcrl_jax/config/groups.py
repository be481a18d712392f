"""Groups of fields that agent families share."""

import dataclasses
from typing import Any

from rcrl_jax.config import fields
from rcrl_jax.config.choices import TASKS
from rcrl_jax.config.fields import setting


@dataclasses.dataclass(frozen=True)
class ReturnContrastConfig:
    """The return-contrastive task."""

    batch_size: int = setting(
        64, "anchors in an update [pairs]", "RCRL appendix C.1", fields.at_least(1)
    )
    loss: str = setting(
        "squared_error",
        "loss on the discriminator's output: 'squared_error' or 'cross_entropy'",
        "RCRL equation 1",
        fields.one_of("squared_error", "cross_entropy"),
    )
    discriminator_input: str = setting(
        "difference_product",
        "how the discriminator reads two embeddings: 'concatenation' or 'difference_product' "
        "(|x - y| and x * y; symmetric)",
        "ours",
        fields.one_of("concatenation", "difference_product"),
    )
    discriminator_hidden: int = setting(
        256, "units of each of the discriminator's hidden layers", "ours", fields.at_least(1)
    )
    discriminator_layers: int = setting(
        1, "the discriminator's hidden layers", "ours", fields.between(1, 100)
    )
    anchors: str = setting(
        "as_transitions",
        "where anchors come from: 'as_transitions' (a second draw with the same priorities), "
        "'uniform' (any live transition) or 'rl_batch' (the transitions of the RL loss "
        "themselves; return_contrast.batch_size must equal batch_size)",
        "RCRL appendix C.1",
        fields.one_of("as_transitions", "uniform", "rl_batch"),
    )
    positives: str = setting(
        "segment",
        "where positives come from: 'segment' (the anchor's) or 'equal_return' (any live "
        "transition whose return, to the end of its episode or to the present, is within the "
        "segment's threshold of the anchor's; if 32 draws find none, one of the anchor's segment)",
        "RCRL section 4.3",
        fields.one_of("segment", "equal_return"),
    )
    positive_excludes_anchor: bool = setting(
        False, "a positive differs from its anchor wherever the segment has another pair", "ours"
    )
    negative_differs_in_return: bool = setting(
        False,
        "a negative's return, to the end of its episode or to the present, differs from the "
        "anchor's by more than the segment's threshold; if 16 draws find none, the last is taken",
        "ours",
    )


@dataclasses.dataclass(frozen=True)
class ControlReturnContrastConfig(ReturnContrastConfig):
    """The return-contrastive task where rewards are dense, as on DMControl."""

    discriminator_input: str = fields.with_default(
        ReturnContrastConfig, "discriminator_input", "concatenation"
    )
    segment_threshold: float = setting(
        1.0,
        "a segment ends once the reward accumulated in it exceeds this",
        "RCRL appendix C.2",
        fields.positive,
        measures=True,
    )
    segment_reward: str = setting(
        "sum",
        "how segments count the reward of an agent step: 'sum' or 'mean' over its action repeat",
        "ours",
        fields.one_of("sum", "mean"),
        measures=True,
    )


@dataclasses.dataclass(frozen=True)
class CurlConfig:
    """CURL's contrastive loss for Rainbow."""

    weight: float = setting(
        1.0, "weight of CURL's loss, multiplied by auxiliary_weight", "C", fields.not_negative
    )
    reduced_weight: float = setting(
        0.01,
        "further factor of CURL's loss on curl.reduced_games (0.05 in its paper)",
        "C",
        fields.not_negative,
    )
    reduced_games: tuple[str, ...] = setting(
        ("Pong", "Boxing", "PrivateEye", "Freeway"),
        "games with the further factor",
        "C",
        fields.names,
    )
    momentum: float = setting(
        0.999, "share of the momentum network that an update keeps", "C", fields.fraction
    )
    hidden_size: int = setting(
        256, "units of the projection's hidden layer", "C", fields.at_least(1)
    )
    projection_size: int = setting(128, "width of the projection", "C", fields.at_least(1))
    logit_scale: float = setting(0.1, "factor of the bilinear logits", "C", fields.positive)
    importance_weighted: bool = setting(
        True, "CURL's loss is multiplied by the mean importance weight of the batch", "C"
    )
    in_priorities: bool = setting(
        True, "CURL's loss is added to the cross-entropy from which priorities are computed", "C"
    )


@dataclasses.dataclass(frozen=True)
class PrioritisedReplayConfig:
    """A replay that samples in proportion to priorities."""

    capacity: int = setting(
        100_000,
        "slots of one run's replay: one a transition or final frame; frame_stack - 1 are lost",
        "K",
        fields.at_least(1),
    )
    priority_exponent: float = setting(
        0.5, "priority = cross-entropy ** exponent", "K", fields.fraction
    )
    importance_exponent: float = setting(
        0.4,
        "initial importance-weight exponent; it rises linearly to 1 at the last step",
        "K",
        fields.fraction,
        used_if=fields.UsedIf(
            lambda values: values["replay.priority_exponent"] > 0,
            "replay.priority_exponent is above 0",
        ),
    )


@dataclasses.dataclass(frozen=True)
class UniformReplayConfig:
    """A replay that samples uniformly."""

    capacity: int = setting(
        100_000,
        "slots of one run's replay: one a transition, final frame or frame of a world model; "
        "an agent that acts on stacks loses one fewer than the frames of a stack",
        "CURL / SL / ours (Dreamer and PlaNet)",
        fields.at_least(1),
    )
    resumed_frames: str = setting(
        "stored",
        "where a resumed run from pixels takes its frames from: 'stored' (on the disk, "
        "compressed) or 'rendered' (again)",
        "ours",
        fields.one_of("stored", "rendered"),
    )


DRAWS_SAMPLES = fields.UsedIf(
    lambda values: any(
        task in TASKS and TASKS[task].draws_samples for task in values.get("auxiliary", ())
    ),
    "auxiliary holds a task that draws samples, as 'return_contrast'",
)
"""When the fields of `ReturnContrastConfig` act."""


def check_anchors(contrast: ReturnContrastConfig, batch_size: int) -> None:
    """Raises ValueError if the anchors are the RL batch but the two batch sizes differ."""
    if contrast.anchors == "rl_batch" and contrast.batch_size != batch_size:
        raise ValueError(
            "return_contrast.anchors: 'rl_batch' needs return_contrast.batch_size = batch_size, "
            f"got return_contrast.batch_size = {contrast.batch_size} and batch_size = {batch_size}"
        )


def check_capacity(config: Any, n_step: int) -> None:
    """Checks that a replay has room for two windows with their stacks, and for every batch.

    Args:
        config: of an agent family.
        n_step: length of a window.

    Raises:
        ValueError: the capacity is too small, or a batch is larger than it.
    """
    capacity, least = config.replay.capacity, 2 * (n_step + config.frame_stack)
    if capacity < least:
        raise ValueError(
            f"replay.capacity: must be at least {least}, for two windows with their stacks; "
            f"got {capacity}"
        )
    values = fields.values(config)
    for name in ("batch_size", *(f"{task}.batch_size" for task in config.auxiliary)):
        if (size := values.get(name, 0)) > capacity:
            raise ValueError(f"{name}: must be at most replay.capacity = {capacity}; got {size}")
