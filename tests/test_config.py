"""Configurations: documentation of every field, rejection of bad values, presets."""

import dataclasses

import pytest

from rcrl_jax import config
from rcrl_jax.config import ATARI_PRESETS, DMC_PRESETS, RainbowConfig, SacConfig

FIELDS = dataclasses.fields(RainbowConfig)


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_every_field_has_a_meaning_and_a_source(field):
    assert len(field.metadata["meaning"]) > 5
    assert "K" in field.metadata["source"] or field.metadata["source"].startswith(("RCRL", "ours"))


def test_help_has_one_line_a_field():
    lines = config.describe_fields(RainbowConfig(batch_size=7)).splitlines()
    assert len(lines) == len(FIELDS)
    assert "--config.batch_size=7: transitions in an update (source: K)" in lines


BAD_VALUES = [
    ("head", "dueling"),
    ("auxiliary", ("curling",)),
    ("auxiliary", ("return_contrast", "return_contrast")),
    ("hidden_size", 0),
    ("contrast_batch_size", 0),
    ("discriminator_hidden", -1),
    ("batch_size", 0),
    ("n_step", 0),
    ("target_period", 0),
    ("update_period", 0),
    ("frame_stack", 0),
    ("max_episode_steps", 0),
    ("evaluation_period", 0),
    ("periodic_episodes", 0),
    ("num_atoms", 1),
    ("v_max", 0.0),
    ("v_max", float("nan")),
    ("noisy_sigma", -0.1),
    ("learning_rate", 0.0),
    ("adam_eps", 0.0),
    ("max_gradient_norm", 0.0),
    ("discount", 1.01),
    ("discount", -0.1),
    ("discount", float("nan")),
    ("priority_exponent", 1.5),
    ("importance_exponent", -0.5),
    ("evaluation_epsilon", 2.0),
    ("auxiliary_weight", -1.0),
    ("replay_capacity", 47),
    ("learn_start", 21),
]


@pytest.mark.parametrize(("name", "value"), BAD_VALUES)
def test_a_bad_value_is_refused_with_the_field_s_name(name, value):
    with pytest.raises(ValueError, match=f"^{name}: "):
        dataclasses.replace(ATARI_PRESETS["rcrl"], **{name: value})


def test_every_numeric_field_has_a_bad_value():
    numeric = {f.name for f in FIELDS if type(f.default) in (int, float)}
    assert numeric <= {name for name, _ in BAD_VALUES}


def test_values_at_the_edge_are_accepted():
    RainbowConfig(discount=1.0, evaluation_epsilon=0.0, num_atoms=2, priority_exponent=0.0)
    RainbowConfig(replay_capacity=48, learn_start=22)
    RainbowConfig(head="state_action", auxiliary=("return_contrast",), auxiliary_weight=0.0)


def test_return_contrast_needs_the_head_whose_embedding_it_trains():
    with pytest.raises(ValueError, match="^auxiliary: .*head='state_action'"):
        RainbowConfig(auxiliary=("return_contrast",))


def test_a_configuration_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        RainbowConfig().batch_size = 3


def differing(one: str, other: str) -> set[str]:
    a, b = ATARI_PRESETS[one], ATARI_PRESETS[other]
    return {f.name for f in FIELDS if getattr(a, f.name) != getattr(b, f.name)}


def test_presets_differ_only_where_the_paper_s_systems_differ():
    assert ATARI_PRESETS.keys() == {"erainbow", "erainbow_sa", "rcrl"}
    assert differing("erainbow", "erainbow_sa") == {"head"}
    assert differing("erainbow_sa", "rcrl") == {"auxiliary"}


