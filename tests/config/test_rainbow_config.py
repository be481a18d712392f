"""Configurations: documentation of every field, rejection of bad values, presets."""

import dataclasses

import numpy as np
import pytest

from rcrl_jax.agents.make_agent import make_agent
from rcrl_jax.config import fields
from rcrl_jax.config.presets import ATARI_PRESETS
from rcrl_jax.config.rainbow import RainbowConfig
from rcrl_jax.config.sac import SacConfig
from rcrl_jax.envs.atari import ATARI_GAMES
from rcrl_jax.envs.protocol import discrete_spec

FIELDS = list(fields.named_fields(RainbowConfig()))


@pytest.mark.parametrize(
    "field", [*FIELDS, *fields.named_fields(SacConfig())], ids=lambda field: field.name
)
def test_every_field_has_a_meaning_and_a_source(field):
    assert len(field.metadata["meaning"]) > 5
    for source in field.metadata["source"].split(" / "):
        assert source.split()[0] in fields.SOURCES


BAD_VALUES = [
    ("head", "dueling"),
    ("encoder", "resnet"),
    ("embedding_init", "zeros"),
    ("return_contrast.loss", "hinge"),
    ("return_contrast.discriminator_input", "sum"),
    ("return_contrast.anchors", "oldest"),
    ("return_contrast.anchors", "rl_batch"),  # 64 anchors beside 32 transitions
    ("return_contrast.positives", "episode"),
    ("augmentation", "flip"),
    ("exploration", "none"),
    ("auxiliary", ("curling",)),
    ("auxiliary", ("return_contrast", "return_contrast")),
    ("hidden_size", 0),
    ("return_contrast.batch_size", 0),
    ("return_contrast.discriminator_hidden", -1),
    ("curl.hidden_size", 0),
    ("curl.projection_size", 0),
    ("curl.weight", -0.1),
    ("curl.reduced_weight", float("nan")),
    ("curl.momentum", 1.1),
    ("curl.logit_scale", 0.0),
    ("epsilon", -0.1),
    ("epsilon_decay", 0),
    ("batch_size", 0),
    ("n_step", 0),
    ("target_period", 0),
    ("update_period", 0),
    ("frame_stack", 0),
    ("max_episode_steps", 0),
    ("evaluation_period", 0),
    ("periodic_episodes", 0),
    ("num_atoms", 1),
    ("return_contrast.discriminator_layers", 0),
    ("v_max", 0.0),
    ("v_max", float("nan")),
    ("noisy_sigma", -0.1),
    ("learning_rate", 0.0),
    ("adam_eps", 0.0),
    ("max_gradient_norm", 0.0),
    ("discount", 1.01),
    ("discount", -0.1),
    ("discount", float("nan")),
    ("replay.priority_exponent", 1.5),
    ("replay.importance_exponent", -0.5),
    ("evaluation_epsilon", 2.0),
    ("auxiliary_weight", -1.0),
    ("replay.capacity", 47),
    ("learn_start", 21),
    ("learn_start", 2**31),
    ("batch_size", 100_001),  # more than the replay holds
    ("return_contrast.batch_size", 100_001),
    ("learning_rate", float("inf")),
    ("learning_rate", 1e-60),  # 0 in float32
    ("v_max", 1e39),  # infinite in float32
    ("curl.reduced_games", ("Pong", "Pong")),
    ("curl.reduced_games", (3,)),
]


@pytest.mark.parametrize(("name", "value"), BAD_VALUES)
def test_a_bad_value_is_refused_with_the_field_s_name(name, value):
    with pytest.raises(ValueError, match=f"^{name}: "):
        fields.replace(ATARI_PRESETS["rcrl"], {name: value})


def test_every_numeric_field_has_a_bad_value():
    numeric = {f.name for f in FIELDS if type(f.value) in (int, float)}
    assert numeric <= {name for name, _ in BAD_VALUES}


def test_boundary_values_are_accepted():
    RainbowConfig(discount=1.0, evaluation_epsilon=0.0, num_atoms=2)
    fields.replace(RainbowConfig(), {"replay.priority_exponent": 0.0, "replay.capacity": 48})
    RainbowConfig(learn_start=22)
    RainbowConfig(head="state_action", auxiliary=("return_contrast",), auxiliary_weight=0.0)


def test_return_contrast_needs_the_head_whose_embedding_it_trains():
    with pytest.raises(ValueError, match="^auxiliary: .*head='state_action'"):
        RainbowConfig(auxiliary=("return_contrast",))


def test_rl_batch_anchors_need_equal_batch_sizes():
    preset = ATARI_PRESETS["rcrl"]
    with pytest.raises(ValueError, match="return_contrast.batch_size = 64 and batch_size = 32"):
        fields.replace(preset, {"return_contrast.anchors": "rl_batch"})
    as_rl_batch = {"return_contrast.anchors": "rl_batch"}
    fields.replace(preset, as_rl_batch | {"return_contrast.batch_size": 32})
    fields.replace(preset, as_rl_batch | {"batch_size": 64})


def differing(one: str, other: str) -> set[str]:
    a, b = fields.values(ATARI_PRESETS[one]), fields.values(ATARI_PRESETS[other])
    return {name for name in a if a[name] != b[name]}


