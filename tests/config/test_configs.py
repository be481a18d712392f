"""The configurations of all families: documented fields, refused values, published settings."""

import dataclasses

import numpy as np
import pytest

from rcrl_jax.agents.make_agent import make_agent
from rcrl_jax.agents.rainbow.config import RainbowConfig
from rcrl_jax.config import base, fields
from rcrl_jax.config.presets import ATARI_PRESETS, DMC_PRESETS, MINATAR_PRESETS, all_presets
from rcrl_jax.envs import dmc
from rcrl_jax.envs.atari import ATARI_GAMES
from rcrl_jax.envs.protocol import discrete_spec

PRESETS = all_presets()
FAMILIES = ("rcrl", "minatar_rcrl", "rcrl_sac", "dreamer", "planet", "slac", "simple")
of_each_family = pytest.mark.parametrize("preset", FAMILIES)


@of_each_family
def test_every_field_has_a_meaning_and_a_source(preset):
    for field in fields.named_fields(PRESETS[preset]):
        assert len(field.metadata["meaning"]) > 5, field.name
        for source in field.metadata["source"].split(" / "):
            assert source.split()[0] in fields.SOURCES, field.name


def test_a_preset_knows_which_fields_have_no_effect():
    unused = {preset: fields.without_effect(PRESETS[preset]) for preset in PRESETS}
    of_pixels = {"render_size", "crop_size", "augmentation", "filters", "embedding_size"}
    assert of_pixels <= unused["state_sac"].keys()
    assert not of_pixels & unused["pixel_sac"].keys()
    of_samples = {name for name in unused["slac"] if name.startswith("return_contrast.")}
    assert unused["slac"].keys() == of_samples and len(of_samples) == 9
    # Instruments read which returns are equal.
    assert "return_contrast.segment_threshold" not in of_samples
    assert not any(name.startswith("return_contrast.") for name in unused["rcrl_sac"])
    assert {"noisy_sigma", "curl.weight"} <= unused["der_plus_rcrl"].keys()
    assert "epsilon" not in unused["der_plus"] and "epsilon" in unused["rcrl"]
    assert "life_loss_ends_episode" in unused["minatar_rcrl"]
    assert "life_loss_ends_episode" not in unused["rcrl"]
    assert "stochastic.bits" in unused["simple"] and "deterministic.filters" not in unused["simple"]
    assert "replay.resumed_frames" in unused["state_sac"]
    assert not any("replay.resumed_frames" in unused[name] for name in ("pixel_sac", "dreamer"))


@pytest.mark.parametrize(
    ("preset", "changes", "prefixes"),
    [
        ("rcrl", {"auxiliary_weight": 0.0}, ("return_contrast.",)),
        ("rcrl_sac", {"auxiliary_weight": 0.0}, ("return_contrast.",)),
        ("dreamer_rcrl", {"auxiliary_weight": 0.0}, ("return_contrast.",)),
        ("sac_ae", {"auxiliary_weight": 0.0}, ("latent_penalty", "decoder_weight_decay")),
        ("curl", {"auxiliary_weight": 0.0}, ("curl.",)),
        ("curl", {"curl.weight": 0.0}, ("curl.",)),
        ("curl", {"curl.reduced_games": ()}, ("curl.reduced_weight",)),
        ("rcrl", {"replay.priority_exponent": 0.0}, ("replay.importance_exponent",)),
        (
            "curl",
            {"replay.priority_exponent": 0.0},
            ("replay.importance_exponent", "curl.importance_weighted", "curl.in_priorities"),
        ),
    ],
)
def test_a_value_of_zero_leaves_other_fields_without_effect(preset, changes, prefixes):
    before, after = PRESETS[preset], fields.replace(PRESETS[preset], changes)
    expected = {
        field.name
        for field in fields.named_fields(before)
        if field.name.startswith(prefixes) and not field.metadata["measures"]
    }
    found = fields.without_effect(after).keys() - fields.without_effect(before).keys()
    assert found == expected - changes.keys()


