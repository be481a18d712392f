"""Every preset trains on Catch and on a real game, and a run with every task is its own."""

import jax
import numpy as np
import pytest

from rcrl_jax.agents import rainbow
from rcrl_jax.config.presets import ATARI_PRESETS
from rcrl_jax.envs import atari
from rcrl_jax.envs.protocol import EnvironmentSpec
from rcrl_jax.training import evaluation, experiment
from rcrl_jax.training.fleet import Fleet
from rcrl_jax.training.history import History
from tests.training import toy

STEPS, SEEDS = 50, (3, 5)
SMALL = {"curl_hidden": 8, "curl_size": 4, "epsilon_decay": 10, "update_period": 1}


def train(preset, seeds=SEEDS, *, factors=None, frame_store="host", make=toy.make_catch, **changes):
    """Trains to the last step; returns configuration, fleet and copies of what changed."""
    config = toy.make_config(preset, **(SMALL | changes))
    environment = toy.view(config, seeds, make)
    fleet = Fleet(
        rainbow.make_agent(config, EnvironmentSpec((84, 84), 6)), seeds,
        environment.num_actions_per_env.tolist(), curl_factors=factors,
    )  # fmt: skip
    replay = experiment.make_replay(config, fleet, seeds, frame_store)
    history = History(len(seeds), STEPS)
    *_, last = toy.training(
        config, seeds, STEPS, fleet, environment=environment, replay=replay, history=history
    )
    environment.close()
    result = (last.state.learner, last.state.late, replay.state, history.state)
    return config, fleet, jax.tree.map(lambda x: np.array(x, copy=True), result)


@pytest.fixture(scope="module")
def rcrl_curl():
    return train("rcrl_curl", factors=(1.0, 0.01))


@pytest.fixture(scope="module")
def rcrl():
    return train("rcrl", SEEDS[:1])


NEW = [p for p in ATARI_PRESETS if p not in ("erainbow", "erainbow_sa", "rcrl", "rcrl_curl")]


def make_pong(seeds):
    return atari.make_atari("Pong", seeds.reshape(-1))


@pytest.mark.parametrize("preset", NEW)
def test_each_preset_trains(preset):
    config, fleet, (learner, late, _, _) = train(preset, SEEDS[:1])
    assert late.result.transition_loss.shape == (1, config.batch_size)
    assert all(np.isfinite(value).all() for value in late.result.metrics.values())
    assert {n for n in late.result.metrics if n.startswith("loss_")} == {
        "loss_c51", *(f"loss_{task}" for task in config.tasks)
    }  # fmt: skip
    start = fleet.to_host(fleet.init()).params.agent["params"]
    trained = learner.params.agent["params"]
    moved = {
        name
        for name, part in trained.items()
        if any(
            np.any(a != b) for a, b in zip(*map(jax.tree.leaves, (part, start[name])), strict=True)
        )
    }
    assert moved == set(trained)
    returns = evaluation.evaluate(
        learner.params.agent, fleet=fleet, make_environment=toy.make_catch, config=config,
        seeds=SEEDS[:1], agent_steps=STEPS, episodes=2,
    ).returns  # fmt: skip
    assert set(returns[0]) <= {-1.0, 1.0}

    _, _, (_, late, _, _) = train(preset, SEEDS[:1], make=make_pong)
    assert all(np.isfinite(value).all() for value in late.result.metrics.values())
    assert late.result.metrics["loss_c51"][0] > 0


def test_a_run_with_every_task_is_the_same_alone_and_in_company(rcrl_curl):
    _, _, together = rcrl_curl
    _, _, alone = train("rcrl_curl", SEEDS[1:], factors=(0.01,))
    toy.assert_equal_trees(jax.tree.map(lambda x: x[1:], together), alone)


def test_each_run_s_curl_has_the_weight_of_its_game(rcrl_curl):
    _, _, (_, late, _, _) = rcrl_curl
    _, _, (_, equal, _, _) = train("rcrl_curl", factors=(1.0, 1.0))
    first, second = (
        [np.any(a[r] != b[r]) for r in range(2)]
        for a, b in (
            (late.result.transition_loss, equal.result.transition_loss),
            (late.result.metrics["gradient_norm"], equal.result.metrics["gradient_norm"]),
        )
    )
    assert first == second == [False, True]


def test_frames_on_the_device_give_the_same_run(rcrl_curl):
    """Another program that reads the same bytes: equal up to rounding."""
    _, _, (learner, _, _, history) = rcrl_curl
    _, _, (other, _, _, other_history) = train(
        "rcrl_curl", factors=(1.0, 0.01), frame_store="device"
    )
    np.testing.assert_array_equal(history.actions, other_history.actions)
    for a, b in zip(*map(jax.tree.leaves, (learner.params, other.params)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize(
    "variant",
    [
        {"contrast_loss": "cross_entropy", "discriminator_norm": "unit"},
        {"discriminator_input": "bilinear", "contrast_anchors": "uniform"},
        {"head": "state_action_single", "embedding_init": "uniform"},
        {"head": "state_action_both", "discriminator_layers": 2},
        {"positive_excludes_anchor": True, "negative_differs_in_return": True},
        {"contrast_anchors": "rl_batch"},
        {"contrast_positives": "equal_return"},
    ],
    ids=lambda variant: "+".join(map(str, variant.values())),
)
def test_variants_of_the_return_task_train_and_matter(variant, rcrl):
    _, _, (learner, late, _, _) = train("rcrl", SEEDS[:1], **variant)
    assert all(np.isfinite(value).all() for value in late.result.metrics.values())
    assert late.result.metrics["loss_return_contrast"][0] > 0
    _, _, (default, _, _, _) = rcrl
    kernel, other = (
        state.params.agent["params"]["encoder"]["conv2_kernel"] for state in (learner, default)
    )
    assert np.any(kernel != other)
