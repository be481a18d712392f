"""Every preset trains on a real game, and a run with every task is independent of its fleet."""

import jax
import numpy as np
import pytest

from rcrl_jax.envs import atari
from rcrl_jax.envs.protocol import discrete_spec
from rcrl_jax.training import build
from rcrl_jax.training.history import History
from tests.training import test_golden, toy

STEPS, SEEDS = 50, (3, 5)
MAX_NUM_ACTIONS = 3  # as in `test_golden.py`, whose compiled programs are then found in the cache


def train(preset, seeds=SEEDS, *, game_of=None, frame_store="host", make=toy.make_catch, **changes):
    """Trains to the last step; returns configuration, fleet and copies of what changed."""
    config = toy.make_config(preset, {**test_golden.ATARI, **changes})

    def make_environment(environment_seeds):
        environment = make(environment_seeds)
        environment.spec = discrete_spec((84, 84), MAX_NUM_ACTIONS)
        return environment

    games = game_of or {}
    environment, fleet = toy.make_fleet(
        config, seeds, make_environment=make_environment,
        games=[games.get(seed, toy.GAME) for seed in seeds],
    )  # fmt: skip
    replay = build.make_replay(fleet, frame_store)
    history = History(len(seeds), STEPS)
    *_, last = toy.training(fleet, environment, STEPS, replay=replay, history=history)
    environment.close()
    result = (last.state.learner, last.state.pending_update, replay.state, history.state)
    return config, fleet, jax.tree.map(lambda x: np.array(x, copy=True), result)


REDUCED = {5: "Pong"}  # seed -> a game with another weight of CURL


@pytest.fixture(scope="module")
def rcrl_curl():
    return train("rcrl_curl", game_of=REDUCED)


@pytest.fixture(scope="module")
def rcrl():
    return train("rcrl", SEEDS[:1])


def make_freeway(seeds):
    environment = atari.make_atari("Freeway", seeds.reshape(-1))
    assert environment.spec.max_num_actions == MAX_NUM_ACTIONS
    return environment


# One preset for each way to store and read frames; `test_portable.py` updates them all.
@pytest.mark.parametrize("preset", ["rainbow", "curl", "der_plus_rcrl"])
def test_each_format_of_frames_trains_on_a_real_game(preset):
    config, _, (_, update, _, _) = train(preset, SEEDS[:1], make=make_freeway)
    assert update.result.transition_loss.shape == (1, config.batch_size)
    assert all(np.isfinite(value).all() for value in update.result.metrics.values())
    assert update.result.metrics["loss_c51"][0] > 0


def test_a_run_with_every_task_is_independent_of_fleet_composition(rcrl_curl):
    _, _, together = rcrl_curl
    _, _, alone = train("rcrl_curl", SEEDS[1:], game_of=REDUCED)
    toy.assert_equal_trees(jax.tree.map(lambda x: x[1:], together), alone)


def test_curl_has_the_weight_of_each_run_s_game(rcrl_curl):
    _, _, (_, own, _, _) = rcrl_curl
    _, _, (_, equal, _, _) = train("rcrl_curl")
    first, second = (
        [np.any(a[r] != b[r]) for r in range(2)]
        for a, b in (
            (own.result.transition_loss, equal.result.transition_loss),
            (own.result.metrics["gradient_norm"], equal.result.metrics["gradient_norm"]),
        )
    )
    assert first == second == [False, True]


def test_frames_on_the_device_give_the_same_run(rcrl_curl):
    """Another compiled program reads the same bytes, so results are equal up to rounding."""
    _, _, (learner, _, _, history) = rcrl_curl
    _, _, (other, _, _, other_history) = train("rcrl_curl", game_of=REDUCED, frame_store="device")
    np.testing.assert_array_equal(history.actions, other_history.actions)
    for a, b in zip(*map(jax.tree.leaves, (learner.params, other.params)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize(
    "variant",
    [
        {"return_contrast.loss": "cross_entropy", "return_contrast.discriminator_norm": "unit"},
        {"head": "state_action_single", "embedding_init": "uniform"},
        {"head": "state_action_both", "return_contrast.discriminator_layers": 2},
        {"return_contrast.anchors": "rl_batch"},
    ],
    ids=lambda variant: "+".join(map(str, variant.values())),
)
def test_variants_of_the_return_task_train_and_change_the_result(variant, rcrl):
    _, _, (learner, update, _, _) = train("rcrl", SEEDS[:1], **variant)
    assert all(np.isfinite(value).all() for value in update.result.metrics.values())
    assert update.result.metrics["loss_return_contrast"][0] > 0
    _, _, (default, _, _, _) = rcrl
    kernel, other = (
        state.params.agent["params"]["encoder"]["conv2_kernel"] for state in (learner, default)
    )
    assert np.any(kernel != other)
