"""Play without learning: its actions, the choice of a constant one, differences by hand."""

import types

import numpy as np
import pytest

from rcrl_jax.config import presets
from rcrl_jax.training import build, evaluation, nulls
from rcrl_jax.training.plan import RunId
from tests.training import toy, toy_control


def player(action, valid, seeds=(5, 6), chosen=None):
    agent = types.SimpleNamespace(action=np.zeros(action[0], action[1]))
    return nulls.Scripted(agent, seeds, np.array(valid), chosen)


NOTHING = object()  # players without a memory pass it on
DISCRETE, CONTROL = ((), np.int32), ((3,), np.float32)


def test_uniform_actions_are_valid_and_all_of_them_come():
    actions, memory = player(DISCRETE, [2, 4]).act(None, np.zeros((2, 400)), NOTHING, 7, 0)
    assert memory is NOTHING and actions.shape == (2, 400) and actions.dtype == np.int32
    for own, valid in zip(actions, (2, 4), strict=True):
        counts = np.bincount(own, minlength=valid)
        assert len(counts) == valid
        # The largest of six deviations, each of standard deviation 1.
        deviation = (counts - 400 / valid) / np.sqrt(400 / valid * (1 - 1 / valid))
        assert np.abs(deviation).max() < 4


def test_uniform_actions_of_control_fill_the_valid_components():
    actions, _ = player(CONTROL, [1, 3]).act(None, np.zeros((2, 400)), NOTHING, 7, 0)
    assert actions.shape == (2, 400, 3) and actions.dtype == np.float32
    assert not actions[0, :, 1:].any()
    for own in (actions[0, :, 0], *actions[1].T):
        assert np.abs(own).max() <= 1 and abs(own.mean()) < 4 / np.sqrt(3 * 400)
        assert own.var() == pytest.approx(1 / 3, rel=0.2)


def test_uniform_actions_of_a_run_depend_on_its_seed_and_the_counters_alone():
    both, alone = player(DISCRETE, [4, 4]), player(DISCRETE, [4], seeds=(6,))
    observation = np.zeros((2, 50))
    first, _ = both.act(None, observation, NOTHING, 7, 0)
    np.testing.assert_array_equal(first[1:], alone.act(None, observation[:1], NOTHING, 7, 0)[0])
    assert (first[0] != first[1]).any()
    assert (first != both.act(None, observation, NOTHING, 7, 1)[0]).any()


def test_constant_actions_of_a_game_are_all_of_them():
    assert nulls.constant_actions(player(DISCRETE, [4]).agent, 4) == [0, 1, 2, 3]


def test_constant_actions_of_one_component_are_a_grid():
    found = np.array(nulls.constant_actions(player(CONTROL, [1]).agent, 1))
    np.testing.assert_allclose(found[:, 0], np.arange(-10, 11) / 10, atol=1e-7)
    assert found.dtype == np.float32 and not found[:, 1:].any()


def test_constant_actions_of_several_push_one_or_all_or_are_drawn():
    found = np.array(nulls.constant_actions(player(CONTROL, [2]).agent, 2))
    assert found.shape == (7 + 64, 3) and not found[:, 2].any()
    pushes = [(0, 0), (1, 0), (0, 1), (1, 1), (-1, 0), (0, -1), (-1, -1)]
    assert [tuple(action) for action in found[:7, :2]] == pushes
    drawn = found[7:, :2]
    assert np.abs(drawn).max() <= 1 and np.abs(drawn).max(axis=1).min() > 0
    assert drawn.var() == pytest.approx(1 / 3, rel=0.3) and len(np.unique(drawn)) == 128


class Recorder:
    """Stands for games: returns by the constant action, else by the name of the player."""

    def __init__(self, fleet, worth):
        self.fleet, self.worth, self.games = fleet, worth, 0

    def __call__(self, who, params, number):
        self.games += number
        if who is self.fleet:
            assert params is not None
            return np.tile([[1.0], [-7.0]], number)
        assert params is None
        if who.action is None:
            return np.tile([[3.0], [-5.0]], number)
        worth = [self.worth[run][action] for run, action in enumerate(who.action)]
        return np.array(worth)[:, None] + np.arange(number)