def test_what_a_field_needs_names_fields_or_the_game():
    for preset in PRESETS.values():
        known = {field.name for field in fields.named_fields(preset)} | {"auxiliary", "observation"}
        for field in fields.named_fields(preset):
            wanted = {one.wanted for one in field.conditions} - {"the game has lives"}
            assert all(text.split()[0] in known for text in wanted), field.name


def test_shared_changes_are_left_out_where_they_have_no_effect():
    changes = {"epsilon": 0.5, "batch_size": 8}
    greedy, noisy = PRESETS["der_plus"], PRESETS["rcrl"]
    assert fields.replace_used(greedy, changes) == fields.replace(greedy, changes)
    assert fields.replace_used(noisy, changes) == fields.replace(noisy, {"batch_size": 8})


# Numbers that must exceed 0, must not exceed 1, or may be below 0; all others may be 0 or more.
POSITIVE = {
    "v_max", "noisy_sigma", "learning_rate", "temperature_learning_rate", "model_learning_rate",
    "value_learning_rate", "actor_learning_rate", "adam_eps", "adam_epsilon", "max_gradient_norm",
    "return_contrast.segment_threshold", "initial_temperature", "curl.logit_scale", "initial_std",
    "mean_scale", "pixel_variance",
}  # fmt: skip
FRACTIONS = {
    "curl.momentum", "epsilon", "discount", "replay.priority_exponent", "critic_tau",
    "replay.importance_exponent", "evaluation_epsilon", "temperature_beta1", "encoder_tau",
    "return_lambda",
}  # fmt: skip
ANY_SIGN = {"log_std_min", "log_std_max"}
MAY_BE_ZERO = {  # of the integers
    "action_repeat", "pretraining_updates", "deterministic.double_steps", "stochastic.double_steps",
}  # fmt: skip


def refused_values(field: fields.NamedField) -> list:
    """What no field of its kind accepts; a new field needs no entry if 0 or more is its range."""
    if isinstance(field.value, bool):
        return []
    if isinstance(field.value, int):
        return [-1 if field.name in MAY_BE_ZERO else 0, 2**31]
    if isinstance(field.value, float):
        return [
            float("nan"), float("inf"), -float("inf"),
            *[-0.1] * (field.name not in ANY_SIGN),
            *[0.0] * (field.name in POSITIVE and field.value > 0),  # not where 0 is off
            *[1.01] * (field.name in FRACTIONS),
        ]  # fmt: skip
    if isinstance(field.value, tuple):
        return [("Pong", "Pong"), ("return_contrast", "return_contrast"), (3,)]
    return ["nonsense"]


@of_each_family
def test_a_value_of_no_sense_is_refused_with_the_field_s_name(preset):
    for field in fields.named_fields(PRESETS[preset]):
        for value in refused_values(field):
            with pytest.raises(ValueError, match=f"^{field.name}: "):
                fields.replace(PRESETS[preset], {field.name: value})


BAD_VALUES = {
    "rcrl": [
        ("return_contrast.anchors", "rl_batch"),  # 64 anchors beside 32 transitions
        ("num_atoms", 1),
        ("replay.capacity", 47),
        ("learn_start", 21),
        ("batch_size", 100_001),  # more than the replay holds
        ("return_contrast.batch_size", 100_001),
        ("learning_rate", 1e-60),  # 0 in float32
        ("v_max", 1e39),  # infinite in float32
    ],
    "minatar_rcrl": [
        ("auxiliary", ("curl",)),  # it crops images
        ("augmentation", "pad_crop"),
        ("augmentation", "crop_pad_crop"),
    ],
    "rcrl_sac": [
        ("return_contrast.anchors", "rl_batch"),
        ("crop_size", 101),
        ("crop_size", 14),
        ("log_std_min", 2.0),
        ("learn_start", 2),
        ("replay.capacity", 7),
        ("batch_size", 100_001),
        ("temperature_beta1", 1.0),
    ],
    "curl_sac": [("crop_size", 100)],  # each crop would be the whole frame
    "simple": [("adam_b1", 0.99999999), ("deterministic.dropout", 0.99999999)],  # 1 in float32
    "dreamer_rcrl": [
        ("return_contrast.anchors", "rl_batch"),
        ("batch_size", 300_000),
        ("return_contrast.batch_size", 300_000),
        ("auxiliary", ("curl",)),
        ("sequence_length", 101),
        ("horizon", 1),
    ],
    "planet": [("best_candidates", 1001)],
    "slac": [("log_std_min", 2.0), ("model_batch_size", 257)],
}