def test_settings_of_the_paper_and_its_codebase():
    """The published numbers, typed a second time."""
    published = {
        "hidden_size": 256,
        "num_atoms": 51,
        "v_max": 10.0,
        "noisy_sigma": 0.1,
        "contrast_batch_size": 64,
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
        "replay_capacity": 100_000,
        "priority_exponent": 0.5,
        "importance_exponent": 0.4,
        "frame_stack": 4,
        "max_episode_steps": 27_000,
        "evaluation_period": 10_000,
        "periodic_episodes": 10,
        "evaluation_epsilon": 0.001,
    }
    for preset in ATARI_PRESETS.values():
        assert {name: getattr(preset, name) for name in published} == published


# --- SAC ----------------------------------------------------------------------------------------

SAC_FIELDS = dataclasses.fields(SacConfig)


@pytest.mark.parametrize("field", SAC_FIELDS, ids=lambda field: field.name)
def test_every_field_of_sac_has_a_meaning_and_a_source(field):
    assert len(field.metadata["meaning"]) > 5
    assert field.metadata["source"].startswith(("CURL", "RCRL", "AE", "ours"))


SAC_BAD_VALUES = [
    ("observation", "sound"),
    ("augmentation", "flip"),
    ("segment_reward", "frame"),
    ("precision", "bfloat16"),
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
    ("contrast_batch_size", 0),
    ("discriminator_hidden", 0),
    ("segment_threshold", 0.0),
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
    ("replay_capacity", 7),
    ("evaluation_period", 0),
    ("periodic_episodes", 0),
]


@pytest.mark.parametrize(("name", "value"), SAC_BAD_VALUES)
def test_a_bad_value_of_sac_is_refused_with_a_field_s_name(name, value):
    bounded_by = {"render_size": "crop_size", "log_std_max": "log_std_min"}.get(name, name)
    with pytest.raises(ValueError, match=f"^{bounded_by}: "):
        dataclasses.replace(DMC_PRESETS["rcrl_sac"], **{name: value})


def test_every_field_of_sac_has_a_bad_value():
    assert {f.name for f in SAC_FIELDS} == {name for name, _ in SAC_BAD_VALUES}


@pytest.mark.parametrize("task", ["curl", "reconstruction"])
def test_tasks_on_images_need_images(task):
    with pytest.raises(ValueError, match=f"^auxiliary: '{task}' needs observation='pixels'"):
        dataclasses.replace(DMC_PRESETS["state_sac"], auxiliary=(task,))
    dataclasses.replace(DMC_PRESETS["state_sac"], auxiliary=("return_contrast",))


def test_the_seven_systems_differ_only_where_they_should():
    def differing(one, other):
        a, b = DMC_PRESETS[one], DMC_PRESETS[other]
        return {f.name for f in SAC_FIELDS if getattr(a, f.name) != getattr(b, f.name)}

    assert DMC_PRESETS.keys() == {
        "state_sac", "pixel_sac", "sac_ae", "sac_aug", "curl_sac", "rcrl_sac", "rcrl_curl_sac",
    }  # fmt: skip
    assert differing("pixel_sac", "sac_aug") == {"augmentation"}
    assert differing("pixel_sac", "sac_ae") == {"auxiliary"}
    for preset in ("curl_sac", "rcrl_sac", "rcrl_curl_sac"):
        assert differing("sac_aug", preset) == {"auxiliary"}
    assert differing("pixel_sac", "state_sac") == {"observation", "frame_stack", "batch_size"}


def test_settings_of_curl_s_tables():
    """The published numbers, typed a second time."""
    published = {
        "frame_stack": 3,
        "render_size": 100,
        "crop_size": 84,
        "filters": 32,
        "embedding_size": 50,
        "hidden_size": 1024,
        "log_std_min": -10.0,
        "log_std_max": 2.0,
        "contrast_batch_size": 64,
        "segment_threshold": 1.0,
        "segment_reward": "agent_step",
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
        "replay_capacity": 100_000,
        "evaluation_period": 10_000,
        "periodic_episodes": 10,
    }
    for preset in ("pixel_sac", "sac_aug", "curl_sac", "rcrl_sac", "rcrl_curl_sac"):
        assert {name: getattr(DMC_PRESETS[preset], name) for name in published} == published
