"""A run's result is its own: the same alone and in a fleet."""

import dataclasses

import jax
import numpy as np
import pytest

from rcrl_jax.training import build, evaluation
from rcrl_jax.training.history import History
from tests.training import toy

SEEDS = (3, 5, 8)
STEPS = 90
# Noise strong enough to decide which action is best, so that a test sees whether it is there.
CONFIG = toy.make_config("rcrl", noisy_sigma=1.0, evaluation_epsilon=0.1)


def train(seeds):
    """Trains to the last step; returns the fleet and copies of all that training changed."""
    environment, fleet = toy.make_fleet(CONFIG, seeds)
    replay = build.make_replay(fleet, seeds, "host")
    history = History(len(seeds), STEPS)
    *_, last = toy.training(fleet, environment, STEPS, replay=replay, history=history)
    assert last.state.learner.updates.tolist() == [STEPS - CONFIG.learn_start] * len(seeds)
    result = (last.state._replace(step=0), replay.state, history.state)
    return fleet, jax.tree.map(lambda x: np.array(x, copy=True), result)


@pytest.fixture(scope="module")
def together():
    return train(SEEDS)


def test_a_run_is_independent_of_fleet_composition(together):
    _, in_company = together
    _, alone = train((SEEDS[1],))
    of_one = jax.tree.map(lambda x: x[1:2] if np.ndim(x) else x, in_company)
    toy.assert_equal_trees(of_one, alone)


def test_other_seeds_learn_other_things(together):
    _, (state, replay, history) = together
    for array in (
        *jax.tree.leaves(state.learner.params.agent),
        replay.priorities,
        history.actions,
        state.learner.key,
    ):
        assert all(
            not np.array_equal(array[first], array[second]) for first, second in ((0, 1), (1, 2))
        )


def test_an_evaluation_is_independent_of_fleet_composition(together):
    fleet, (state, _, _) = together

    def evaluate(fleet, params, agent_steps=STEPS):
        return evaluation.evaluate(
            params, fleet, toy.make_catch, agent_steps, 24
        ).returns

    params = state.learner.params.agent
    in_company = evaluate(fleet, params)
    assert set(np.unique(in_company)) == {-1.0, 1.0}
    np.testing.assert_array_equal(in_company, evaluate(fleet, params))
    _, fleet_of_one = toy.make_fleet(CONFIG, SEEDS[2:])
    alone = evaluate(fleet_of_one, jax.tree.map(lambda x: x[2:], params))
    np.testing.assert_array_equal(in_company[2:], alone)
    # Another evaluation of the same parameters has games of its own.
    assert not np.array_equal(in_company, evaluate(fleet, params, agent_steps=STEPS + 1))


def _observations(runs, size):
    """The same random observations for every run, `[runs, size, 225, C, 25]`."""
    shape = (size, 225, CONFIG.frame_stack, 25)
    one = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    return np.broadcast_to(one, (runs, *shape)).copy()


def test_training_actions_are_noisy_and_their_noise_is_fixed_by_seed_and_counter(together):
    fleet, (state, _, _) = together
    # One run's parameters everywhere: what differs now is noise.
    params = jax.tree.map(lambda x: np.stack([x[0]] * 3), state.learner.params.agent)
    observation = _observations(3, 64)

    def act(*counters):
        return np.asarray(fleet.act(params, observation, *counters))

    first = act(7)
    assert first.shape == (3, 64) and first.dtype == np.int32
    np.testing.assert_array_equal(first, act(7))
    # Noise can leave the best action what it was, but not for many draws.
    others = np.stack([act(7, 0), *(act(counter) for counter in range(8, 24))])
    for run in range(3):
        assert np.any(first[run] != others[:, run])
    assert np.any(others[:, 0] != others[:, 1]) and np.any(others[:, 1] != others[:, 2])


def test_evaluation_actions_have_no_noise_but_a_share_of_random_ones(together):
    fleet, (state, _, _) = together
    params = state.learner.params.agent
    observation = _observations(3, 400)

    def act(fleet, counter):
        return np.asarray(fleet.act(params, observation, 5, counter, greedy=True))

    greedy_config = dataclasses.replace(CONFIG, evaluation_epsilon=0.0)
    _, never_random = toy.make_fleet(greedy_config, SEEDS)
    greedy = act(never_random, 0)
    for counter in range(1, 4):
        np.testing.assert_array_equal(greedy, act(never_random, counter))
    draws = np.stack([act(fleet, counter) for counter in range(9)])
    # epsilon = 0.1, and a random action is the greedy one in a third of the cases.
    share = np.mean(draws != greedy)
    standard_error = np.sqrt(0.067 * 0.933 / draws.size)
    assert abs(share - 0.1 * 2 / 3) < 5 * standard_error


def test_an_update_consumes_the_state_it_is_given():
    environment, fleet = toy.make_fleet(CONFIG, (0, 1))
    steps = toy.training(fleet, environment, CONFIG.learn_start + 2)
    states = [step.state for step in steps]
    before, after = states[CONFIG.learn_start - 1].learner, states[-1].learner
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(before))
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(after))


def test_what_comes_to_the_host_is_a_copy():
    _, fleet = toy.make_fleet(CONFIG, (0, 1))
    array = np.arange(2)
    copied = fleet.to_host({"a": array, "b": None})
    array[:] = 7
    assert copied["a"].tolist() == [0, 1] and copied["b"] is None
