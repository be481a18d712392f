"""The small agents on MinAtar's games: alone, in a fleet, interrupted; games of different sizes."""

import jax
import numpy as np
import pytest

from rcrl_jax.config import fields, presets
from rcrl_jax.envs import minatar
from tests.training import toy

SEEDS = (3, 5)
GAMES = ("Breakout", "Freeway")  # 4 and 7 channels
SMALL = {
    name: value
    for name, value in toy.SMALL.items()
    if name not in ("frame_stack", "max_episode_steps")
}


def make_config(preset="minatar_rcrl", **changes):
    return fields.replace(presets.MINATAR_PRESETS[preset], {**SMALL, **changes})


def maker(games=None):
    """The first game for all runs, or one game a run."""

    def make(seeds):
        played = games or GAMES[:1] * len(seeds)
        return minatar.make_minatar(np.repeat(played, seeds.shape[1]).tolist(), seeds.reshape(-1))

    return make


def make_plan(workdir, seeds=SEEDS, preset="minatar_rcrl", total_steps=120, **changes):
    config = make_config(preset, **changes)
    settings = {"total_steps": total_steps, "make_environment": maker()}
    return toy.plan_of(workdir, preset, config, GAMES[0], seeds, **settings)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted fleet."""
    plan = make_plan(tmp_path_factory.mktemp("whole"))
    toy.run(plan)
    return plan


@pytest.mark.usefixtures("undrawn_curves")
def test_an_interrupted_fleet_continues_bit_for_bit(whole, tmp_path):
    parts = make_plan(tmp_path)
    toy.run_and_stop(parts, 20)  # in the warm-up
    toy.run_and_stop(parts, 83)
    toy.run(parts)
    toy.assert_same_result(parts, whole)


@pytest.mark.usefixtures("undrawn_curves")
def test_a_run_alone_is_the_one_of_the_fleet_bit_for_bit(whole, tmp_path):
    alone = make_plan(tmp_path, SEEDS[1:])
    toy.run(alone)
    assert toy.recorded(alone) == toy.recorded(whole, 1)
    one, both = (toy.last_checkpoint(plan).learner for plan in (alone, whole))
    toy.assert_equal_trees(one, jax.tree.map(lambda x: x[1:], both))


def fleet_of(games, **changes):
    return toy.make_fleet(
        make_config(), SEEDS[: len(games)], games=games, make_environment=maker(games), **changes
    )


def test_runs_at_once_differ_from_one_after_the_other_by_rounding():
    games = GAMES[:1] * 2
    environment, fleet = fleet_of(games)
    _, at_once = fleet_of(games, batching="vmap")
    batch = toy.played(environment, fleet).sample(1.0).batch
    one, other = (f.to_host(f.update(f.init(), batch)) for f in (fleet, at_once))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_a_game_beside_one_with_more_channels_differs_by_rounding():
    """Channels and actions of padding change neither initial values nor noise."""
    found = []
    for games in (GAMES[:1], GAMES):
        environment, fleet = fleet_of(games)
        batch = toy.played(environment, fleet).sample(1.0).batch
        result = fleet.update(fleet.init(), batch)[1]
        found.append(jax.tree.map(lambda x: np.asarray(x)[0], result))
    for a, b in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_all_agents_take_the_same_uniform_actions_before_they_learn():
    played = []
    for preset in presets.MINATAR_PRESETS:
        plan = make_plan("", preset=preset, total_steps=100, learn_start=100)
        played.append(toy.trained(plan, 100)[2].actions)
    np.testing.assert_array_equal(played[0], played[1])
    np.testing.assert_array_equal(played[0], played[2])
    for run in played[0]:
        assert np.bincount(run, minlength=3).min() > 15
    assert np.any(played[0][0] != played[0][1])


def test_frames_take_an_eighth_of_a_byte_a_cell():
    environment, fleet = fleet_of(GAMES[:1])
    assert fleet.agent.observations.stored.stored_shape == (50,)
    replay = toy.played(environment, fleet, steps=10)
    assert replay.sample(1.0).batch.transitions.observation.shape == (1, 8, 1, 50)
