"""Configurations of world models: documented fields, bad values, what does not fit together."""

import pytest

from rcrl_jax.config import fields, groups
from rcrl_jax.config.presets import WORLD_MODEL_PRESETS
from rcrl_jax.config.world_models import DreamerConfig, PlanetConfig, SlacConfig
from rcrl_jax.envs import dmc

CONFIGS = (DreamerConfig(), PlanetConfig(), SlacConfig())
FIELDS = [(config, field) for config in CONFIGS for field in fields.named_fields(config)]


@pytest.mark.parametrize(
    "field", [f for _, f in FIELDS], ids=[f"{type(c).__name__}-{f.name}" for c, f in FIELDS]
)
def test_every_field_of_world_models_has_a_meaning_and_a_source(field):
    assert len(field.metadata["meaning"]) > 5
    for source in field.metadata["source"].split(" / "):
        assert source.split()[0] in fields.SOURCES


BAD_VALUES = {
    "dreamer": [
        ("action_repeat", -1),
        ("precision", "float16"),
        ("batch_size", 0),
        ("batch_size", 300_000),  # more than the replay holds
        ("discount", 1.5),
        ("learn_start", 0),
        ("update_period", 0),
        ("updates", 0),
        ("replay.capacity", 51),  # less than a window and what led to it
        ("replay.resumed_frames", "forgotten"),
        ("evaluation_period", 0),
        ("periodic_episodes", 0),
        ("filters", 0),
        ("deter_size", 0),
        ("stoch_size", 0),
        ("hidden_size", 0),
        ("head_size", 0),
        ("auxiliary", ("curl",)),
        ("auxiliary_weight", -1.0),
        ("context", 0),
        ("sequence_length", 101),
        ("free_nats", -1.0),
        ("model_learning_rate", 0.0),
        ("adam_epsilon", 0.0),
        ("max_gradient_norm", 0.0),
        ("exploration_std", -0.1),
        ("first_updates", 0),
        ("horizon", 1),
        ("return_lambda", 1.1),
        ("value_learning_rate", 0.0),
        ("actor_learning_rate", 0.0),
        ("initial_std", 0.0),
        ("mean_scale", 0.0),
        ("mode_samples", 0),
        ("return_contrast.batch_size", 300_000),
        ("return_contrast.anchors", "rl_batch"),
    ],
    "planet": [
        ("reward_scale", -1.0),
        ("horizon", 0),
        ("iterations", 0),
        ("candidates", 0),
        ("best_candidates", 1001),
    ],
    "slac": [
        ("z1_size", 0),
        ("z2_size", 0),
        ("log_std_min", 2.0),
        ("log_std_max", -20.0),
        ("pixel_variance", 0.0),
        ("sequence_length", 0),
        ("model_batch_size", 257),
        ("pretraining_updates", -1),
        ("learning_rate", 0.0),
        ("initial_temperature", 0.0),
        ("critic_tau", 1.5),
    ],
}


@pytest.mark.parametrize(
    ("preset", "name", "value"),
    [(preset, *bad) for preset, values in BAD_VALUES.items() for bad in values],
)
def test_a_bad_value_of_a_world_model_is_refused_with_a_field_s_name(preset, name, value):
    bounded_by = {"log_std_max": "log_std_min"}.get(name, name)
    with pytest.raises(ValueError, match=f"^{bounded_by}: "):
        fields.replace(WORLD_MODEL_PRESETS[preset], {name: value})


def test_every_field_of_world_models_has_a_bad_value():
    for config, preset in zip(CONFIGS, BAD_VALUES, strict=True):
        own = {field.name for field in fields.named_fields(config)}
        tested = {name for values in (BAD_VALUES["dreamer"], BAD_VALUES[preset])
                  for name, _ in values}  # fmt: skip
        assert {name for name in own - tested if not name.startswith("return_contrast.")} == set()


def test_settings_of_the_authors_code():
    """github.com/danijar/dreamer, google-research/planet, alexlee-gk/slac."""
    dreamer, planet, slac = (
        fields.values(WORLD_MODEL_PRESETS[name]) for name in ("dreamer", "planet", "slac")
    )
    for values in (dreamer, planet):
        shared = {
            "batch_size": 50, "sequence_length": 50, "free_nats": 3.0, "deter_size": 200,
            "stoch_size": 30, "hidden_size": 200, "learn_start": 5000, "update_period": 1000,
            "updates": 100, "exploration_std": 0.3,
        }  # fmt: skip
        assert {name: values[name] for name in shared} == shared
    own = {
        "action_repeat": 2, "model_learning_rate": 6e-4, "value_learning_rate": 8e-5,
        "actor_learning_rate": 8e-5, "adam_epsilon": 1e-7, "max_gradient_norm": 100.0,
        "horizon": 15, "return_lambda": 0.95, "discount": 0.99, "first_updates": 100,
        "head_size": 400, "initial_std": 5.0,
    }  # fmt: skip
    assert {name: dreamer[name] for name in own} == own
    own = {
        "action_repeat": 0, "model_learning_rate": 1e-3, "adam_epsilon": 1e-4,
        "max_gradient_norm": 1000.0, "reward_scale": 10.0, "horizon": 12, "iterations": 10,
        "candidates": 1000, "best_candidates": 100, "first_updates": 101, "head_size": 300,
    }  # fmt: skip
    assert {name: planet[name] for name in own} == own
    own = {
        "action_repeat": 4, "batch_size": 256, "model_batch_size": 32, "sequence_length": 8,
        "pretraining_updates": 100_000, "learn_start": 10_000, "learning_rate": 3e-4,
        "model_learning_rate": 1e-4, "critic_tau": 0.005, "initial_temperature": 1.0,
        "pixel_variance": 0.1, "z1_size": 32, "z2_size": 256, "replay.capacity": 100_000,
        "adam_epsilon": 1e-8, "log_std_min": -20.0, "log_std_max": 2.0,
    }  # fmt: skip
    assert {name: slac[name] for name in own} == own


def test_dreamer_with_the_return_task_differs_in_nothing_else():
    one, other = (fields.values(WORLD_MODEL_PRESETS[n]) for n in ("dreamer", "dreamer_rcrl"))
    assert {name for name in one if one[name] != other[name]} == {"auxiliary"}


@pytest.mark.parametrize(
    ("preset", "changes", "action_repeat", "message"),
    [
        ("dreamer", {}, 25, "^sequence_length: windows of 50 frames are longer than the 41"),
        ("slac", {"sequence_length": 99}, 20, "^sequence_length: windows of 100 frames"),
        ("dreamer", {"replay.capacity": 520}, 2, "^replay.capacity: must be at least 551"),
        ("planet", {"learn_start": 900}, 8, "^learn_start: must be at least 1000"),
    ],
)
def test_windows_that_do_not_fit_the_episodes_are_refused(preset, changes, action_repeat, message):
    config = fields.replace(WORLD_MODEL_PRESETS[preset], changes)
    with pytest.raises(ValueError, match=message):
        groups.check_run(config, 10_000, dmc.DMC_TASKS, action_repeat)


def test_a_run_must_reach_its_first_update():
    config = WORLD_MODEL_PRESETS["planet"]
    groups.check_run(config, 626, dmc.DMC_TASKS, 8)
    with pytest.raises(ValueError, match="end before the first update, which comes after 625"):
        groups.check_run(config, 625, dmc.DMC_TASKS, 8)
