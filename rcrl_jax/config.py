"""Configurations: one frozen dataclass an agent family, one named instance a row of the paper.

Every field carries its meaning, its unit and its source, because `--help` prints them. Sources:

    K    github.com/Kaixhin/Rainbow, the codebase RCRL builds on, with its data-efficient flags
    RCRL Liu et al., "Return-Based Contrastive Representation Learning for RL", ICLR 2021
    C    github.com/aravindsrinivas/curl_rainbow, the code behind CURL's Atari scores
    CURL Srinivas et al., "CURL", ICML 2020, tables of the appendix; where they are silent,
         github.com/MishaLaskin/curl, the codebase that RCRL uses for DMControl
    AE   Yarats et al., "Improving Sample Efficiency in Model-Free RL from Images" (SAC+AE)
    H    Hessel et al., "Rainbow: Combining Improvements in Deep RL", AAAI 2018
    D    github.com/google/dopamine, labs/atari_100k: DER.gin and DrQ_eps.gin
    ours not stated anywhere; the reason stands in docs/decisions.md
"""

import dataclasses
from typing import Any, ClassVar


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
    encoder: str = setting(
        "data_efficient",
        "'data_efficient' (two 5x5 convolutions, psi of 576) or 'nature' (three, psi of 3136)",
        "K",
    )
    head: str = setting(
        "state",
        "what the advantage stream reads: 'state' (psi(s), all actions at once) or "
        "'state_action' (phi(s,a) = psi(s) * e_a, one action at a time); 'state_action_both': the "
        "value stream reads phi(s,a) too; 'state_action_single': one stream on phi(s,a) without "
        "dueling",
        "K / RCRL appendix C.1",
    )
    embedding_init: str = setting(
        "ones",
        "how action embeddings start: 'ones' (all actions alike), 'uniform' U[0, 1) or "
        "'normal' N(0, 1)",
        "ours",
    )
    hidden_size: int = setting(256, "units of each dueling stream's hidden layer", "K")
    num_atoms: int = setting(51, "atoms of the return distribution", "K")
    v_max: float = setting(10.0, "largest atom; the smallest is its negative [clipped reward]", "K")
    noisy_sigma: float = setting(0.1, "initial scale of the noisy layers", "K")

    # Auxiliary tasks
    auxiliary: tuple[str, ...] = setting(
        (),
        "auxiliary tasks added to the RL loss: 'return_contrast', 'curl'",
        "RCRL section 4.3 / C",
    )
    auxiliary_weight: float = setting(
        1.0, "weight of every auxiliary loss; 0 leaves the tasks out", "RCRL appendix C.1"
    )

    # The return-contrastive task
    contrast_batch_size: int = setting(64, "anchors in an update [pairs]", "RCRL appendix C.1")
    contrast_loss: str = setting(
        "squared_error",
        "loss on the discriminator's output: 'squared_error' or 'cross_entropy'",
        "RCRL equation 2",
    )
    discriminator_input: str = setting(
        "difference_product",
        "how the discriminator reads two embeddings: 'concatenation', 'difference_product' "
        "(|x - y| and x * y; symmetric) or 'bilinear' (x W y, no hidden layer)",
        "ours",
    )
    discriminator_hidden: int = setting(
        256, "units of each of the discriminator's hidden layers", "ours"
    )
    discriminator_layers: int = setting(1, "the discriminator's hidden layers", "ours")
    discriminator_norm: str = setting(
        "none",
        "how the discriminator normalises an embedding: 'none', 'layer_norm' (mean 0, variance 1) "
        "or 'unit' (length 1)",
        "ours",
    )
    contrast_anchors: str = setting(
        "as_transitions",
        "where anchors come from: 'as_transitions' (a draw of their own, prioritised like the "
        "transitions), 'uniform' (any live transition) or 'rl_batch' (the transitions of the RL "
        "loss themselves; contrast_batch_size must equal batch_size)",
        "RCRL appendix C.1",
    )
    contrast_positives: str = setting(
        "segment",
        "where positives come from: 'segment' (the anchor's) or 'equal_return' (any live "
        "transition whose return so far, to the end of its episode, equals the anchor's; an "
        "anchor for which 32 draws find none keeps one of its segment)",
        "RCRL section 4.3",
    )
    positive_excludes_anchor: bool = setting(
        False, "a positive differs from its anchor wherever the segment has another pair", "ours"
    )
    negative_differs_in_return: bool = setting(
        False,
        "a negative's return so far, to the end of its episode, differs from the anchor's; "
        "an anchor for which none is found in 16 draws keeps the last one",
        "ours",
    )

    # CURL
    curl_weight: float = setting(1.0, "factor of CURL's loss beside auxiliary_weight", "C")
    curl_reduced_weight: float = setting(
        0.01, "further factor of CURL's loss on curl_reduced_games (its paper prints 0.05)", "C"
    )
    curl_reduced_games: tuple[str, ...] = setting(
        ("Pong", "Boxing", "PrivateEye", "Freeway"), "games with the further factor", "C"
    )
    curl_momentum: float = setting(0.999, "share of the momentum network that an update keeps", "C")
    curl_hidden: int = setting(256, "units of the projection's hidden layer", "C")
    curl_size: int = setting(128, "width of the projection", "C")
    curl_logit_scale: float = setting(0.1, "factor of the bilinear logits", "C")
    curl_importance_weighted: bool = setting(
        True, "CURL's loss is multiplied by the mean importance weight of the batch", "C"
    )
    curl_in_priorities: bool = setting(
        True, "CURL's loss is added to the cross-entropy from which priorities are made", "C"
    )

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

    augmentation: str = setting(
        "none",
        "random shift of the RL loss's inputs: 'none', 'crop_pad_crop' (CURL's: crop 80, "
        "replicate-pad 4, crop 84) or 'pad_crop' (DrQ's: replicate-pad 4, crop 84)",
        "K / C / D",
    )

    # Exploration
    exploration: str = setting(
        "noise",
        "how training explores: 'noise' of the layers, or 'epsilon_greedy' without it",
        "K / D",
    )
    epsilon: float = setting(0.01, "final share of random actions, if epsilon-greedy", "D")
    epsilon_decay: int = setting(
        5000, "agent steps over which the share falls from 1, once learning has started", "D"
    )

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
        for name, choices in _CHOICES.items():
            _check_choice(name, getattr(self, name), choices)
        if len(set(self.auxiliary)) != len(self.auxiliary):
            raise ValueError(f"auxiliary: a task is named twice in {self.auxiliary}")
        for task in self.auxiliary:
            _check_choice("auxiliary", task, ("return_contrast", "curl"))
        if "return_contrast" in self.auxiliary and self.head == "state":
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
        for name in _NOT_NEGATIVE:
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name}: must not be negative, got {getattr(self, name)}")
        _check_anchors(self)
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

    @property
    def tasks(self) -> tuple[str, ...]:
        """The auxiliary tasks that take part: those whose weight is not zero.

        A task of weight 0 is left out of sampling, storage and update alike, so that the preset
        is, bit for bit, the one without it.
        """
        weight = {"return_contrast": self.auxiliary_weight}
        weight["curl"] = self.auxiliary_weight * self.curl_weight
        return tuple(task for task in self.auxiliary if weight[task] > 0)

    def curl_factor_in(self, game: str) -> float:
        """Further factor of CURL's loss in a run on `game`."""
        return self.curl_reduced_weight if game in self.curl_reduced_games else 1.0


