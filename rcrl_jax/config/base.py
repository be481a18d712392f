"""What the configurations of all agent families share: fields, facts, groups of fields, checks."""

import dataclasses
from collections.abc import Collection
from typing import Any, ClassVar

from rcrl_jax.config import choices, fields
from rcrl_jax.config.fields import setting

EPISODE = 1000
"""Environment steps of every episode of DMControl."""


@dataclasses.dataclass(frozen=True)
class AgentConfig:
    """Fields and facts that every family has.

    Raises:
        ValueError: when a value lies outside its range; the message begins with the field's name.
    """

    family: ClassVar[str]  # as in `choices.TASKS`
    observation: ClassVar[str] = "pixels"  # a field of SAC
    auxiliary: ClassVar[tuple[str, ...]] = ()  # a field of the families that take tasks
    auxiliary_weight: ClassVar[float] = 1.0  # likewise
    needs_large_blocks: ClassVar[bool] = True  # whether an update on the CPU has arrays over 64 MB
    learns_from: ClassVar[str] = "learn_start"  # the field that says when the first update is due
    before_action: ClassVar[bool] = False  # as in `Schedule`
    most_steps: ClassVar[int | None] = None  # agent steps of all rounds; None: without rounds

    precision: str = fields.precision()
    discount: float = setting(
        0.99, "discount of one agent step", "K / CURL / DR / SL / SP", fields.fraction
    )
    evaluation_period: int = setting(
        10_000,
        "environment steps between evaluations (on Atari: agent steps)",
        "K / CURL / DR / PL / SL / SP",
        fields.at_least(1),
    )
    periodic_episodes: int = setting(
        10,
        "episodes of an evaluation during training",
        "K / CURL / SL / SP (DR, PL: 1)",
        fields.between(1, 10_000),
    )

    def __post_init__(self) -> None:
        """Checks every value, so that a bad one is reported before anything is built."""
        fields.check_fields(self)
        values = {"observation": self.observation, **fields.values(self)}
        for task in self.auxiliary:
            if self.family not in choices.TASKS[task].families:
                raise ValueError(f"auxiliary: {self.family} has no task {task!r}")
            for name, wanted in choices.TASKS[task].needs.items():
                if name in values and values[name] not in wanted:
                    if name not in fields.values(self):  # `observation`, which the encoder decides
                        raise ValueError(
                            f"auxiliary: {task!r} reads images, this agent reads vectors"
                        )
                    raise ValueError(
                        f"auxiliary: {task!r} needs {name} to be one of {', '.join(wanted)}"
                    )

    @property
    def tasks_in_use(self) -> tuple[str, ...]:
        """The auxiliary tasks whose weight is not zero.

        A task of weight 0 is left out of sampling, storage and update, so that results equal, bit
        for bit, those of the preset without it. A task's group of fields may hold a weight, too.
        """
        values = fields.values(self)
        return tuple(
            task
            for task in self.auxiliary
            if self.auxiliary_weight * values.get(f"{task}.weight", 1.0) > 0
        )

    def first_update(self, action_repeat: int) -> int:
        """Agent steps before the first update, of `action_repeat` environment steps each."""
        del action_repeat
        return -(-self.learn_start // self.update_period) * self.update_period

    def check_game(self, games: Collection[str], action_repeat: int) -> None:
        """Raises ValueError if the configuration does not fit a benchmark's games or episodes."""


@dataclasses.dataclass(frozen=True)
class ReturnContrastConfig:
    """The return-contrastive task."""

    batch_size: int = setting(
        64, "anchors of an update [pairs]", "RCRL appendix C.1", fields.at_least(1)
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
        256, "units of each hidden layer of the discriminator", "ours", fields.at_least(1)
    )
    discriminator_layers: int = setting(
        1, "number of hidden layers of the discriminator", "ours", fields.between(1, 100)
    )
    anchors: str = setting(
        "as_transitions",
        "where anchors come from: 'as_transitions' (a second draw with the same priorities), "
        "'uniform' (any live transition) or 'rl_batch' (the transitions of the RL loss; "
        "return_contrast.batch_size must equal batch_size)",
        "RCRL appendix C.1",
        fields.one_of("as_transitions", "uniform", "rl_batch"),
    )
    positives: str = setting(
        "segment",
        "where positives come from: 'segment' (the anchor's segment) or 'equal_return' (any live "
        "transition whose return differs from the anchor's by at most the segment threshold; if 32 "
        "draws find none, the anchor's segment); returns count to the end of the episode or, "
        "before that, to the present",
        "RCRL section 4.3",
        fields.one_of("segment", "equal_return"),
    )
    positive_excludes_anchor: bool = setting(
        False, "whether an anchor is its own positive only if no other pair qualifies", "ours"
    )
    negative_differs_in_return: bool = setting(
        False,
        "whether the return of a negative must differ from the anchor's by more than the segment "
        "threshold; if 16 draws find no such negative, the last draw is taken",
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


_CURL = fields.above_zero("curl.weight")
_PRIORITISED = fields.above_zero("replay.priority_exponent")
_REDUCED = fields.UsedIf(
    lambda values: values.get("curl.reduced_games") != (), "curl.reduced_games names a game"
)


@dataclasses.dataclass(frozen=True)
class CurlConfig:
    """CURL's contrastive loss for Rainbow."""

    weight: float = setting(
        1.0, "weight of CURL's loss, multiplied by auxiliary_weight", "C", fields.not_negative
    )
    reduced_weight: float = setting(
        0.01,
        "additional factor of CURL's loss on curl.reduced_games (0.05 in CURL's paper)",
        "C",
        fields.not_negative,
        _CURL & _REDUCED,
    )
    reduced_games: tuple[str, ...] = setting(
        ("Pong", "Boxing", "PrivateEye", "Freeway"),
        "games with the factor curl.reduced_weight",
        "C",
        fields.names,
        _CURL,
    )
    momentum: float = setting(
        0.999, "share of the momentum network that each update keeps", "C", fields.fraction, _CURL
    )
    hidden_size: int = setting(
        256, "units of the projection's hidden layer", "C", fields.at_least(1), _CURL
    )
    projection_size: int = setting(128, "width of the projection", "C", fields.at_least(1), _CURL)
    logit_scale: float = setting(0.1, "factor of the bilinear logits", "C", fields.positive, _CURL)
    importance_weighted: bool = setting(
        True,
        "whether CURL's loss is multiplied by the batch's mean importance weight",
        "C",
        used_if=_CURL & _PRIORITISED,
    )
    in_priorities: bool = setting(
        True, "whether priorities count CURL's loss, too", "C", used_if=_CURL & _PRIORITISED
    )


@dataclasses.dataclass(frozen=True)
class PrioritisedReplayConfig:
    """A replay that samples in proportion to priorities."""

    capacity: int = setting(
        100_000,
        "frames that a run's replay holds: one a transition, and one more a truncated episode",
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
        used_if=_PRIORITISED,
    )


@dataclasses.dataclass(frozen=True)
class UniformReplayConfig:
    """A replay that samples uniformly."""

    capacity: int = setting(
        100_000,
        "frames that a run's replay holds: one a transition, and one more a truncated episode",
        "CURL / SL / ours (Dreamer and PlaNet)",
        fields.at_least(1),
    )
    resumed_frames: str = setting(
        "stored",
        "where a resumed run that learns from pixels gets old frames: 'stored' (from a compressed "
        "file) or 'rendered' (again)",
        "ours",
        fields.one_of("stored", "rendered"),
        fields.UsedIf(
            lambda values: values.get("observation") != "state", "observation is 'pixels'"
        ),
    )


DRAWS_SAMPLES = fields.UsedIf(
    lambda values: any(
        task in choices.TASKS and choices.TASKS[task].draws_samples
        for task in values.get("auxiliary", ())
    ),
    "auxiliary holds a task that draws samples ('return_contrast')",
) & fields.above_zero("auxiliary_weight")
"""When the fields of `ReturnContrastConfig` have an effect."""


def auxiliary_tasks(family: str, loss: str) -> Any:
    """The field `auxiliary` of a family; `loss` names the loss to which tasks are added."""
    known = [repr(name) for name, task in choices.TASKS.items() if family in task.families]
    meaning = f"auxiliary tasks added to {loss}: {', '.join(known)}"
    return setting((), meaning, "RCRL section 4.3 / C / CURL / AE", fields.some_of(choices.TASKS))


def auxiliary_weight() -> Any:
    """The field `auxiliary_weight` of the families that take tasks."""
    meaning = "weight of every auxiliary loss; 0 leaves the tasks out"
    has_tasks = fields.UsedIf(
        lambda values: values.get("auxiliary", ()) != (), "auxiliary names a task"
    )
    return setting(1.0, meaning, "RCRL appendix C.1", fields.not_negative, has_tasks)


def check_run(
    config: AgentConfig, agent_steps: int, games: Collection[str], action_repeat: int = 1
) -> None:
    """Checks what a run needs besides a valid configuration.

    Args:
        config: of any family.
        agent_steps: to train for.
        games: all games or tasks of the benchmark; empty for a user's own game.
        action_repeat: environment steps of an agent step.

    Raises:
        ValueError: training ends before the first update, or after the last round of an agent that
            has rounds; CURL's reduced games are unknown; or a world model's windows do not fit the
            episodes.
    """
    config.check_game(games, action_repeat)
    first_update = config.first_update(action_repeat)
    # Agents that learn before they act also update after the last step.
    if agent_steps < first_update + (not config.before_action):
        raise ValueError(
            f"steps: {agent_steps} agent steps end before the first update, which comes after "
            f"{first_update}; raise steps or lower {config.learns_from}"
        )
    if config.most_steps is not None and agent_steps > config.most_steps:
        raise ValueError(
            f"steps: {agent_steps} agent steps are more than the {config.most_steps} of all "
            "rounds; lower steps or raise rounds"
        )


def check_anchors(contrast: ReturnContrastConfig, batch_size: int) -> None:
    """Raises ValueError if the anchors are the RL batch but the two batch sizes differ."""
    if contrast.anchors == "rl_batch" and contrast.batch_size != batch_size:
        raise ValueError(
            "return_contrast.anchors: 'rl_batch' needs return_contrast.batch_size = batch_size, "
            f"got return_contrast.batch_size = {contrast.batch_size} and batch_size = {batch_size}"
        )


def check_capacity(config: Any, n_step: int) -> None:
    """Checks that a replay has room for two windows with their stacks, and for each batch.

    Args:
        config: of an agent family.
        n_step: length of a window.

    Raises:
        ValueError: the capacity is too small, or smaller than a batch.
    """
    capacity, least = config.replay.capacity, 2 * (n_step + config.frame_stack)
    if capacity < least:
        raise ValueError(
            f"replay.capacity: must be at least {least}, for two windows with their stacks; "
            f"got {capacity}"
        )
    check_batches(config)


def check_batches(config: Any) -> None:
    """Raises ValueError if a replay has no room for a batch of the agent or of one of its tasks."""
    capacity, values = config.replay.capacity, fields.values(config)
    for name in ("batch_size", *(f"{task}.batch_size" for task in config.auxiliary)):
        if (size := values.get(name, 0)) > capacity:
            raise ValueError(f"{name}: must be at most replay.capacity = {capacity}; got {size}")