@pytest.mark.parametrize(
    ("preset", "name", "value"),
    [(preset, *bad) for preset in BAD_VALUES for bad in BAD_VALUES[preset]],
)
def test_a_value_that_does_not_fit_is_refused_with_the_field_s_name(preset, name, value):
    with pytest.raises(ValueError, match=f"^{name}: "):
        fields.replace(PRESETS[preset], {name: value})


def test_boundary_values_are_accepted():
    RainbowConfig(discount=1.0, evaluation_epsilon=0.0, num_atoms=2, learn_start=22)
    fields.replace(RainbowConfig(), {"replay.priority_exponent": 0.0, "replay.capacity": 48})
    RainbowConfig(head="state_action", auxiliary=("return_contrast",), auxiliary_weight=0.0)


def test_tasks_need_the_head_that_they_train_or_images():
    with pytest.raises(ValueError, match="^auxiliary: .* needs head to be one of state_action, "):
        RainbowConfig(auxiliary=("return_contrast",))
    of_states = DMC_PRESETS["state_sac"]
    for task in ("curl", "reconstruction"):
        with pytest.raises(ValueError, match=f"^auxiliary: '{task}' needs observation to be"):
            dataclasses.replace(of_states, auxiliary=(task,))
    dataclasses.replace(of_states, auxiliary=("return_contrast",))
    with pytest.raises(ValueError, match="^auxiliary: 'curl' reads images, this agent reads vec"):
        RainbowConfig(encoder="dense", auxiliary=("curl",))


@pytest.mark.parametrize(("preset", "transitions"), [("rcrl", 32), ("rcrl_sac", 512)])
def test_rl_batch_anchors_need_equal_batch_sizes(preset, transitions):
    as_rl_batch = {"return_contrast.anchors": "rl_batch"}
    message = f"return_contrast.batch_size = 64 and batch_size = {transitions}$"
    with pytest.raises(ValueError, match=message):
        fields.replace(PRESETS[preset], as_rl_batch)
    for name, size in (("return_contrast.batch_size", transitions), ("batch_size", 64)):
        fields.replace(PRESETS[preset], as_rl_batch | {name: size})


def test_a_task_of_weight_zero_is_left_out():
    both = ATARI_PRESETS["rcrl_curl"]
    assert both.tasks_in_use == ("return_contrast", "curl")
    without_curl = fields.replace(both, {"curl.weight": 0.0})
    assert without_curl.tasks_in_use == ("return_contrast",)
    assert dataclasses.replace(both, auxiliary_weight=0.0).tasks_in_use == ()


@pytest.mark.parametrize(
    ("preset", "changes", "action_repeat", "message"),
    [
        ("dreamer", {}, 25, "^sequence_length: windows of 50 frames are longer than the 41"),
        ("slac", {"sequence_length": 99}, 20, "^sequence_length: windows of 100 frames"),
        ("dreamer", {"replay.capacity": 557}, 2, "^replay.capacity: must be at least 558"),
        ("slac", {"replay.capacity": 259}, 4, "^replay.capacity: must be at least 260"),
        ("planet", {"learn_start": 900}, 8, "^learn_start: must be at least 1000"),
    ],
)
def test_windows_that_do_not_fit_the_episodes_are_refused(preset, changes, action_repeat, message):
    config = fields.replace(PRESETS[preset], changes)
    with pytest.raises(ValueError, match=message):
        base.check_run(config, 10_000, dmc.DMC_TASKS, action_repeat)


def test_a_run_must_reach_its_first_update():
    base.check_run(PRESETS["planet"], 626, dmc.DMC_TASKS, 8)
    with pytest.raises(ValueError, match="end before the first update, which comes after 625"):
        base.check_run(PRESETS["planet"], 625, dmc.DMC_TASKS, 8)
    # SimPLe's last step updates the policy.
    base.check_run(PRESETS["simple"], 3200, ())
    with pytest.raises(ValueError, match="end before the first update, which comes after 3200"):
        base.check_run(PRESETS["simple"], 3199, ())