_CHOICES = {
    "encoder": ("data_efficient", "nature"),
    "head": ("state", "state_action", "state_action_both", "state_action_single"),
    "embedding_init": ("normal", "uniform", "ones"),
    "contrast_loss": ("squared_error", "cross_entropy"),
    "discriminator_input": ("concatenation", "difference_product", "bilinear"),
    "discriminator_norm": ("none", "layer_norm", "unit"),
    "contrast_anchors": ("as_transitions", "uniform", "rl_batch"),
    "contrast_positives": ("segment", "equal_return"),
    "precision": ("float32", "tf32", "bfloat16"),
    "augmentation": ("none", "crop_pad_crop", "pad_crop"),
    "exploration": ("noise", "epsilon_greedy"),
}
_AT_LEAST_ONE = (
    "hidden_size", "contrast_batch_size", "discriminator_hidden", "discriminator_layers",
    "curl_hidden", "curl_size",
    "batch_size", "n_step", "target_period", "update_period", "epsilon_decay", "frame_stack",
    "max_episode_steps", "evaluation_period", "periodic_episodes",
)  # fmt: skip
_POSITIVE = (
    "v_max", "noisy_sigma", "learning_rate", "adam_eps", "max_gradient_norm", "curl_logit_scale",
)  # fmt: skip
_NOT_NEGATIVE = ("auxiliary_weight", "curl_weight", "curl_reduced_weight")
_FRACTIONS = (
    "discount", "priority_exponent", "importance_exponent", "evaluation_epsilon", "epsilon",
    "curl_momentum",
)  # fmt: skip


