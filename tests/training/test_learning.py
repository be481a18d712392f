"""RCRL learns Catch."""

from rcrl_jax.training import evaluation
from rcrl_jax.training.session import Session
from tests.training import toy

STEPS, EVALUATED_EVERY, GAMES = 3500, 250, 70
# Mean of +1 caught and -1 missed; every ball can be caught. With the returns of other transitions,
# an agent stays below 0.2. The first good look is partly luck (its standard error is 0.07), so
# other games confirm less: 0.5 is six of their standard errors (0.05) above what cannot learn.
GOOD, CONFIRMED = 0.8, 0.5
LEARNING = {
    "hidden_size": 64,
    "num_atoms": 21,
    "return_contrast.discriminator_hidden": 64,
    "batch_size": 16,
    "return_contrast.batch_size": 8,
    "learning_rate": 2e-3,
    "noisy_sigma": 0.5,
    "discount": 0.95,
    "n_step": 5,
    "target_period": 50,
    "learn_start": 300,
    "replay.capacity": 10_000,
    "frame_stack": 1,
    "evaluation_epsilon": 0.0,
}


def test_rcrl_learns():
    """Ends once the mean return of a seed is good; two seeds, because one alone may be slow."""
    config = toy.make_config("rcrl", LEARNING)
    plan = toy.plan_of("", "rcrl", config, toy.GAME, (1, 2), total_steps=STEPS, batching="vmap",
                       make_environment=toy.make_catch)  # fmt: skip
    session = Session(plan)
    for step in toy.training(session):
        now = step.state.step
        if now > config.learn_start and now % EVALUATED_EVERY == 0:
            games = evaluation.Games(toy.make_catch, now, range(GAMES))
            returns = evaluation.evaluate(
                step.state.learner.params.agent, session.fleet, games
            ).returns
            means = returns.mean(axis=1)
            if means.max() >= GOOD:
                break
    assert means.max() >= GOOD
    others = games._replace(agent_steps=now, numbers=range(GAMES, GAMES + 300))
    again = evaluation.evaluate(
        step.state.learner.params.agent, session.fleet, others
    ).returns.mean(axis=1)
    assert again[means.argmax()] >= CONFIRMED
