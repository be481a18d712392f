"""Games that are played again from their actions are the games that were recorded."""

import numpy as np
import pytest

from experiments.returns import games
from rcrl_jax.envs.agent_view import AgentEnvironment
from rcrl_jax.return_contrast import episodes
from rcrl_jax.training import evaluation
from tests.training import toy

STEPS, NUMBERS = 60, range(100, 104)


def test_actions_bring_back_the_games():
    environment, fleet = toy.make_fleet(toy.make_config("rcrl"), [3])
    environment.close()
    agent = fleet.agent

    def recorder():
        return episodes.Recorder(len(NUMBERS), agent.replay.closes_segment, agent.protocol)

    def play_again(actions, recorder):
        seeds = evaluation.evaluation_seeds([3], STEPS, NUMBERS.stop)[:, NUMBERS.start :]
        own = AgentEnvironment(toy.make_catch(seeds), agent.protocol.for_evaluation())
        return games._play_again(own, actions, recorder)

    taken, first, again = [], recorder(), recorder()

    def watch(*step):
        taken.append(step[1])
        first(*step)

    params = fleet.init().params.agent
    played = evaluation.evaluate(params, fleet, toy.make_catch, STEPS, NUMBERS, after_step=watch)
    log = np.stack(taken).astype(np.uint8)
    np.testing.assert_array_equal(play_again(log, again), played.returns[0])
    for a, b in zip(first.episodes, again.episodes, strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)
            assert x.dtype == y.dtype
    with pytest.raises(ValueError, match="do not end the games"):
        play_again(log[:-1], recorder())
