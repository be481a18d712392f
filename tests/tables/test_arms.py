"""Arms are named by today's presets; what is no part of the agent does not change the name."""

import pytest

from rcrl_jax.config import fields, presets
from rcrl_jax.config.choices import TASKS, Task
from rcrl_jax.runs import manifest
from rcrl_jax.tables import arms

ATARI, DMC = presets.ATARI_PRESETS, presets.DMC_PRESETS


def arm(preset, game, config):
    described = manifest.describe_run(preset, config, game, 0, 1, "envpool")
    return arms.arm_of(preset, game, described["config"])


@pytest.mark.parametrize(
    ("preset", "game"),
    [*((p, "Pong") for p in ATARI), *((p, "cheetah_run") for p in DMC)],
)
def test_every_preset_is_its_own_arm(preset, game):
    assert arm(preset, game, arms.presets_of(game)[preset]) == preset


@pytest.mark.parametrize(
    ("preset", "changes", "name"),
    [
        ("rcrl", {"embedding_init": "normal"}, "rcrl(embedding_init=normal)"),
        ("rcrl", {"n_step": 5, "batch_size": 16}, "rcrl(batch_size=16, n_step=5)"),
        ("rcrl", {"curl.weight": 2.0}, "rcrl"),  # it has no CURL
        ("rcrl_curl", {"curl.weight": 2.0}, "rcrl_curl(curl.weight=2.0)"),
        ("erainbow_sa", {"return_contrast.batch_size": 8, "auxiliary_weight": 0.5}, "erainbow_sa"),
        ("erainbow", {"embedding_init": "normal"}, "erainbow"),  # its head reads no actions
        ("erainbow", {"epsilon": 0.5}, "erainbow"),  # it explores by noise
        ("der_plus", {"epsilon": 0.5}, "der_plus(epsilon=0.5)"),
        ("der_plus", {"noisy_sigma": 0.7}, "der_plus"),  # it has no noisy layers
        ("erainbow", {"noisy_sigma": 0.7}, "erainbow(noisy_sigma=0.7)"),
        ("rcrl", {"evaluation_period": 7, "evaluation_epsilon": 0.1}, "rcrl"),
        ("erainbow_sa", {"auxiliary": ("return_contrast",)}, "rcrl"),
        ("erainbow_sa", {"embedding_init": "normal"}, "erainbow_sa_normal"),
        ("rcrl_curl", {"auxiliary": ()}, "erainbow_sa"),
        ("erainbow", {"auxiliary": ("curl",), "n_step": 3}, "erainbow(auxiliary=curl, n_step=3)"),
        (  # the configuration of the study's control, with other samples
            "rcrl",
            {"return_contrast.positives": "equal_return"}
            | {"return_contrast.negative_differs_in_return": True},
            "rcrl(return_contrast.positives=equal_return, "
            "return_contrast.negative_differs_in_return=True)",
        ),
    ],
)
def test_changed_fields_of_the_agent_are_in_its_name(preset, changes, name):
    assert arm(preset, "Pong", fields.replace(ATARI[preset], changes)) == name


@pytest.mark.parametrize(
    ("preset", "game", "changes", "name"),
    [
        ("state_sac", "cheetah_run", {"crop_size": 80, "render_size": 90, "filters": 4}, ""),
        ("sac_aug", "cheetah_run", {"filters": 4}, "(filters=4)"),
        ("slac", "cheetah_run", {"return_contrast.loss": "cross_entropy"}, ""),
        ("slac", "cheetah_run", {"return_contrast.segment_threshold": 2.0}, ""),  # measures
        ("simple", "Pong", {"stochastic.filters": 8}, ""),
        ("simple", "Pong", {"deterministic.filters": 8}, "(deterministic.filters=8)"),
        (
            "simple",
            "Pong",
            {"model": "stochastic", "deterministic.filters": 8},
            "(model=stochastic)",
        ),
        (
            "rcrl",
            "Pong",
            {"replay.priority_exponent": 0.0, "replay.importance_exponent": 0.7},
            "(replay.priority_exponent=0.0)",
        ),
        (
            "rcrl",
            "Pong",
            {"auxiliary_weight": 0.0, "return_contrast.batch_size": 8},
            "(auxiliary_weight=0.0)",
        ),
        ("curl", "Pong", {"curl.weight": 0.0, "curl.momentum": 0.5}, "(curl.weight=0.0)"),
        (
            "curl",
            "Pong",
            {"replay.priority_exponent": 0.0, "curl.in_priorities": False},
            "(replay.priority_exponent=0.0)",
        ),
    ],
)
def test_a_field_without_effect_makes_no_arm(preset, game, changes, name):
    config = fields.replace(arms.presets_of(game)[preset], changes)
    assert arm(preset, game, config) == preset + name


