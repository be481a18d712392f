"""Games whose action sets differ, in one fleet on the real emulators."""

import jax
import numpy as np

from rcrl_jax.envs import atari
from rcrl_jax.envs.protocol import discrete_spec
from rcrl_jax.training import build
from rcrl_jax.training.history import History
from tests.training import toy

STEPS = 34  # 14 updates of each run, one of the target network
CONFIG = toy.make_config("rcrl", {"learn_start": 20, "target_period": 10})
SEED = 0


def train(games):
    """Trains one run per game; returns the numbers of valid actions and what changed."""

    def make(seeds):
        environment = atari.make_games(games, 1, "auto", seeds)
        # The largest action set of the 26, also for a run that is alone.
        environment.spec = discrete_spec((84, 84), 18)
        return environment

    seeds = (SEED,) * len(games)
    environment, fleet = toy.make_fleet(CONFIG, seeds, make_environment=make)
    replay, history = build.make_replay(fleet, "host"), History(len(games), STEPS)
    *_, last = toy.training(fleet, environment, STEPS, replay=replay, history=history)
    params = fleet.to_host(last.state.learner.params)
    num_valid_actions = environment.num_valid_actions
    environment.close()
    return num_valid_actions, params, history.state.actions, replay.state.priorities


def test_games_of_different_action_sets_in_one_fleet():
    """`test_every_game_starts` plays all 26."""
    games = ("Freeway", "Pong", "Alien")
    num_valid_actions, params, actions, priorities = train(games)
    assert num_valid_actions.tolist() == [3, 6, 18]
    assert np.all(actions.max(axis=1) < num_valid_actions)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params))
    assert all(len(np.unique(own)) > 2 for own in priorities)  # each has learned from something

    # A game alone equals, bit for bit, the game in the fleet.
    r = games.index("Pong")
    _, *alone = train(("Pong",))
    in_fleet = jax.tree.map(lambda x: x[r : r + 1], [params, actions, priorities])
    toy.assert_equal_trees(in_fleet, alone)
