"""Configurations: one frozen dataclass an agent family, one named instance a row of the paper.

Every field carries its meaning, its unit and its source, because `--help` prints them. Sources:

    K    github.com/Kaixhin/Rainbow, the codebase RCRL builds on, with its data-efficient flags
    RCRL Liu et al., "Return-Based Contrastive Representation Learning for RL", ICLR 2021
    ours not stated anywhere; the reason stands in docs/decisions.md
"""

import dataclasses
from typing import Any


def setting(default: Any, meaning: str, source: str) -> Any:
    """A dataclass field with its one-line `meaning` (unit included) and its `source`."""
    return dataclasses.field(default=default, metadata={"meaning": meaning, "source": source})


@dataclasses.dataclass(frozen=True)
class RainbowConfig:
    """Data-efficient C51 Rainbow with optional auxiliary tasks, as trained on Atari-100k.

    Raises:
        ValueError: when a value lies outside its range; the message names the field.
    """

    # Network
    head: str = setting(
        "state",
        "what the advantage stream reads: 'state' (psi(s), all actions at once) or "
        "'state_action' (phi(s,a) = psi(s) * e_a, one action at a time)",
        "K / RCRL appendix C.1",
    )
    hidden_size: int = setting(256, "units of each dueling stream's hidden layer", "K")
    num_atoms: int = setting(51, "atoms of the return distribution", "K")
    v_max: float = setting(
        10.0, "largest atom; the smallest is its negative [clipped reward]", "K"
    )
    noisy_sigma: float = setting(0.1, "initial scale of the noisy layers", "K")

    # Auxiliary tasks
    auxiliary: tuple[str, ...] = setting(
        (), "auxiliary tasks added to the RL loss: 'return_contrast'", "RCRL section 4.3"
    )
    auxiliary_weight: float = setting(1.0, "weight of every auxiliary loss", "RCRL appendix C.1")
    contrast_batch_size: int = setting(64, "anchors in an update [pairs]", "RCRL appendix C.1")
    discriminator_hidden: int = setting(256, "units of the discriminator's hidden layer", "ours")

    precision: str = setting(
        "tf32",
        "inputs of matrix products: 'float32', 'tf32' (10 bits of mantissa) or 'bfloat16' (7); "
        "parameters and sums are float32; a CPU computes every choice in float32",
        "ours",
    )

    # Learning
    batch_size: int = setting(32, "transitions in an update", "K")
    learning_rate: float = setting(1e-4, "step size of Adam", "K")
    adam_eps: float = setting(1.5e-4, "epsilon of Adam", "K")
    max_gradient_norm: float = setting(
        10.0, "global L2 norm at which the joint gradient is clipped", "K"
    )
    discount: float = setting(0.99, "discount of one agent step", "K")
    n_step: int = setting(20, "length of the multi-step return [agent steps]", "K")
    target_period: int = setting(2000, "updates between copies to the target network", "K")
    learn_start: int = setting(1600, "agent steps before the first update", "K")
    update_period: int = setting(1, "agent steps between updates", "K")

    # Replay
    replay_capacity: int = setting(100_000, "transitions kept in one run's replay", "K")
    priority_exponent: float = setting(0.5, "priority = cross-entropy ** exponent", "K")
    importance_exponent: float = setting(
        0.4, "initial importance-weight exponent; it rises linearly to 1 at the last step", "K"
    )

    # Environment protocol
    frame_stack: int = setting(4, "frames in an observation", "K")
    max_episode_steps: int = setting(27_000, "frame limit of one game [agent steps]", "K")
    life_loss_ends_episode: bool = setting(
        True, "in training, a lost life ends the episode while lives remain", "K"
    )
    clip_rewards: bool = setting(True, "in training, rewards are clipped to [-1, 1]", "K")

    # Evaluation
    evaluation_period: int = setting(10_000, "agent steps between evaluations", "K")
    periodic_episodes: int = setting(10, "episodes of an evaluation during training", "K")
    evaluation_epsilon: float = setting(0.001, "share of random actions in evaluation", "K")

    def __post_init__(self) -> None:
        """Checks every value, so that a bad one is reported before anything is built."""
        _check_choice("head", self.head, ("state", "state_action"))
        _check_choice("precision", self.precision, ("float32", "tf32", "bfloat16"))
        if len(set(self.auxiliary)) != len(self.auxiliary):
            raise ValueError(f"auxiliary: a task is named twice in {self.auxiliary}")
        for task in self.auxiliary:
            _check_choice("auxiliary", task, ("return_contrast",))
        if "return_contrast" in self.auxiliary and self.head != "state_action":
            raise ValueError(
                "auxiliary: 'return_contrast' needs head='state_action', whose embedding it trains"
            )
        for name in _AT_LEAST_ONE:
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: must be at least 1, got {getattr(self, name)}")
        for name in _POSITIVE:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}: must be positive, got {getattr(self, name)}")
        for name in _FRACTIONS:
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}: must lie in [0, 1], got {getattr(self, name)}")
        if self.auxiliary_weight < 0:
            raise ValueError(f"auxiliary_weight: must not be negative, got {self.auxiliary_weight}")
        if self.num_atoms < 2:
            raise ValueError(f"num_atoms: must be at least 2, got {self.num_atoms}")
        if self.replay_capacity < 2 * (self.n_step + self.frame_stack):
            raise ValueError(
                "replay_capacity: must be at least 2 * (n_step + frame_stack) = "
                f"{2 * (self.n_step + self.frame_stack)}, got {self.replay_capacity}"
            )
        if self.learn_start <= self.n_step + 1:
            raise ValueError(
                f"learn_start: must exceed n_step + 1 = {self.n_step + 1}, so that there is a "
                f"complete window to sample, got {self.learn_start}"
            )


_AT_LEAST_ONE = (
    "hidden_size", "contrast_batch_size", "discriminator_hidden", "batch_size", "n_step",
    "target_period", "update_period", "frame_stack", "max_episode_steps", "evaluation_period",
    "periodic_episodes",
)  # fmt: skip
_POSITIVE = ("v_max", "noisy_sigma", "learning_rate", "adam_eps", "max_gradient_norm")
_FRACTIONS = ("discount", "priority_exponent", "importance_exponent", "evaluation_epsilon")


def _check_choice(field: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{field}: must be one of {', '.join(choices)}; got {value!r}")


ATARI_PRESETS: dict[str, RainbowConfig] = {
    "erainbow": RainbowConfig(),
    "erainbow_sa": RainbowConfig(head="state_action"),
    "rcrl": RainbowConfig(head="state_action", auxiliary=("return_contrast",)),
}
"""The rows of the paper's Atari table; presets differ only where the paper's systems differ."""


def describe_fields(config: RainbowConfig) -> str:
    """One line a field of `config`: its flag, default, meaning and source, for `--help`."""
    return "\n".join(
        f"--config.{field.name}={getattr(config, field.name)!r}: "
        f"{field.metadata['meaning']} (source: {field.metadata['source']})"
        for field in dataclasses.fields(config)
    )
