"""SAC's configuration: documentation of every field, rejection of bad values, presets."""

import dataclasses

import pytest

from rcrl_jax.config import fields
from rcrl_jax.config.groups import ControlReturnContrastConfig, ReturnContrastConfig
from rcrl_jax.config.presets import DMC_PRESETS
from rcrl_jax.config.sac import SacConfig

SAC_FIELDS = list(fields.named_fields(SacConfig()))


SAC_BAD_VALUES = [
    ("observation", "sound"),
    ("augmentation", "flip"),
    ("return_contrast.segment_reward", "env_step"),
    ("return_contrast.loss", "hinge"),
    ("return_contrast.discriminator_input", "sum"),
    ("return_contrast.anchors", "prioritised"),
    ("return_contrast.anchors", "rl_batch"),  # 64 anchors beside 512 transitions
    ("return_contrast.positives", "episode"),
    ("precision", "float16"),
    ("auxiliary", ("curling",)),
    ("auxiliary", ("curl", "curl")),
    ("frame_stack", 0),
    ("render_size", 83),
    ("crop_size", 101),
    ("crop_size", 14),
    ("filters", 0),
    ("embedding_size", 0),
    ("hidden_size", 0),
    ("log_std_min", 2.0),
    ("log_std_max", -10.0),
    ("auxiliary_weight", -1.0),
    ("return_contrast.batch_size", 0),
    ("return_contrast.discriminator_hidden", 0),
    ("return_contrast.discriminator_layers", 0),
    ("return_contrast.discriminator_norm", "batch"),
    ("return_contrast.segment_threshold", 0.0),
    ("latent_penalty", -1.0),
    ("decoder_weight_decay", -1.0),
    ("batch_size", 0),
    ("learning_rate", 0.0),
    ("temperature_learning_rate", 0.0),
    ("temperature_beta1", 1.5),
    ("initial_temperature", 0.0),
    ("discount", 1.01),
    ("actor_period", 0),
    ("target_period", 0),
    ("critic_tau", 1.5),
    ("encoder_tau", -0.1),
    ("learn_start", 2),
    ("update_period", 0),
    ("replay.capacity", 7),
    ("replay.resumed_frames", "forgotten"),
    ("evaluation_period", 0),
    ("periodic_episodes", 0),
    ("batch_size", 100_001),  # more than the replay holds
    ("initial_temperature", float("inf")),
    ("log_std_min", float("-inf")),
    ("temperature_beta1", 1.0),
]


@pytest.mark.parametrize(("name", "value"), SAC_BAD_VALUES)
def test_a_bad_value_of_sac_is_refused_with_a_field_s_name(name, value):
    bounded_by = {"render_size": "crop_size", "log_std_max": "log_std_min"}.get(name, name)
    with pytest.raises(ValueError, match=f"^{bounded_by}: "):
        fields.replace(DMC_PRESETS["rcrl_sac"], {name: value})


def test_every_field_of_sac_has_a_bad_value():
    switches = {f.name for f in SAC_FIELDS if type(f.value) is bool}
    assert switches == {
        "return_contrast.positive_excludes_anchor",
        "return_contrast.negative_differs_in_return",
    }
    assert {f.name for f in SAC_FIELDS} - switches == {name for name, _ in SAC_BAD_VALUES}


def test_rl_batch_anchors_need_equal_batch_sizes():
    preset = DMC_PRESETS["rcrl_sac"]
    with pytest.raises(ValueError, match="return_contrast.batch_size = 64 and batch_size = 512"):
        fields.replace(preset, {"return_contrast.anchors": "rl_batch"})
    fields.replace(
        preset, {"return_contrast.anchors": "rl_batch", "return_contrast.batch_size": 512}
    )


def test_both_families_have_the_same_defaults_of_the_return_task_but_one():
    one, other = fields.values(ReturnContrastConfig()), fields.values(ControlReturnContrastConfig())
    assert {name for name in one if one[name] != other[name]} == {"discriminator_input"}


@pytest.mark.parametrize("task", ["curl", "reconstruction"])
def test_tasks_on_images_need_images(task):
    with pytest.raises(ValueError, match=f"^auxiliary: '{task}' needs observation='pixels'"):
        dataclasses.replace(DMC_PRESETS["state_sac"], auxiliary=(task,))
    dataclasses.replace(DMC_PRESETS["state_sac"], auxiliary=("return_contrast",))


def test_the_seven_systems_differ_only_where_they_should():
    def differing(one, other):
        a, b = fields.values(DMC_PRESETS[one]), fields.values(DMC_PRESETS[other])
        return {name for name in a if a[name] != b[name]}

    assert differing("pixel_sac", "sac_aug") == {"augmentation"}
    assert differing("pixel_sac", "sac_ae") == {"auxiliary"}
    for preset in ("curl_sac", "rcrl_sac", "rcrl_curl_sac"):
        assert differing("sac_aug", preset) == {"auxiliary"}
    assert differing("pixel_sac", "state_sac") == {"observation", "frame_stack", "batch_size"}


def test_settings_of_curl_s_tables():
    """The published numbers, written a second time."""
    published = {
        "frame_stack": 3,
        "render_size": 100,
        "crop_size": 84,
        "filters": 32,
        "embedding_size": 50,
        "hidden_size": 1024,
        "log_std_min": -10.0,
        "log_std_max": 2.0,
        "return_contrast.batch_size": 64,
        "return_contrast.segment_threshold": 1.0,
        "return_contrast.segment_reward": "sum",
        "batch_size": 512,
        "learning_rate": 1e-3,
        "temperature_learning_rate": 1e-4,
        "temperature_beta1": 0.5,
        "initial_temperature": 0.1,
        "discount": 0.99,
        "actor_period": 2,
        "target_period": 2,
        "critic_tau": 0.01,
        "encoder_tau": 0.05,
        "learn_start": 1000,
        "update_period": 1,
        "replay.capacity": 100_000,
        "evaluation_period": 10_000,
        "periodic_episodes": 10,
    }
    for preset in ("pixel_sac", "sac_aug", "curl_sac", "rcrl_sac", "rcrl_curl_sac"):
        values = fields.values(DMC_PRESETS[preset])
        assert {name: values[name] for name in published} == published


def test_settings_of_the_preset_that_sees_states():
    values = fields.values(DMC_PRESETS["state_sac"])
    expected = {"observation": "state", "frame_stack": 1, "batch_size": 128, "learning_rate": 1e-3}
    assert {name: values[name] for name in expected} == expected


def test_the_discriminator_of_sac_reads_concatenated_pairs():
    for preset in ("rcrl_sac", "rcrl_curl_sac"):
        values = fields.values(DMC_PRESETS[preset])
        assert values["return_contrast.discriminator_input"] == "concatenation"