def test_a_task_of_one_s_own_tells_runs_apart_by_its_samples(monkeypatch):
    """The entry of docs/newtask.md is all that tables need."""
    monkeypatch.setitem(TASKS, "triplet", Task("tasks.triplet.make", ("rainbow",), True))
    changes = {"auxiliary": ("triplet",), "return_contrast.anchors": "uniform"}
    found = arm("erainbow_sa", "Pong", fields.replace(ATARI["erainbow_sa"], changes))
    assert found == "erainbow_sa(auxiliary=triplet, return_contrast.anchors=uniform)"


def test_an_unknown_field_is_part_of_the_name_in_one_line():
    config = {"auxiliary": [], "a\nb": "\x1b[31mred"}
    assert arms.arm_of("erainbow", "Pong", config) == r"erainbow(a b=\x1b[31mred)"


def agents(*runs):
    """Manifests of runs `(preset, game, changes)`."""
    return [
        {
            "run": manifest.describe_run(
                preset, fields.replace(arms.presets_of(game)[preset], changes), game, 0, 1, None
            ),
            "environment": {},
        }
        for preset, game, changes in runs
    ]


@pytest.mark.parametrize(
    ("runs", "is_one"),
    [
        ([("rcrl", "Pong", {"n_step": 5}), ("rcrl", "Alien", {"n_step": 5})], True),
        ([("rcrl", "Pong", {"n_step": 5}), ("rcrl", "Alien", {"n_step": 3})], False),
        ([("rcrl", "Pong", {"n_step": 5}), ("rcrl", "Alien", {})], False),
        ([("rcrl", "Pong", {"n_step": 5}), ("curl", "Pong", {"n_step": 5})], False),
        # 2e-4 is the rate of the preset on cheetah_run alone.
        (
            [
                ("rcrl_sac", game, {"learning_rate": 2e-4})
                for game in ("cheetah_run", "walker_walk")
            ],
            True,
        ),
        ([("rcrl_sac", game, {"filters": 4}) for game in ("cheetah_run", "walker_walk")], True),
        (
            [("rcrl_sac", "cheetah_run", {}), ("rcrl_sac", "walker_walk", {"learning_rate": 1e-4})],
            False,
        ),
    ],
)
def test_a_changed_field_has_one_value_in_all_runs_of_an_agent(runs, is_one):
    assert arms.are_one_agent(agents(*runs)) == is_one


def conditions(run=(), environment=(), protocol=(), versions=(), device=(), **planned):
    described = {
        "run": {"algorithm": 2, "format": 2, "backend": "envpool", "config": {}, **dict(run)},
        "environment": {"game": "Pong", "noops": [1, 30], **dict(environment)},
        "protocol": {"noise": "off", "final_episodes": 10, **dict(protocol)},
        "versions": {"git_commit": "abcdefghi", **dict(versions)},
        "device": {"platform": "cpu", **dict(device)},
        "launch": {},
    }
    return arms.conditions_of(described, **{"env_steps": 100, "final_episodes": 10, **planned})


@pytest.mark.parametrize(
    "changed",
    [
        {"run": {"algorithm": 1}},
        {"run": {"backend": "ale"}},
        {"run": {"config": {"evaluation_period": 7}}},
        {"environment": {"noops": [0, 30]}},
        {"environment": {"backend_version": "2"}},
        {"environment": {"max_episode_steps": 7}},
        {"device": {"platform": "gpu"}},
        {"protocol": {"noise": "on"}},
        {"env_steps": 200},
        {"final_episodes": 100},
    ],
)
def test_what_changes_a_score_is_a_condition(changed):
    assert conditions(**changed) != conditions()


@pytest.mark.parametrize(
    "changed",
    [
        {"run": {"preset": "curl", "game": "Hero", "seed": 7}},
        {"run": {"format": 3}},  # newer files record more and change no score
        {"device": {"kind": "a processor's name", "host_cores": 64}},
        {"run": {"config": {"batch_size": 7}}},
        {"environment": {"game": "Hero", "action_set": "minimal (18 actions)"}},
        {"environment": {"renderer": "osmesa", "stack_size": 1, "frame_shape": [24]}},
        {"versions": {"jax": "9", "git_commit": "other"}},
    ],
)
def test_game_agent_and_machine_are_no_conditions(changed):
    assert conditions(**changed) == conditions()
