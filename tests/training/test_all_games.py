"""All 26 games of the table, whose action sets differ, in one fleet on the real emulators."""

import dataclasses
import functools

import jax
import numpy as np

from rcrl_jax.agents import rainbow
from rcrl_jax.config import ATARI_PRESETS
from rcrl_jax.envs import atari
from rcrl_jax.envs.protocol import EnvironmentSpec
from rcrl_jax.training.fleet import Fleet
from rcrl_jax.training.history import History
from tests.training import toy

STEPS = 200
CONFIG = dataclasses.replace(
    ATARI_PRESETS["rcrl"], learn_start=40, n_step=3, batch_size=4, contrast_batch_size=4,
    hidden_size=16, discriminator_hidden=16, replay_capacity=300, target_period=20,
)  # fmt: skip
SEED = 0


def train(games):
    """Trains one run a game; returns the sizes of the action sets and what changed."""
    make = functools.partial(atari.make_games, games, 1, "auto")
    seeds = (SEED,) * len(games)
    environment = toy.view(CONFIG, seeds, make)
    # The widest action set of the 26, also for a run that is alone.
    agent = rainbow.make_agent(CONFIG, EnvironmentSpec((84, 84), 18))
    own_actions = environment.num_actions_per_env
    fleet = Fleet(agent, seeds, own_actions.tolist())
    replay, history = toy.make_replay(CONFIG, seeds), History(len(games), STEPS)
    *_, last = toy.training(
        CONFIG, seeds, STEPS, fleet, environment=environment, replay=replay, history=history
    )
    params = fleet.to_host(last.state.learner.params)
    environment.close()
    return own_actions, params, history.state.actions, replay.state.priorities


def test_26_games_in_one_fleet():
    games = atari.ATARI_GAMES
    own_actions, params, actions, priorities = train(games)
    assert len(games) == 26 and own_actions.min() == 3 and own_actions.max() == 18
    assert np.all(actions.max(axis=1) < own_actions)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params))
    assert all(len(np.unique(own)) > 2 for own in priorities)  # each has learned from something

    # A game alone is, bit for bit, the game in the fleet.
    r = games.index("Pong")
    _, *alone = train(("Pong",))
    in_fleet = jax.tree.map(lambda x: x[r : r + 1], [params, actions, priorities])
    toy.assert_equal_trees(in_fleet, alone)