def _check_choice(field: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{field}: must be one of {', '.join(choices)}; got {value!r}")


def _check_anchors(config: "Config") -> None:
    if config.contrast_anchors == "rl_batch" and config.contrast_batch_size != config.batch_size:
        raise ValueError(
            "contrast_anchors: 'rl_batch' needs contrast_batch_size = batch_size, got "
            f"contrast_batch_size = {config.contrast_batch_size} and "
            f"batch_size = {config.batch_size}"
        )


_DER_PLUS = RainbowConfig(
    head="state_action",
    n_step=10,
    augmentation="pad_crop",
    exploration="epsilon_greedy",
    target_period=1,
)

_SA_NORMAL = RainbowConfig(head="state_action", embedding_init="normal")

ATARI_PRESETS: dict[str, RainbowConfig] = {
    "rainbow": RainbowConfig(
        encoder="nature",
        hidden_size=512,
        noisy_sigma=0.5,
        learning_rate=6.25e-5,
        n_step=3,
        learn_start=20_000,
        update_period=4,
    ),
    "erainbow": RainbowConfig(),
    "erainbow_aug": RainbowConfig(augmentation="crop_pad_crop"),
    "erainbow_sa": RainbowConfig(head="state_action"),
    "curl": RainbowConfig(auxiliary=("curl",)),
    "rcrl": RainbowConfig(head="state_action", auxiliary=("return_contrast",)),
    "rcrl_curl": RainbowConfig(head="state_action", auxiliary=("return_contrast", "curl")),
    "erainbow_sa_normal": _SA_NORMAL,
    "rcrl_normal": dataclasses.replace(
        _SA_NORMAL, auxiliary=("return_contrast",), discriminator_input="concatenation"
    ),
    "der_plus": _DER_PLUS,
    "der_plus_rcrl": dataclasses.replace(_DER_PLUS, auxiliary=("return_contrast",)),
}
"""The rows of the paper's Atari table, and five of ours: `erainbow_aug`, CURL without its
contrastive loss; `erainbow_sa_normal` and `rcrl_normal`, another reading of the paper that learns
actions more than returns (results/mechanism); and the stronger base `der_plus` without and with the
return-contrastive task. Presets differ only where the systems differ."""


@dataclasses.dataclass(frozen=True)
class SacConfig:
    """SAC from pixels or from the state vector, with optional auxiliary tasks, on DMControl.

    Raises:
        ValueError: when a value lies outside its range; the message names the field.
    """

    # Observation
    observation: str = setting(
        "pixels", "what the agent sees: 'pixels' or the 'state' vector", "CURL / RCRL section 5.1"
    )
    frame_stack: int = setting(3, "frames in an observation", "CURL")
    render_size: int = setting(100, "height and width of a rendered frame [pixels]", "CURL")
    crop_size: int = setting(84, "height and width of what the network reads [pixels]", "CURL")
    augmentation: str = setting(
        "random_crop",
        "how an update crops every observation: 'random_crop' or 'center_crop'",
        "CURL",
    )

    # Network
    filters: int = setting(32, "channels of each of the four convolutions", "CURL")
    embedding_size: int = setting(50, "width of psi(s), from pixels", "CURL / RCRL appendix C.2")
    hidden_size: int = setting(1024, "units of both hidden layers of actor and critics", "CURL")
    log_std_min: float = setting(-10.0, "lower bound of the policy's log sigma", "CURL")
    log_std_max: float = setting(2.0, "upper bound of the policy's log sigma", "CURL")

    precision: str = setting(
        "tf32",
        "inputs of products and convolutions: 'float32' or 'tf32' (10 bits of mantissa); "
        "parameters and sums are float32; a CPU computes both in float32",
        "ours",
    )

    # Auxiliary tasks
    auxiliary: tuple[str, ...] = setting(
        (),
        "auxiliary tasks added to the critic's loss: 'return_contrast', 'curl', 'reconstruction'",
        "RCRL section 4.3 / CURL / AE",
    )
    auxiliary_weight: float = setting(1.0, "weight of every auxiliary loss", "RCRL appendix C.1")
    contrast_batch_size: int = setting(64, "anchors in an update [pairs]", "RCRL appendix C.1")
    contrast_loss: str = setting(
        "squared_error",
        "loss on the discriminator's output: 'squared_error' or 'cross_entropy'",
        "RCRL equation 2",
    )
    discriminator_input: str = setting(
        "concatenation",
        "how the discriminator reads two embeddings: 'concatenation', 'difference_product' "
        "(|x - y| and x * y; symmetric) or 'bilinear' (x W y, no hidden layer)",
        "ours",
    )
    discriminator_hidden: int = setting(
        256, "units of each of the discriminator's hidden layers", "ours"
    )
    discriminator_layers: int = setting(1, "the discriminator's hidden layers", "ours")
    discriminator_norm: str = setting(
        "none",
        "how the discriminator normalises an embedding: 'none', 'layer_norm' (mean 0, variance 1) "
        "or 'unit' (length 1)",
        "ours",
    )
    contrast_anchors: str = setting(
        "as_transitions",
        "where anchors come from: 'as_transitions' (a draw of their own, stratified like the "
        "transitions), 'uniform' (any live transition) or 'rl_batch' (the transitions of the RL "
        "loss themselves; contrast_batch_size must equal batch_size)",
        "RCRL appendix C.1",
    )
    contrast_positives: str = setting(
        "segment",
        "where positives come from: 'segment' (the anchor's) or 'equal_return' (any live "
        "transition whose return so far, to the end of its episode, differs from the anchor's by "
        "at most the segment's threshold; an anchor for which 32 draws find none keeps one of its "
        "segment)",
        "RCRL section 4.3",
    )
    positive_excludes_anchor: bool = setting(
        False, "a positive differs from its anchor wherever the segment has another pair", "ours"
    )
    negative_differs_in_return: bool = setting(
        False,
        "a negative's return so far, to the end of its episode, differs from the anchor's by more "
        "than the segment's threshold; an anchor for which none is found in 16 draws keeps the "
        "last one",
        "ours",
    )
    segment_threshold: float = setting(
        1.0, "a segment ends once the reward accumulated in it exceeds this", "RCRL appendix C.2"
    )
    segment_reward: str = setting(
        "sum",
        "how segments count the reward of an agent step: 'sum' or 'mean' over its action repeat",
        "ours",
    )
    latent_penalty: float = setting(
        1e-6, "weight of |psi(s)|^2 / 2 in the reconstruction loss", "AE"
    )
    decoder_weight_decay: float = setting(1e-7, "weight decay of the decoder", "AE")

    # Learning
    batch_size: int = setting(512, "transitions in an update", "CURL (its code: 32 or 128)")
    learning_rate: float = setting(
        1e-3, "step size of Adam for actor, critic and auxiliary tasks; 2e-4 on cheetah_run", "CURL"
    )
    temperature_learning_rate: float = setting(1e-4, "step size of Adam for log alpha", "CURL")
    temperature_beta1: float = setting(0.5, "first moment's decay in Adam for log alpha", "CURL")
    initial_temperature: float = setting(0.1, "alpha at the start", "CURL")
    discount: float = setting(0.99, "discount of one agent step", "CURL")
    actor_period: int = setting(2, "updates between steps of actor and temperature", "CURL")
    target_period: int = setting(2, "updates between steps of the target networks", "CURL")
    critic_tau: float = setting(0.01, "step of the target critics towards the critics", "CURL")
    encoder_tau: float = setting(0.05, "step of the target encoder towards the encoder", "CURL")
    learn_start: int = setting(1000, "agent steps at random before the first update", "CURL")
    update_period: int = setting(1, "agent steps between updates", "CURL")

    # Replay
    replay_capacity: int = setting(100_000, "transitions kept in one run's replay", "CURL")

    # Evaluation
    evaluation_period: int = setting(10_000, "environment steps between evaluations", "CURL")
    periodic_episodes: int = setting(10, "episodes of an evaluation during training", "CURL")

    # Fixed by the algorithm and the benchmark, under the names that training reads of any agent:
    # one-step targets, uniform replay, the policy's mean in evaluation, raw rewards, and only the
    # suite's own time limit of 1000 environment steps, which no number of agent steps exceeds.
    n_step: ClassVar[int] = 1
    priority_exponent: ClassVar[float] = 0.0
    importance_exponent: ClassVar[float] = 1.0
    evaluation_epsilon: ClassVar[float] = 0.0
    clip_rewards: ClassVar[bool] = False
    life_loss_ends_episode: ClassVar[bool] = False
    max_episode_steps: ClassVar[int] = 1000
    # Room in a state vector for the largest of the suite's tasks.
    state_room: ClassVar[int] = 24

    def __post_init__(self) -> None:
        """Checks every value, so that a bad one is reported before anything is built."""
        _check_choice("observation", self.observation, ("pixels", "state"))
        _check_choice("augmentation", self.augmentation, ("random_crop", "center_crop"))
        _check_choice("precision", self.precision, ("float32", "tf32"))
        _check_choice("segment_reward", self.segment_reward, ("sum", "mean"))
        for name in _SAC_SHARED_CHOICES:
            _check_choice(name, getattr(self, name), _CHOICES[name])
        if len(set(self.auxiliary)) != len(self.auxiliary):
            raise ValueError(f"auxiliary: a task is named twice in {self.auxiliary}")
        for task in self.auxiliary:
            _check_choice("auxiliary", task, ("return_contrast", "curl", "reconstruction"))
        for name in _SAC_AT_LEAST_ONE:
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: must be at least 1, got {getattr(self, name)}")
        for name in _SAC_POSITIVE:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}: must be positive, got {getattr(self, name)}")
        for name in _SAC_FRACTIONS:
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}: must lie in [0, 1], got {getattr(self, name)}")
        for name in _SAC_NOT_NEGATIVE:
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name}: must not be negative, got {getattr(self, name)}")
        _check_anchors(self)
        if self.observation == "state":
            for task in ("curl", "reconstruction"):
                if task in self.auxiliary:
                    raise ValueError(f"auxiliary: {task!r} needs observation='pixels'")
        if not self.log_std_min < self.log_std_max:
            raise ValueError(
                f"log_std_min: must be below log_std_max = {self.log_std_max}, "
                f"got {self.log_std_min}"
            )
        if self.crop_size > self.render_size:
            raise ValueError(
                f"crop_size: must be at most render_size = {self.render_size}, "
                f"got {self.crop_size}"
            )
        if self.crop_size < 15:
            raise ValueError(
                f"crop_size: four convolutions need at least 15 pixels, got {self.crop_size}"
            )
        if self.replay_capacity < 2 * (1 + self.frame_stack):
            raise ValueError(
                "replay_capacity: must be at least 2 * (1 + frame_stack) = "
                f"{2 * (1 + self.frame_stack)}, got {self.replay_capacity}"
            )
        if self.learn_start < 3:
            raise ValueError(
                "learn_start: must be at least 3, so that there is a transition to sample, got "
                f"{self.learn_start}"
            )

    @property
    def tasks(self) -> tuple[str, ...]:
        """The auxiliary tasks that take part: all or, with a weight of 0, none."""
        return self.auxiliary if self.auxiliary_weight > 0 else ()

    def curl_factor_in(self, game: str) -> float:
        """CURL's weight is the same in every task of the suite."""
        del game
        return 1.0

    @property
    def frame_shape(self) -> tuple[int, ...]:
        """Of one frame, as environments hand it over."""
        if self.observation == "state":
            return (self.state_room,)
        return (self.render_size, self.render_size, 3)


