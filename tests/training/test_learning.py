"""RCRL learns Catch, and a crippled loss does not."""

from collections import deque

import jax.numpy as jnp

from rcrl_jax.agents import make_agent
from rcrl_jax.losses import c51
from rcrl_jax.training import evaluation
from tests.training import toy

STEPS, EVALUATED_EVERY, GAMES = 3500, 250, 70
GOOD = 0.8  # mean of +1 caught and -1 missed; every ball can be caught
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


def best_score(seeds: tuple[int, ...], steps: int) -> float:
    """Best mean return of any seed at any evaluation; training ends once it is good."""
    config = toy.make_config("rcrl", LEARNING)
    environment, fleet = toy.make_fleet(config, seeds, batching="vmap")
    best = -1.0
    for step in toy.training(fleet, environment, steps):
        now = step.state.step
        if now > config.learn_start and now % EVALUATED_EVERY == 0:
            returns = evaluation.evaluate(
                step.state.learner.params.agent, fleet, toy.make_catch, now, range(GAMES)
            ).returns
            best = max(best, returns.mean(axis=1).max())
            if best >= GOOD:
                break
    return best


def test_rcrl_learns():
    assert best_score((1, 2), STEPS) >= GOOD  # two seeds: one alone may be slow


def with_returns_of_others(logits_tm1, a_tm1, r_t, discount_t, *arguments):
    """Every transition gets the return and the discount of its neighbour in the batch."""
    return c51_loss(logits_tm1, a_tm1, jnp.roll(r_t, 1), jnp.roll(discount_t, 1), *arguments)


c51_loss = c51.double_q_cross_entropy


def test_a_crippled_loss_does_not_learn(monkeypatch):
    monkeypatch.setattr(make_agent, "_made", deque())  # agents with the whole loss
    monkeypatch.setattr(c51, "double_q_cross_entropy", with_returns_of_others)
    assert best_score((1,), STEPS // 3) < 0.2
