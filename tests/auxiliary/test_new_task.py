"""A task from outside the package trains with either agent; `docs/extending.md` explains it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rcrl_jax import types
from rcrl_jax.agents.make_agent import make_agent
from rcrl_jax.auxiliary.task import AgentParts, AuxiliaryTask, UpdateView
from rcrl_jax.training import build, evaluation
from rcrl_jax.training.fleet import Fleet
from tests.training import toy, toy_control


# [new task]
def make_reward_prediction(parts: AgentParts) -> AuxiliaryTask:
    """Predicts the next reward from psi(s); the state counts the updates."""

    def init(key):
        return {"weights": 0.01 * jax.random.normal(key, (parts.psi_size,))}

    def loss(task_params, view: UpdateView, state, key):
        del state, key
        error = view.psi @ task_params["weights"] - view.batch.transitions.reward
        return jnp.mean(jnp.square(error)), {"reward_bias": jnp.mean(error)}

    return AuxiliaryTask(
        init,
        loss,
        weight=lambda factor: 0.5 * factor,
        constants=lambda game: np.float32(3.0 if game == "Pong" else 1.0),
        init_state=lambda task_params, agent_params: jnp.zeros((), jnp.int32),
        next_state=lambda state, task_params, agent_params: state + 1,
        importance_weighted=True,
        in_priorities=True,
    )


TASKS = {"reward_prediction": make_reward_prediction}
# [new task]

STEPS = 60


def make_plan(family: str):
    if family == "rainbow":
        return toy.make_plan("", "rcrl", overrides={"learning_rate": 1e-3})
    return toy_control.make_plan("", "rcrl_sac")


@functools.cache
def fleet_of(family: str) -> Fleet:
    """A fleet of one run with the new task, made once for the whole module."""
    plan = make_plan(family)
    environment, _ = build.make_fleet(plan)
    environment.close()
    agent = make_agent(plan.config, environment.spec, TASKS)
    constants = jax.tree.map(lambda x: np.asarray(x)[None], agent.run_constants("Pong"))
    return Fleet(agent, plan.seeds, types.RunSpec(environment.num_valid_actions, constants))


@functools.cache
def trained(family: str):
    """The first and last learner state of its run, and the last result."""
    fleet = fleet_of(family)
    environment, _ = build.make_fleet(make_plan(family))
    *_, last = toy.training(fleet, environment, STEPS)
    environment.close()
    result = fleet.to_host(last.state.pending_update.result)
    return fleet.to_host(fleet.init()), fleet.to_host(last.state.learner), result


@pytest.mark.parametrize("family", ["rainbow", "sac"])
def test_a_new_task_trains_with_either_family(family):
    plan = make_plan(family)
    fleet, (start, learner, result) = fleet_of(family), trained(family)
    updates = int(learner.updates[0])
    assert updates == STEPS - plan.config.learn_start
    assert learner.task_state["reward_prediction"].tolist() == [updates]
    assert np.isfinite(result.metrics["loss_reward_prediction"]).all()
    assert "reward_bias" in result.metrics and "loss_return_contrast" in result.metrics
    before, after = (s.params.auxiliary["reward_prediction"] for s in (start, learner))
    assert np.any(before["weights"] != after["weights"])
    assert fleet.agent.run_constants("Alien")["reward_prediction"] == 1.0


@pytest.mark.parametrize("family", ["rainbow", "sac"])
def test_weight_and_priorities_of_a_new_task_apply_in_both_families(family):
    """With the same batch, priorities differ by weight x constant x loss, in every transition."""
    plan = make_plan(family)
    environment, own = build.make_fleet(plan)
    replay = build.make_replay(own, "host")
    rng = np.random.default_rng(0)
    environment.reset()
    for _ in range(40):
        shape = (1, *own.agent.action.shape)
        action = rng.integers(0, 3, 1) if shape == (1,) else rng.uniform(-1, 1, shape)
        if shape != (1,):
            action[..., plan.make_environment(np.zeros((1, 1))).num_valid_actions[0] :] = 0
        action = action.astype(own.agent.action.dtype)
        outcome = environment.step(action)
        replay.add(
            outcome.frame, action, outcome.reward, outcome.terminated, outcome.truncated,
            outcome.frame,
        )  # fmt: skip
    batch = jax.tree.map(lambda x: np.array(x, copy=True), replay.sample(1.0).batch)
    environment.close()
    without, with_task = (
        fleet.to_host(fleet.update(fleet.init(), batch)[1]) for fleet in (own, fleet_of(family))
    )
    added = with_task.transition_loss - without.transition_loss
    expected = 0.5 * 3.0 * float(with_task.metrics["loss_reward_prediction"][0])
    assert expected > 1e-3
    np.testing.assert_allclose(added, np.full_like(added, expected), rtol=0.05)


def test_an_agent_with_a_new_task_can_be_evaluated():
    fleet, (_, learner, _) = fleet_of("rainbow"), trained("rainbow")
    params = fleet.place(learner.params.agent)
    environment = make_plan("rainbow").make_environment
    result = evaluation.evaluate(params, fleet, environment, STEPS, range(3))
    assert result.returns.shape == (1, 3)
