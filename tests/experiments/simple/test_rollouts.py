"""Stretches of play hold what was played; predictors without dynamics by hand."""

import itertools

import numpy as np

from experiments.simple import rollouts
from experiments.simple.rollouts import Rollouts
from rcrl_jax.agents.make_agent import make_agent
from rcrl_jax.envs import catch
from rcrl_jax.envs.agent_view import AgentEnvironment
from rcrl_jax.training.nulls import Scripted
from tests.training import toy_simple

SIDE = 14


def make_player(action=None, **overrides):
    config = toy_simple.make_config(overrides={"frame_width": SIDE, **overrides})
    agent = make_agent(config, catch.make_continuing_catch([0], 2).spec)
    always = None if action is None else np.full(1, action, np.int32)
    return Scripted(agent, (5,), np.full(1, 3), always)


def played(player, seeds, starts, length):
    environment = AgentEnvironment(
        catch.make_continuing_catch(seeds, 2), player.agent.protocol.for_evaluation()
    )
    return rollouts.play(environment, player, None, (9,), np.array(starts), length)


def test_a_stretch_equals_its_game_played_alone():
    player, starts, length = make_player(), [1, 4, 9], 5
    found = played(player, [3, 4, 5], starts, length)
    games = catch.make_continuing_catch([3, 4, 5], 2)
    frames, actions, rewards = [games.reset().frame], [], []
    for t in range(14):
        own, _ = player.act(None, np.zeros((1, 3)), (), 9, t)
        step = games.step(own[0])
        frames.append(step.frame)
        actions.append(own[0])
        rewards.append(step.reward)
    frames, actions, rewards = map(np.array, (frames, actions, rewards))
    assert len({*actions.ravel()}) == 3 and len({*rewards.ravel()}) == 3
    for i, start in enumerate(starts):
        np.testing.assert_array_equal(found.stack[i], frames[start - 1 : start + 1, i])
        np.testing.assert_array_equal(found.action[i], actions[start : start + length, i])
        np.testing.assert_array_equal(found.frame[i], frames[start + 1 : start + length + 1, i])
        np.testing.assert_array_equal(found.reward[i], rewards[start : start + length, i])


def test_stretches_in_which_a_game_ends_are_dropped():
    """Games are cut after 30 steps; two frames before a stretch and three steps of it count."""
    player = make_player(1, max_episode_steps=30)
    kept = {}
    for start in range(24, 34):
        kept[start] = len(played(player, [start], [start], 3).reward)
    assert [start for start, number in kept.items() if number] == [24, 25, 26, 31, 32, 33]


def by_hand(last, frames, rewards):
    """Rollouts of frames of one pixel, whose colours are alike: `last [N]`, `frames [N, K]`."""
    last, frames = (np.array(x, np.uint8)[..., None, None, None] for x in (last, frames))
    return Rollouts(
        stack=last[:, None].repeat(3, -1), action=np.zeros(frames.shape[:2], np.int32),
        frame=frames.repeat(3, -1), reward=np.array(rewards),
    )  # fmt: skip


# Four rollouts of two steps. Of the first frames three are the last one, of the second ones two.
FITTED = by_hand([0, 0, 9, 9], [[0, 0], [0, 9], [9, 9], [0, 0]], [[0, 1], [0, 1], [0, 0], [0, -1]])


def test_predictors_are_fitted_by_counting():
    predictors = rollouts.fit(FITTED)
    spread = 255 / 256
    np.testing.assert_allclose(predictors.error_rate, [(3 + spread) / 13, (6 + spread) / 13])
    assert predictors.histogram.shape == (1, 1, 3, 256)
    np.testing.assert_allclose(predictors.histogram[0, 0, :, 0], (5 + 1 / 256) / 9)
    np.testing.assert_allclose(predictors.histogram[0, 0, :, 9], (3 + 1 / 256) / 9)
    np.testing.assert_allclose(predictors.histogram[0, 0, :, 7], 1 / 256 / 9)
    third = 1 / 3
    np.testing.assert_allclose(
        predictors.reward * 5, [[third, 4 + third, third], [1 + third, 1 + third, 2 + third]]
    )


def test_log_likelihoods_equal_those_by_hand_and_the_mixture_s_weight_is_the_best():
    predictors = rollouts.fit(FITTED)
    found = rollouts.log_likelihoods(predictors, FITTED)
    for n, k in itertools.product(range(4), range(2)):
        same = FITTED.frame[n, k, 0, 0, 0] == FITTED.stack[n, 0, 0, 0, 0]
        copied = 1 - predictors.error_rate[k] if same else predictors.error_rate[k] / 255
        known = predictors.histogram[0, 0, 0, FITTED.frame[n, k, 0, 0, 0]]
        weight = predictors.copy_weight[k]
        for name, p in (
            ("copy", copied), ("histogram", known),
            ("mixture", weight * copied + (1 - weight) * known),
        ):  # fmt: skip
            np.testing.assert_allclose(found[name][n, k], 3 * np.log(p), rtol=1e-12)

    def of_weight(weight):
        other = predictors._replace(copy_weight=np.full(2, weight))
        return rollouts.log_likelihoods(other, FITTED)["mixture"].sum(0)

    by_grid = np.array([of_weight(weight) for weight in np.linspace(0, 1, 101)])
    assert 0 < by_grid[:, 0].argmax() < 100
    np.testing.assert_allclose(predictors.copy_weight, by_grid.argmax(0) / 100, atol=0.01)


def test_predictors_are_distributions():
    """Over all values of a pixel, whatever the last frame is."""
    predictors = rollouts.fit(FITTED)
    every = by_hand([9] * 256, [[value, value] for value in range(256)], [[0, 0]] * 256)
    for values in rollouts.log_likelihoods(predictors, every).values():
        np.testing.assert_allclose(np.exp(values / 3).sum(0), 1.0, rtol=1e-9)