# --- presets ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "names"),
    [
        ("erainbow", "erainbow_sa", {"head"}),
        ("erainbow_sa", "rcrl", {"auxiliary"}),
        ("erainbow", "curl", {"auxiliary"}),
        ("erainbow", "erainbow_aug", {"augmentation"}),
        ("rcrl", "rcrl_curl", {"auxiliary"}),
        ("erainbow_sa", "der_plus", {"n_step", "augmentation", "exploration", "target_period"}),
        ("der_plus", "der_plus_rcrl", {"auxiliary"}),
        ("erainbow_sa", "erainbow_sa_normal", {"embedding_init"}),
        ("rcrl", "rcrl_normal", {"embedding_init", "return_contrast.discriminator_input"}),
        # Where the paper of Rainbow is silent, it has the settings of `erainbow`.
        (
            "erainbow",
            "rainbow",
            {
                "encoder", "hidden_size", "noisy_sigma", "learning_rate", "n_step", "learn_start",
                "update_period",
            },
        ),
        ("minatar_erainbow", "minatar_erainbow_sa", {"head"}),
        ("minatar_erainbow_sa", "minatar_rcrl", {"auxiliary"}),
        (
            "rcrl",
            "minatar_rcrl",
            {
                "encoder", "hidden_size", "return_contrast.discriminator_hidden", "learning_rate",
                "n_step", "learn_start", "warmup", "frame_stack", "max_episode_steps",
                "target_period", "evaluation_period", "curl.reduced_games",
            },
        ),
        ("pixel_sac", "sac_aug", {"augmentation"}),
        ("pixel_sac", "sac_ae", {"auxiliary"}),
        ("sac_aug", "curl_sac", {"auxiliary"}),
        ("sac_aug", "rcrl_sac", {"auxiliary"}),
        ("sac_aug", "rcrl_curl_sac", {"auxiliary"}),
        ("pixel_sac", "state_sac", {"observation", "frame_stack", "batch_size"}),
        ("dreamer", "dreamer_rcrl", {"auxiliary"}),
    ],
)  # fmt: skip
def test_presets_differ_only_where_the_paper_s_systems_differ(one, other, names):
    a, b = (fields.values(PRESETS[preset]) for preset in (one, other))
    assert {name for name in a if a[name] != b[name]} == names


def test_families_have_the_same_defaults_of_the_return_task_but_one():
    """The discriminator of control reads concatenated pairs."""
    one, other = (
        fields.values(config())
        for config in (base.ReturnContrastConfig, base.ControlReturnContrastConfig)
    )
    assert {name: other[name] for name in one if one[name] != other[name]} == {
        "discriminator_input": "concatenation"
    }


def assert_settings(preset: str, expected: dict) -> None:
    values = fields.values(PRESETS[preset])
    assert {name: values[name] for name in expected} == expected


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
        "return_contrast.anchors": "as_transitions",
        "return_contrast.positives": "segment",
        "return_contrast.positive_excludes_anchor": False,
        "return_contrast.negative_differs_in_return": False,
    }
    assert_settings("rcrl", chosen)
    first_reading = {
        "embedding_init": "normal", "return_contrast.discriminator_input": "concatenation",
    }  # fmt: skip
    assert_settings("rcrl_normal", chosen | first_reading)


def test_settings_of_the_paper_and_its_codebase():
    """The published numbers, written a second time."""
    published = {
        "hidden_size": 256, "num_atoms": 51, "v_max": 10.0, "noisy_sigma": 0.1,
        "return_contrast.batch_size": 64, "auxiliary_weight": 1.0, "batch_size": 32,
        "learning_rate": 1e-4, "adam_eps": 1.5e-4, "max_gradient_norm": 10.0, "discount": 0.99,
        "n_step": 20, "target_period": 2000, "learn_start": 1600, "update_period": 1,
        "replay.capacity": 100_000, "replay.priority_exponent": 0.5,
        "replay.importance_exponent": 0.4, "frame_stack": 4, "max_episode_steps": 27_000,
        "evaluation_period": 10_000, "periodic_episodes": 10, "evaluation_epsilon": 0.001,
    }  # fmt: skip
    for preset in ("erainbow", "erainbow_sa", "erainbow_aug", "curl", "rcrl", "rcrl_curl"):
        assert_settings(preset, published)


