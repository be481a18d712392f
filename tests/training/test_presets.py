"""A run with every task is independent of its fleet, in which games weigh tasks differently."""

import jax
import numpy as np
import pytest

from rcrl_jax.training import build
from rcrl_jax.training.history import History
from tests.training import test_golden, toy

STEPS, SEEDS = 50, (3, 5)


def train(seeds=SEEDS, game_of=()):
    """Trains `rcrl_curl` to the last step; returns copies of what changed."""
    games = [dict(game_of).get(seed, toy.GAME) for seed in seeds]
    config = toy.make_config("rcrl_curl", test_golden.ATARI)
    environment, fleet = toy.make_fleet(config, seeds, games=games)
    replay = build.make_replay(fleet, "host")
    history = History(len(seeds), STEPS)
    *_, last = toy.training(fleet, environment, STEPS, replay=replay, history=history)
    result = (last.state.learner, last.state.pending_update, replay.state, history.state)
    return jax.tree.map(lambda x: np.array(x, copy=True), result)


REDUCED = {5: "Pong"}  # seed -> a game with another weight of CURL


@pytest.fixture(scope="module")
def rcrl_curl():
    return train(game_of=REDUCED)


def test_a_run_with_every_task_is_independent_of_fleet_composition(rcrl_curl):
    alone = train(SEEDS[1:], REDUCED)
    toy.assert_equal_trees(jax.tree.map(lambda x: x[1:], rcrl_curl), alone)


def test_curl_has_the_weight_of_each_run_s_game(rcrl_curl):
    (_, own, *_), (_, equal, *_) = rcrl_curl, train()
    first, second = (
        [np.any(a[r] != b[r]) for r in range(2)]
        for a, b in (
            (own.result.transition_loss, equal.result.transition_loss),
            (own.result.metrics["gradient_norm"], equal.result.metrics["gradient_norm"]),
        )
    )
    assert first == second == [False, True]