_SAC_SHARED_CHOICES = (
    "contrast_loss", "discriminator_input", "discriminator_norm", "contrast_anchors",
    "contrast_positives",
)  # fmt: skip
_SAC_AT_LEAST_ONE = (
    "frame_stack", "filters", "embedding_size", "hidden_size", "contrast_batch_size",
    "discriminator_hidden", "discriminator_layers", "batch_size", "actor_period", "target_period",
    "update_period", "evaluation_period", "periodic_episodes",
)  # fmt: skip
_SAC_POSITIVE = (
    "segment_threshold", "learning_rate", "temperature_learning_rate", "initial_temperature",
)  # fmt: skip
_SAC_FRACTIONS = ("discount", "temperature_beta1", "critic_tau", "encoder_tau")
_SAC_NOT_NEGATIVE = ("auxiliary_weight", "latent_penalty", "decoder_weight_decay")


_PIXEL_SAC = SacConfig(augmentation="center_crop")
_SAC_AUG = SacConfig()
DMC_PRESETS: dict[str, SacConfig] = {
    "state_sac": SacConfig(
        observation="state", frame_stack=1, augmentation="center_crop", batch_size=128
    ),
    "pixel_sac": _PIXEL_SAC,
    "sac_ae": dataclasses.replace(_PIXEL_SAC, auxiliary=("reconstruction",)),
    "sac_aug": _SAC_AUG,
    "curl_sac": dataclasses.replace(_SAC_AUG, auxiliary=("curl",)),
    "rcrl_sac": dataclasses.replace(_SAC_AUG, auxiliary=("return_contrast",)),
    "rcrl_curl_sac": dataclasses.replace(_SAC_AUG, auxiliary=("return_contrast", "curl")),
}
"""The systems of the paper's DMControl figure that share this code, with two of our own.

`sac_aug` is the random crop alone, which every gain of the rows after it must be held against.
"""

DMC_LEARNING_RATES = {"cheetah_run": 2e-4}
"""Where CURL's learning rate is not that of the other tasks (CURL, table 3)."""


def dmc_presets_of(task: str) -> dict[str, SacConfig]:
    """The presets of the DMControl figure with a task's own learning rate."""
    if task not in DMC_LEARNING_RATES:
        return DMC_PRESETS
    return {
        name: dataclasses.replace(preset, learning_rate=DMC_LEARNING_RATES[task])
        for name, preset in DMC_PRESETS.items()
    }


Config = RainbowConfig | SacConfig
"""A configuration of either agent family; what both have goes by one name."""


def describe_fields(config: Config) -> str:
    """One line a field of `config`: its flag, default, meaning and source, for `--help`."""
    return "\n".join(
        f"--config.{field.name}={getattr(config, field.name)!r}: "
        f"{field.metadata['meaning']} (source: {field.metadata['source']})"
        for field in dataclasses.fields(config)
    )