def test_settings_of_the_small_agents():
    chosen = {
        "encoder": "minatar", "hidden_size": 128, "return_contrast.discriminator_hidden": 128,
        "learning_rate": 5e-4, "n_step": 5, "batch_size": 32, "update_period": 1,
        "learn_start": 1000, "warmup": "uniform", "frame_stack": 1, "max_episode_steps": 5000,
        "evaluation_period": 6000,
        "target_period": 500, "replay.capacity": 100_000, "exploration": "noise",
    }  # fmt: skip
    for preset in MINATAR_PRESETS:
        assert_settings(preset, chosen)
    for preset in ATARI_PRESETS:
        assert_settings(preset, {"warmup": "agent"})


def test_settings_of_the_original_rainbow():
    """Frames of the paper are four agent steps: 80k frames before learning, 32k for the target."""
    published = {
        "encoder": "nature", "head": "state", "hidden_size": 512, "noisy_sigma": 0.5,
        "learning_rate": 6.25e-5, "adam_eps": 1.5e-4, "n_step": 3, "learn_start": 80_000 // 4,
        "update_period": 4, "target_period": 32_000 // 4 // 4, "batch_size": 32,
        "replay.priority_exponent": 0.5, "replay.importance_exponent": 0.4, "discount": 0.99,
        "num_atoms": 51, "v_max": 10.0, "auxiliary": (), "augmentation": "none",
    }  # fmt: skip
    assert_settings("rainbow", published)


def test_settings_of_der_plus():
    published = {
        "n_step": 10, "augmentation": "pad_crop", "exploration": "epsilon_greedy",
        "epsilon": 0.01, "epsilon_decay": 5000, "learn_start": 1600, "target_period": 1,
    }  # fmt: skip
    for preset in ("der_plus", "der_plus_rcrl"):
        assert_settings(preset, published)


def test_settings_of_curl_s_codebase():
    published = {
        "curl.weight": 1.0, "curl.reduced_weight": 0.01, "curl.momentum": 0.999,
        "curl.hidden_size": 256, "curl.projection_size": 128, "curl.logit_scale": 0.1,
        "curl.importance_weighted": True, "curl.in_priorities": True, "augmentation": "none",
    }  # fmt: skip
    for preset in ("curl", "rcrl_curl"):
        assert_settings(preset, published)
        agent = make_agent(PRESETS[preset], discrete_spec((84, 84), 6))
        assert agent.run_constants("Alien")["curl"] == 1.0
        for game in ("Pong", "Boxing", "PrivateEye", "Freeway"):
            assert game in ATARI_GAMES
            assert agent.run_constants(game)["curl"] == np.float32(0.01)


def test_settings_of_curl_s_tables():
    """The published numbers, written a second time."""
    published = {
        "frame_stack": 3, "render_size": 100, "crop_size": 84, "filters": 32,
        "embedding_size": 50, "hidden_size": 1024, "log_std_min": -10.0, "log_std_max": 2.0,
        "return_contrast.batch_size": 64, "return_contrast.segment_threshold": 1.0,
        "return_contrast.segment_reward": "sum", "batch_size": 512, "learning_rate": 1e-3,
        "temperature_learning_rate": 1e-4, "temperature_beta1": 0.5, "initial_temperature": 0.1,
        "discount": 0.99, "actor_period": 2, "target_period": 2, "critic_tau": 0.01,
        "encoder_tau": 0.05, "learn_start": 1000, "update_period": 1, "replay.capacity": 100_000,
        "evaluation_period": 10_000, "periodic_episodes": 10,
        "return_contrast.discriminator_input": "concatenation",
    }  # fmt: skip
    for preset in ("pixel_sac", "sac_aug", "curl_sac", "rcrl_sac", "rcrl_curl_sac"):
        assert_settings(preset, published)
    of_states = {"observation": "state", "frame_stack": 1, "batch_size": 128, "learning_rate": 1e-3}
    assert_settings("state_sac", of_states)
    penalties = {"latent_penalty": 1e-6, "decoder_weight_decay": 1e-7}
    assert_settings("sac_ae", {**penalties, "batch_size": 512, "replay.capacity": 100_000})


