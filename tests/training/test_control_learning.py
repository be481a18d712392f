"""SAC learns: from states and from pixels it moves a dot to its mark."""

import pytest

from rcrl_jax.training import experiment, loop
from rcrl_jax.training.history import History
from tests.training import toy_control

# Of 10. A dot that stays where it is, as that of a fresh policy nearly does, gets 6.7 on average;
# trained for twice as long as here, the presets get 9.3 to 9.6.
GOOD = 8.8
LEARNING = {
    "hidden_size": 64,
    "embedding_size": 16,
    "filters": 8,
    "batch_size": 32,
    "contrast_batch_size": 8,
    "learn_start": 200,
    "replay_capacity": 2000,
    "discount": 0.8,
}


@pytest.mark.parametrize("preset, steps", [("state_sac", 1000), ("rcrl_sac", 1500)])
def test_a_preset_learns(preset, steps):
    plan = toy_control.make_plan("", preset, overrides=LEARNING)
    environment = experiment.make_environment(plan)
    fleet = experiment.make_fleet(plan, environment)
    *_, last = loop.train(
        loop.LoopState(0, fleet.init(), environment.reset(), None),
        fleet=fleet,
        environment=environment,
        replay=experiment.make_replay(plan.config, fleet, plan.seeds, "host"),
        history=History(1, steps, fleet.agent.action.shape),
        config=plan.config,
        total_steps=steps,
    )
    params = last.state.learner.params.agent
    score = experiment.evaluate(plan, fleet, params, steps, episodes=50).returns.mean()
    assert score >= GOOD