def test_presets_differ_only_where_the_paper_s_systems_differ():
    assert differing("erainbow", "erainbow_sa") == {"head"}
    assert differing("erainbow_sa", "rcrl") == {"auxiliary"}
    assert differing("erainbow", "curl") == {"auxiliary"}
    assert differing("erainbow", "erainbow_aug") == {"augmentation"}
    assert differing("rcrl", "rcrl_curl") == {"auxiliary"}
    assert differing("erainbow_sa", "der_plus") == {
        "n_step", "augmentation", "exploration", "target_period",
    }  # fmt: skip
    assert differing("der_plus", "der_plus_rcrl") == {"auxiliary"}
    assert differing("erainbow_sa", "erainbow_sa_normal") == {"embedding_init"}
    assert differing("rcrl", "rcrl_normal") == {
        "embedding_init", "return_contrast.discriminator_input",
    }  # fmt: skip
    assert ATARI_PRESETS["rcrl_curl"].auxiliary == ("return_contrast", "curl")


def test_readings_of_the_paper_that_the_presets_take():
    """Where the paper is silent; docs/decisions.md has the reasons."""
    chosen = {
        "head": "state_action",
        "embedding_init": "ones",
        "precision": "tf32",
        "return_contrast.loss": "squared_error",
        "return_contrast.discriminator_input": "difference_product",
        "return_contrast.discriminator_hidden": 256,
        "return_contrast.discriminator_layers": 1,
        "return_contrast.discriminator_norm": "none",
        "return_contrast.anchors": "as_transitions",
        "return_contrast.positives": "segment",
        "return_contrast.positive_excludes_anchor": False,
        "return_contrast.negative_differs_in_return": False,
    }
    first_reading = {
        "embedding_init": "normal", "return_contrast.discriminator_input": "concatenation",
    }  # fmt: skip
    for name, expected in (("rcrl", chosen), ("rcrl_normal", chosen | first_reading)):
        values = fields.values(ATARI_PRESETS[name])
        assert {field: values[field] for field in expected} == expected


def test_settings_of_the_paper_and_its_codebase():
    """The published numbers, written a second time."""
    published = {
        "hidden_size": 256,
        "num_atoms": 51,
        "v_max": 10.0,
        "noisy_sigma": 0.1,
        "return_contrast.batch_size": 64,
        "auxiliary_weight": 1.0,
        "batch_size": 32,
        "learning_rate": 1e-4,
        "adam_eps": 1.5e-4,
        "max_gradient_norm": 10.0,
        "discount": 0.99,
        "n_step": 20,
        "target_period": 2000,
        "learn_start": 1600,
        "update_period": 1,
        "replay.capacity": 100_000,
        "replay.priority_exponent": 0.5,
        "replay.importance_exponent": 0.4,
        "frame_stack": 4,
        "max_episode_steps": 27_000,
        "evaluation_period": 10_000,
        "periodic_episodes": 10,
        "evaluation_epsilon": 0.001,
    }
    for name in ("erainbow", "erainbow_sa", "erainbow_aug", "curl", "rcrl", "rcrl_curl"):
        values = fields.values(ATARI_PRESETS[name])
        assert {f: values[f] for f in published} == published


def test_settings_of_the_original_rainbow():
    """Frames of the paper are four agent steps: 80k frames before learning, 32k for the target."""
    published = {
        "encoder": "nature", "head": "state", "hidden_size": 512, "noisy_sigma": 0.5,
        "learning_rate": 6.25e-5, "adam_eps": 1.5e-4, "n_step": 3, "learn_start": 80_000 // 4,
        "update_period": 4, "target_period": 32_000 // 4 // 4, "batch_size": 32,
        "replay.priority_exponent": 0.5, "replay.importance_exponent": 0.4, "discount": 0.99,
        "num_atoms": 51, "v_max": 10.0, "auxiliary": (), "augmentation": "none",
    }  # fmt: skip
    rainbow = fields.values(ATARI_PRESETS["rainbow"])
    assert {name: rainbow[name] for name in published} == published


def test_rainbow_has_the_settings_of_erainbow_where_its_paper_is_silent():
    assert differing("erainbow", "rainbow") == {
        "encoder", "hidden_size", "noisy_sigma", "learning_rate", "n_step", "learn_start",
        "update_period",
    }  # fmt: skip


def test_settings_of_der_plus():
    published = {
        "n_step": 10, "augmentation": "pad_crop", "exploration": "epsilon_greedy",
        "epsilon": 0.01, "epsilon_decay": 5000, "learn_start": 1600, "target_period": 1,
    }  # fmt: skip
    for name in ("der_plus", "der_plus_rcrl"):
        values = fields.values(ATARI_PRESETS[name])
        assert {field: values[field] for field in published} == published


def test_settings_of_curl_s_codebase():
    published = {
        "curl.weight": 1.0, "curl.reduced_weight": 0.01, "curl.momentum": 0.999,
        "curl.hidden_size": 256, "curl.projection_size": 128, "curl.logit_scale": 0.1,
        "curl.importance_weighted": True, "curl.in_priorities": True, "augmentation": "none",
    }  # fmt: skip
    for name in ("curl", "rcrl_curl"):
        preset = ATARI_PRESETS[name]
        values = fields.values(preset)
        assert {f: values[f] for f in published} == published
        agent = make_agent(preset, discrete_spec((84, 84), 6))
        assert agent.run_constants("Alien")["curl"] == 1.0
        for game in ("Pong", "Boxing", "PrivateEye", "Freeway"):
            assert game in ATARI_GAMES
            assert agent.run_constants(game)["curl"] == np.float32(0.01)


def test_a_task_of_weight_zero_is_left_out():
    both = ATARI_PRESETS["rcrl_curl"]
    assert both.tasks == ("return_contrast", "curl")
    assert fields.replace(both, {"curl.weight": 0.0}).tasks == ("return_contrast",)
    assert dataclasses.replace(both, auxiliary_weight=0.0).tasks == ()