def test_settings_of_simple():
    """tensorflow/tensor2tensor; see docs/decisions.md."""
    assert_settings("simple", {
        "model": "deterministic", "frame_height": 105, "frame_width": 80, "frame_stack": 4,
        "most_noops": 32, "max_episode_steps": 27_000, "model_batch_size": 4,
        "model_gradient_norm": 1.0, "real_rollout": 3200, "real_agents": 16, "model_rollout": 50,
        "model_agents": 16, "minibatch_steps": 20, "passes": 3, "discount": 0.99,
        "advantage_lambda": 0.95, "ratio_clip": 0.1, "entropy_weight": 0.01,
        "policy_learning_rate": 1e-4, "adam_b1": 0.85, "adam_b2": 0.997, "adam_epsilon": 1e-6,
        "policy_gradient_norm": 0.5, "evaluation_period": 6400, "periodic_episodes": 32,
        "deterministic.filters": 64, "deterministic.dropout": 0.1,
        "deterministic.middle_dropout": 0.5, "deterministic.target_frames": 1,
        "deterministic.cutoff": 0.01, "deterministic.pixel_noise": 0.05,
        "stochastic.filters": 96, "stochastic.dropout": 0.15, "stochastic.target_frames": 6,
        "stochastic.cutoff": 0.03, "stochastic.bits": 128, "stochastic.flip_rate": 0.1,
        "stochastic.most_predicted": 0.5, "stochastic.most_used": 0.8, "stochastic.ramp": 40_000,
        "stochastic.predictor_size": 128, "stochastic.state_filters": 64,
    })  # fmt: skip


def test_settings_of_the_authors_code():
    """github.com/google-research/dreamer, google-research/planet, alexlee-gk/slac."""
    shared = {
        "batch_size": 50, "sequence_length": 50, "free_nats": 3.0, "deter_size": 200,
        "stoch_size": 30, "hidden_size": 200, "learn_start": 5000, "update_period": 1000,
        "updates": 100, "exploration_std": 0.3, "filters": 32, "evaluation_period": 10_000,
        "periodic_episodes": 1,
    }  # fmt: skip
    dreamer = {
        "action_repeat": 2, "model_learning_rate": 6e-4, "value_learning_rate": 8e-5,
        "actor_learning_rate": 8e-5, "adam_epsilon": 1e-4, "max_gradient_norm": 100.0,
        "cell": "block", "free_nats_of": "step", "pixel_noise": True,
        "horizon": 15, "return_lambda": 0.95, "discount": 0.99, "first_updates": 100,
        "head_size": 400, "initial_std": 5.0, "mean_scale": 5.0, "mode_samples": 100,
    }  # fmt: skip
    planet = {
        "action_repeat": 0, "model_learning_rate": 1e-3, "adam_epsilon": 1e-4,
        "max_gradient_norm": 1000.0, "reward_scale": 10.0, "horizon": 12, "iterations": 10,
        "candidates": 1000, "best_candidates": 100, "first_updates": 101, "head_size": 300,
    }  # fmt: skip
    slac = {
        "action_repeat": 4, "batch_size": 256, "model_batch_size": 32, "sequence_length": 8,
        "pretraining_updates": 100_000, "learn_start": 10_000, "learning_rate": 3e-4,
        "model_learning_rate": 1e-4, "critic_tau": 0.005, "initial_temperature": 1.0,
        "pixel_variance": 0.1, "z1_size": 32, "z2_size": 256, "replay.capacity": 100_000,
        "adam_epsilon": 1e-8, "log_std_min": -20.0, "log_std_max": 2.0, "filters": 32,
        "hidden_size": 256, "discount": 0.99, "periodic_episodes": 10,
    }  # fmt: skip
    assert_settings("dreamer", shared | dreamer)
    assert_settings("planet", shared | planet)
    assert_settings("slac", slac)
