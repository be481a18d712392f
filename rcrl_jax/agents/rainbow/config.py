"""The configuration of data-efficient C51 Rainbow, as trained on Atari-100k."""

import dataclasses
from collections.abc import Collection
from typing import ClassVar

from rcrl_jax.config import base, fields
from rcrl_jax.config.choices import ENCODERS
from rcrl_jax.config.fields import setting

HEADS = "state", "state_action", "state_action_both", "state_action_single"
_NOISY, _GREEDY = (fields.when("exploration", how) for how in ("noise", "epsilon_greedy"))


@dataclasses.dataclass(frozen=True)
class RainbowConfig(base.AgentConfig):
    """C51 Rainbow with optional auxiliary tasks."""

    family: ClassVar[str] = "rainbow"
    frame_shape: ClassVar[tuple[int, ...]] = (84, 84)
    most_noops: ClassVar[int] = 30
    total_steps: ClassVar[int] = 100_000  # agent steps of a run, unless told otherwise

    # Network
    encoder: str = setting(
        "data_efficient",
        "network that computes psi(s): "
        + " or ".join(
            f"'{name}' ({encoder.meaning}; psi has {encoder.psi_size} components)"
            for name, encoder in ENCODERS.items()
        ),
        "K",
        fields.name_in(ENCODERS),
    )
    head: str = setting(
        "state",
        "input of the head: 'state' (both streams read psi(s)), 'state_action' (the advantage "
        "stream reads phi(s,a) = psi(s) * e_a of each action, the value stream psi(s)), "
        "'state_action_both' (both streams read phi(s,a)) or 'state_action_single' (one stream "
        "reads phi(s,a); no dueling)",
        "K / RCRL appendix C.1",
        fields.one_of(*HEADS),
    )
    embedding_init: str = setting(
        "ones",
        "initial action embeddings e_a: 'ones' (all actions alike), 'uniform' (U[0, 1)) or "
        "'normal' (N(0, 1))",
        "ours",
        fields.one_of("ones", "uniform", "normal"),
        fields.when("head", *HEADS[1:]),
    )
    hidden_size: int = setting(
        256, "units of the hidden layer of each dueling stream", "K", fields.at_least(1)
    )
    num_atoms: int = setting(51, "atoms of the return distribution", "K", fields.between(2, 10_000))
    v_max: float = setting(
        10.0,
        "largest atom [clipped reward]; the smallest atom is -v_max",
        "K",
        fields.positive,
    )
    noisy_sigma: float = setting(
        0.1, "initial scale of the noisy layers", "K", fields.positive, _NOISY
    )

    # Auxiliary tasks
    auxiliary: tuple[str, ...] = base.auxiliary_tasks("rainbow", "the RL loss")
    auxiliary_weight: float = base.auxiliary_weight()
    return_contrast: base.ReturnContrastConfig = fields.group(
        base.ReturnContrastConfig(), base.DRAWS_SAMPLES
    )
    curl: base.CurlConfig = fields.group(base.CurlConfig(), fields.with_task("curl"))

    # Learning
    batch_size: int = setting(32, "transitions of an update", "K", fields.at_least(1))
    learning_rate: float = setting(1e-4, "step size of Adam", "K", fields.positive)
    adam_eps: float = setting(1.5e-4, "epsilon of Adam", "K", fields.positive)
    max_gradient_norm: float = setting(
        10.0, "global L2 norm to which the joint gradient is clipped", "K", fields.positive
    )
    n_step: int = setting(
        20, "length of the multi-step return [agent steps]", "K", fields.at_least(1)
    )
    target_period: int = setting(
        2000, "updates between copies to the target network", "K", fields.at_least(1)
    )
    learn_start: int = setting(1600, "agent steps before the first update", "K", fields.at_least(1))
    update_period: int = setting(1, "agent steps between updates", "K", fields.at_least(1))
    augmentation: str = setting(
        "none",
        "random shift of the inputs of the RL loss: 'none', 'crop_pad_crop' (CURL's: crop 80, "
        "replicate-pad 4, crop 84) or 'pad_crop' (DrQ's: replicate-pad 4, crop 84; without the "
        "random intensity of source D)",
        "K / C / D",
        fields.one_of("none", "crop_pad_crop", "pad_crop"),
    )
    replay: base.PrioritisedReplayConfig = base.PrioritisedReplayConfig()

    # Exploration
    warmup: str = setting(
        "agent",
        "actions before learn_start: 'agent' (the untrained agent acts, with its exploration) or "
        "'uniform' (uniformly random valid actions)",
        "K / ours",
        fields.one_of("agent", "uniform"),
        _NOISY,  # with 'epsilon_greedy', actions are uniform before learn_start anyway
    )
    exploration: str = setting(
        "noise",
        "how training explores: 'noise' (noisy layers) or 'epsilon_greedy' (without noise)",
        "K / D",
        fields.one_of("noise", "epsilon_greedy"),
    )
    epsilon: float = setting(0.01, "final share of random actions", "D", fields.fraction, _GREEDY)
    epsilon_decay: int = setting(
        5000,
        "agent steps over which the share of random actions falls from 1 to epsilon, from "
        "learn_start on",
        "D",
        fields.at_least(1),
        _GREEDY,
    )

    # Environment protocol
    frame_stack: int = setting(4, "frames of an observation", "K", fields.frames)
    max_episode_steps: int = setting(
        27_000, "length at which a game is cut [agent steps]", "K", fields.at_least(1)
    )
    life_loss_ends_episode: bool = setting(
        True, "whether a lost life ends a training episode while lives remain", "K"
    )
    clip_rewards: bool = setting(True, "whether training clips rewards to [-1, 1]", "K")

    # Evaluation
    evaluation_epsilon: float = setting(
        0.001, "share of random actions in evaluation", "K", fields.fraction
    )

    def __post_init__(self) -> None:
        """Checks every value, so that a bad one is reported before anything is built."""
        super().__post_init__()
        base.check_anchors(self.return_contrast, self.batch_size)
        base.check_capacity(self, self.n_step)
        reads = ENCODERS[self.encoder].reads
        if reads in ("bits", "vectors") and self.augmentation != "none":
            raise ValueError(
                f"augmentation: {self.augmentation!r} shifts images of 84 x 84 pixels, so it needs "
                f"another encoder than {self.encoder!r}"
            )
        if self.learn_start <= self.n_step + 1:
            raise ValueError(
                f"learn_start: must exceed n_step + 1 = {self.n_step + 1}, so that there is a "
                f"complete window to sample; got {self.learn_start}"
            )

    @property
    def observation(self) -> str:
        """'state' where the encoder reads vectors."""
        return "state" if ENCODERS[self.encoder].reads == "vectors" else "pixels"

    @property
    def needs_large_blocks(self) -> bool:
        """Whether an update on the CPU allocates arrays above 64 MB."""
        return ENCODERS[self.encoder].large_blocks

    def check_game(self, games: Collection[str], action_repeat: int) -> None:
        """See `AgentConfig.check_game`."""
        unknown = [game for game in self.curl.reduced_games if game not in games]
        if games and unknown:
            raise ValueError(f"curl.reduced_games: unknown game {unknown[0]!r}")


@dataclasses.dataclass(frozen=True)
class MinAtarConfig(RainbowConfig):
    """C51 Rainbow on MinAtar's games.

    Raises:
        ValueError: as in `RainbowConfig`.
    """

    total_steps: ClassVar[int] = 30_000

    curl: base.CurlConfig = fields.group(
        base.CurlConfig(reduced_games=()), fields.with_task("curl")
    )
    life_loss_ends_episode: bool = fields.with_default(
        RainbowConfig, "life_loss_ends_episode", True,
        used_if=fields.UsedIf(lambda values: False, "the game has lives"),
    )  # fmt: skip
    sticky: float = setting(
        0.1, "probability that a step repeats the previous action", "M", fields.fraction
    )
    minimal_actions: bool = setting(
        True, "whether only actions with an effect in the game are valid, not all six", "M / ours"
    )
