"""What the configurations of all agent families have."""

import dataclasses
from collections.abc import Collection
from typing import Any, ClassVar

from rcrl_jax.config import choices, fields
from rcrl_jax.config.fields import setting


@dataclasses.dataclass(frozen=True)
class AgentConfig:
    """Fields and facts of every family.

    Raises:
        ValueError: when a value lies outside its range; the message begins with the field's name.
    """

    family: ClassVar[str]  # as in `choices.TASKS`
    observation: ClassVar[str] = "pixels"  # a field of SAC
    auxiliary: ClassVar[tuple[str, ...]] = ()  # a field of the families that take tasks
    auxiliary_weight: ClassVar[float] = 1.0  # likewise
    needs_large_blocks: ClassVar[bool] = True  # whether an update on the CPU has arrays over 64 MB
    learns_from: ClassVar[str] = "learn_start"  # the field of the first update's step
    before_action: ClassVar[bool] = False  # as of `Schedule`
    most_steps: ClassVar[int | None] = None  # agent steps that all rounds take

    precision: str = fields.precision()
    discount: float = setting(
        0.99, "discount of one agent step", "K / CURL / DR / SL / SP", fields.fraction
    )
    evaluation_period: int = setting(
        10_000,
        "environment steps between evaluations; on Atari agent steps",
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
        """Agent steps before the first update; environments repeat each action that often."""
        del action_repeat
        return -(-self.learn_start // self.update_period) * self.update_period

    def check_game(self, games: Collection[str], action_repeat: int) -> None:
        """Raises ValueError if the configuration does not fit a benchmark's games or episodes."""


def auxiliary_tasks(family: str, loss: str) -> Any:
    """The field `auxiliary` of a family; `loss` is the one to which tasks are added."""
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
    """Checks what a run needs beside a valid configuration.

    Args:
        config: of any family.
        agent_steps: to train for.
        games: all games or tasks of the benchmark; none where games are a user's.
        action_repeat: environment steps of an agent step.

    Raises:
        ValueError: training ends before the first update, or after the last round of an agent that
            has rounds; CURL's reduced games are unknown; or a world model's windows do not fit the
            episodes.
    """
    config.check_game(games, action_repeat)
    first_update = config.first_update(action_repeat)
    if agent_steps < first_update + (not config.before_action):  # else the last step updates
        raise ValueError(
            f"--steps: {agent_steps} agent steps end before the first update, which comes after "
            f"{first_update}; raise --steps or lower --config.{config.learns_from}"
        )
    if config.most_steps is not None and agent_steps > config.most_steps:
        raise ValueError(
            f"--steps: {agent_steps} agent steps are more than the {config.most_steps} of all "
            "rounds; lower --steps or raise --config.rounds"
        )
