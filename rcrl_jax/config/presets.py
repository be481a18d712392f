"""The rows of the paper's tables as configurations."""

import re
from typing import Any

from rcrl_jax.agents.rainbow.config import MinAtarConfig, RainbowConfig
from rcrl_jax.agents.recurrent.config import DreamerConfig, PlanetConfig
from rcrl_jax.agents.sac.config import SacConfig
from rcrl_jax.agents.simple.config import SimpleConfig
from rcrl_jax.agents.slac.config import SlacConfig
from rcrl_jax.config.base import ReturnContrastConfig
from rcrl_jax.config.fields import replace
from rcrl_jax.config.world_models import WorldModelConfig

Config = RainbowConfig | SacConfig | WorldModelConfig | SimpleConfig
"""A configuration of any agent family."""

_STATE_ACTION = RainbowConfig(head="state_action")
_NORMAL = replace(_STATE_ACTION, {"embedding_init": "normal"})
_DER_PLUS = replace(
    _STATE_ACTION,
    {
        "n_step": 10,
        "augmentation": "pad_crop",
        "exploration": "epsilon_greedy",
        "target_period": 1,
    },
)

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
    "erainbow_sa": _STATE_ACTION,
    "curl": RainbowConfig(auxiliary=("curl",)),
    "rcrl": replace(_STATE_ACTION, {"auxiliary": ("return_contrast",)}),
    "rcrl_curl": replace(_STATE_ACTION, {"auxiliary": ("return_contrast", "curl")}),
    "erainbow_sa_normal": _NORMAL,
    "rcrl_normal": replace(
        _NORMAL,
        {
            "auxiliary": ("return_contrast",),
            "return_contrast.discriminator_input": "concatenation",
        },
    ),
    "der_plus": _DER_PLUS,
    "der_plus_rcrl": replace(_DER_PLUS, {"auxiliary": ("return_contrast",)}),
}
"""The rows of the paper's Atari table, and some of ours. Presets differ only where systems differ.

`erainbow_aug` shifts the inputs of the RL loss and has no contrastive loss; CURL does not shift
these inputs. `erainbow_sa_normal` and `rcrl_normal` are another interpretation of the paper, whose
discriminator learns actions more than returns (results/mechanism). `der_plus` is a stronger
baseline; `der_plus_rcrl` adds the return-contrastive task to it.
"""

_MINATAR = MinAtarConfig(
    encoder="minatar",
    hidden_size=128,
    return_contrast=ReturnContrastConfig(discriminator_hidden=128),
    learning_rate=5e-4,
    target_period=500,
    n_step=5,
    learn_start=1000,
    evaluation_period=6000,
    warmup="uniform",
    frame_stack=1,
    max_episode_steps=5000,
)
_MINATAR_STATE_ACTION = replace(_MINATAR, {"head": "state_action"})

MINATAR_PRESETS: dict[str, MinAtarConfig] = {
    "minatar_erainbow": _MINATAR,
    "minatar_erainbow_sa": _MINATAR_STATE_ACTION,
    "minatar_rcrl": replace(_MINATAR_STATE_ACTION, {"auxiliary": ("return_contrast",)}),
}
"""Small agents for MinAtar's games (Young and Tian, 2019), which differ as the paper's systems do.

Channels of a frame show how objects move, so an observation is one frame. All agents act uniformly
at random until their first update, so their first transitions are equal.
"""

_PIXEL_SAC = SacConfig(augmentation="center_crop")
_SAC_AUG = SacConfig()