def test_a_comparison_is_with_the_best_play_of_each_run():
    """Catch has three actions; the second run is made to have two."""
    environment, fleet = toy.make_fleet(toy.make_config(), (1, 2))
    environment.close()
    fleet.num_valid_actions = np.array([3, 2], np.int32)
    games = Recorder(fleet, worth=[[0.0, 2.0, 1.0], [-9.0, -8.0, 100.0]])
    returns = np.array([np.arange(20.0), np.arange(20.0) ** 2])
    first, second = nulls.measure(fleet, returns, games)
    # Three actions in ten games; then three kinds of play in twenty.
    assert games.games == nulls.count_games(fleet, 20) == 3 * 10 + 3 * 20
    assert first["constant_action"] == 1 and second["constant_action"] == 1
    error = np.std(np.arange(20), ddof=1) / np.sqrt(20)
    assert first["constant"] == pytest.approx({"mean": 11.5, "standard_error": error})
    assert first["policy"] == pytest.approx({"mean": 9.5, "standard_error": error})
    assert first["best_null"] == "constant"
    # Of each game: the constant action is better by 2 in all of them.
    assert first["difference"] == pytest.approx({"mean": -2.0, "standard_error": 0.0})
    assert second["constant"]["mean"] == 1.5 and second["best_null"] == "constant"
    by_game = np.arange(20.0) ** 2 - (np.arange(20.0) - 8.0)
    assert second["difference"]["standard_error"] == pytest.approx(
        np.std(by_game, ddof=1) / np.sqrt(20)
    )
    assert nulls.describe(first) == (
        "without learning, same episodes: uniform actions 3.0 ± 0.0, the best constant action "
        "tried 11.5 ± 1.3, the untrained agent 1.0 ± 0.0; above the best of them -2.0 ± 0.0"
    )


def test_one_game_has_no_standard_error():
    environment, fleet = toy.make_fleet(toy.make_config(), (1, 2))
    environment.close()
    found, _ = nulls.measure(fleet, np.ones((2, 1)), Recorder(fleet, np.zeros((2, 3))))
    assert found["difference"] == {"mean": -2.0, "standard_error": None}
    assert "±" not in nulls.describe(found)


def test_a_fleet_of_control_plays_them(tmp_path):
    """Runs with one and two components; the games refuse actions in absent ones."""
    make_environment = toy_control.make_reach((1, 2), "state")
    plan = toy_control.make_plan(tmp_path, "state_sac", own=(1, 2), seeds=(3, 4))
    environment, fleet = build.make_fleet(plan)
    environment.close()

    def play_games(who, params, number):
        games = evaluation.Games(make_environment, 0, range(number))
        return evaluation.evaluate(params, who, games).returns

    returns = play_games(fleet, fleet.init().params.agent, 2)
    for valid, found in zip((1, 2), nulls.measure(fleet, returns, play_games), strict=True):
        assert found["policy"] == found["untrained"]
        assert found["constant"]["mean"] > 0 and found["uniform"]["mean"] > 0
        assert not found["constant_action"][valid:].any()


@pytest.mark.usefixtures("renderer")
def test_play_that_sees_nothing_needs_no_frames():
    """The same returns, and frames stay black."""
    make = build.environment_maker(
        presets.DMC_PRESETS["pixel_sac"], [RunId("cartpole_swingup", 0)], "dm_control"
    )
    returns, frames = [], []
    for maker in (make, nulls.without_frames(make)):
        environment = maker(np.array([[7]]))
        first = environment.reset()
        step = environment.step(np.full((1, 6), [[0.4, 0, 0, 0, 0, 0]], np.float32))
        environment.close()
        returns.append(step.reward)
        frames += [first.frame.max(), step.frame.max()]
    np.testing.assert_array_equal(*returns)
    assert min(frames[:2]) > 0 and max(frames[2:]) == 0