DMC_PRESETS: dict[str, SacConfig] = {
    "state_sac": SacConfig(
        observation="state", frame_stack=1, augmentation="center_crop", batch_size=128
    ),
    "pixel_sac": _PIXEL_SAC,
    "sac_ae": replace(_PIXEL_SAC, {"auxiliary": ("reconstruction",)}),
    "sac_aug": _SAC_AUG,
    "curl_sac": replace(_SAC_AUG, {"auxiliary": ("curl",)}),
    "rcrl_sac": replace(_SAC_AUG, {"auxiliary": ("return_contrast",)}),
    "rcrl_curl_sac": replace(_SAC_AUG, {"auxiliary": ("return_contrast", "curl")}),
}
"""The systems of the paper's DMControl figure that share this code, with two of our own.

`sac_aug` has the random crop and no auxiliary task: it is the baseline of the presets below it.
"""

WORLD_MODEL_PRESETS: dict[str, WorldModelConfig] = {
    "dreamer": DreamerConfig(),
    "dreamer_rcrl": DreamerConfig(auxiliary=("return_contrast",)),
    "planet": PlanetConfig(),
    "slac": SlacConfig(),
}
"""The systems of the DMControl figure that learn a world model, and one of our own.

`dreamer_rcrl` is Dreamer with the return-contrastive task on its filtered state.
"""

_SMALL = {
    "rounds": 3,
    "model_updates": 500,
    "policy_updates": 1,
    "periodic_episodes": 4,
    # The step size peaks within the first round, at about the same value as in `simple`.
    "deterministic.learning_rate": 0.5,
    "deterministic.warmup": 1000,
    **{
        f"{model}.{name}": value
        for model in ("deterministic", "stochastic")
        for name, value in {"filters": 32, "compress_steps": 2, "double_steps": 1}.items()
    },
}

ATARI_WORLD_MODEL_PRESETS: dict[str, SimpleConfig] = {
    "simple": SimpleConfig(),
    "simple_small": replace(SimpleConfig(), _SMALL),
}
"""SimPLe, which learns a world model, and a smaller one of ours, which is not SimPLe.

`simple` has the deterministic model. The scores of SimPLe's paper are those of
`--config.model=stochastic`.
"""

DMC_LEARNING_RATES = {"cheetah_run": 2e-4}
"""Tasks whose learning rate differs (CURL, table 3)."""


def atari_presets() -> dict[str, RainbowConfig | SimpleConfig]:
    """All presets that train on Atari."""
    return {**ATARI_PRESETS, **ATARI_WORLD_MODEL_PRESETS}


def control_presets(task: str = "") -> dict[str, SacConfig | WorldModelConfig]:
    """All presets that train on DMControl; those of SAC have the learning rate of `task`."""
    rate = {"learning_rate": DMC_LEARNING_RATES[task]} if task in DMC_LEARNING_RATES else {}
    sac = {name: replace(preset, rate) for name, preset in DMC_PRESETS.items()}
    return {**sac, **WORLD_MODEL_PRESETS}


OWN_PRESETS: dict[str, RainbowConfig | SacConfig] = {**ATARI_PRESETS, **DMC_PRESETS}
"""All presets that train on a user's own games, with `fields_of_own`."""


def fields_of_own(config: RainbowConfig | SacConfig, kind: str) -> dict[str, Any]:
    """The fields that differ on a user's own game, by how its observations are read.

    Vectors and grids are not stacked.

    Args:
        config: a preset.
        kind: 'image', 'bits' or 'vector', as of `envs.gymnasium_games`.
    """
    if kind == "image":
        return {}
    if isinstance(config, SacConfig):
        return {"observation": "state", "frame_stack": 1}
    return {"encoder": "minatar" if kind == "bits" else "dense", "frame_stack": 1}


def all_presets() -> dict[str, Config]:
    """All presets."""
    return {**atari_presets(), **MINATAR_PRESETS, **control_presets()}


ARM_NAMES = (
    "an arm's name must not be a preset's; it begins with a letter or digit and may hold letters, "
    "digits and any of `_.=+-`"
)
"""What `is_arm_name` asks for."""


def is_arm_name(name: str) -> bool:
    """Whether a preset with changed fields may be called so."""
    return bool(re.fullmatch(r"[^\W_][\w.=+-]*", name, re.ASCII)) and name not in all_presets()
