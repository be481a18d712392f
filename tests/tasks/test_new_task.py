"""A task from outside the package trains with Rainbow and SAC; `docs/newtask.md` explains it."""

import sys
import types as types_of_python

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import specs

from rcrl_jax import types
from rcrl_jax.agents.make_agent import make_agent
from rcrl_jax.config import choices, fields
from rcrl_jax.config.choices import Task
from rcrl_jax.envs.protocol import EnvironmentSpec
from rcrl_jax.replay.settings import ContrastRule
from rcrl_jax.tasks.task import AgentParts, AuxiliaryTask, UpdateView, needs_of
from rcrl_jax.training import build, prediction
from rcrl_jax.training.fleet import Fleet
from tests.training import toy, toy_control


# [new task]
def make_reward_prediction(parts: AgentParts, config) -> AuxiliaryTask:
    """Predicts the sum of the next n rewards from psi(s); the state counts the updates."""

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


# [with samples]
def make_triplet(parts: AgentParts, config) -> AuxiliaryTask:
    """Pulls observations of one segment together, and others apart: a triplet loss."""

    def init(key):
        return {"projection": jax.random.normal(key, (parts.psi_size, 32)) / parts.psi_size**0.5}

    def images(batch, sampled, key):
        del sampled, key
        return tuple(pairs.observation for pairs in batch.contrast)

    def loss(task_params, view: UpdateView, state, key):
        del state, key
        anchor, positive, negative = (x @ task_params["projection"] for x in view.psi_of_images)
        near = jnp.sum(jnp.square(anchor - positive), axis=-1)
        far = jnp.sum(jnp.square(anchor - negative), axis=-1)
        return jnp.mean(jax.nn.relu(1.0 + near - far)), {"nearer": jnp.mean(near < far)}

    return AuxiliaryTask(
        init,
        loss,
        weight=lambda constants: 0.1,
        contrast_rule=parts.contrast_rule._replace(number=16, anchors="uniform"),
        images=images,
    )


# [with samples]

BASES = {"rainbow": "erainbow_sa", "sac": "sac_aug"}


def make_plan(family: str, preset: str = ""):
    if family == "rainbow":
        return toy.make_plan("", preset or "rcrl", overrides={"learning_rate": 1e-3})
    overrides = None if preset else {"auxiliary": ("return_contrast",)}
    return toy_control.make_plan("", preset or "state_sac", overrides=overrides)


@pytest.mark.parametrize("family", ["rainbow", "sac"])
def test_a_new_task_learns_with_either_family_and_adds_its_weighted_loss_to_priorities(family):
    """With one batch, priorities differ by both weights x constant x loss, in every transition."""
    plan = make_plan(family)
    environment, own = build.make_fleet(plan)
    batch = toy.played(environment, own).sample(1.0).batch
    environment.close()
    doubled = fields.replace(plan.config, {"auxiliary_weight": 2.0})
    agent = make_agent(doubled, environment.spec, TASKS)
    constants = jax.tree.map(lambda x: np.asarray(x)[None], agent.run_constants("Pong"))
    fleet = Fleet(agent, plan.seeds, types.RunSpec(environment.num_valid_actions, constants))
    start = fleet.to_host(fleet.init())
    learner, result = fleet.update(fleet.init(), batch)
    with_task = fleet.to_host(result)
    learner = fleet.to_host(fleet.update(learner, batch)[0])
    assert learner.task_state["reward_prediction"].tolist() == [2]
    assert "reward_bias" in with_task.metrics and "loss_return_contrast" in with_task.metrics
    before, after = (s.params.auxiliary["reward_prediction"] for s in (start, learner))
    assert np.any(before["weights"] != after["weights"])
    assert fleet.agent.run_constants("Alien")["reward_prediction"] == 1.0

    without = own.to_host(own.update(own.init(), batch)[1])
    added = with_task.transition_loss - without.transition_loss
    expected = 2.0 * 0.5 * 3.0 * float(with_task.metrics["loss_reward_prediction"][0])
    assert expected > 1e-3
    np.testing.assert_allclose(added, np.full_like(added, expected), rtol=0.05)


def test_a_task_gets_the_contrastive_samples_that_it_asks_for():
    plan = make_plan("rainbow", BASES["rainbow"])
    environment, _ = build.make_fleet(plan)
    spec = environment.spec
    agent = make_agent(plan.config, spec, {"triplet": make_triplet})
    without = make_agent(plan.config, spec)
    assert without.replay.contrast_rule.number == 0 and agent.replay.contrast_rule.number == 16
    assert agent.replay.contrast_rule.tolerance == without.replay.contrast_rule.tolerance
    assert agent.resources.activation_bytes > without.resources.activation_bytes
    fleet = Fleet(agent, plan.seeds, types.RunSpec(environment.num_valid_actions, {"triplet": ()}))
    batch = toy.played(environment, fleet).sample(1.0).batch
    environment.close()
    start = fleet.to_host(fleet.init().params.auxiliary["triplet"]["projection"])
    learner, result = fleet.update(fleet.init(), batch)
    assert (fleet.to_host(result).metrics["loss_triplet"] > 0).all()
    after = fleet.to_host(learner.params.auxiliary["triplet"]["projection"])
    assert (after != start).any(axis=(1, 2)).all()  # in each run


@pytest.mark.parametrize(
    ("encoder", "frame", "changes"),
    [
        ("dense", specs.Array((4,), np.float32), False),
        ("minatar", specs.BoundedArray((10, 10, 2), np.uint8, 0, 1), False),
        ("data_efficient", specs.BoundedArray((84, 84), np.uint8, 0, 255), True),
    ],
)
def test_a_task_augments_images_and_leaves_vectors_and_grids_as_they_are(encoder, frame, changes):
    changed = []

    def make_twice(parts, config):
        def loss(task_params, view, state, key):
            sampled = view.sampled.transitions.observation
            augmented = parts.augment(key, sampled)
            changed.append(augmented is not sampled)
            psi = parts.encode(view.params, augmented)
            return jnp.mean(jnp.square(view.psi - psi)), {}

        return AuxiliaryTask(lambda key: {}, loss, whole_frames=True)

    config = toy.make_config("erainbow", encoder=encoder, frame_stack=1)
    spec = EnvironmentSpec(frame, specs.DiscreteArray(3))
    agent = make_agent(config, spec, {"twice": make_twice})
    run = types.RunSpec(np.int32(3), agent.run_constants("Catch"))
    start = jax.eval_shape(agent.init, run, jax.random.key(0))
    batch = jax.tree.map(lambda x: x[0], prediction.empty_batch(agent, 1, "host"))
    jax.eval_shape(lambda state, batch: agent.update(run, state, batch), start, batch)
    assert changed and set(changed) == {changes}


def test_tasks_that_ask_for_different_samples_are_refused():
    plan = make_plan("rainbow")  # whose own task asks for eight
    environment, _ = build.make_fleet(plan)
    environment.close()
    with pytest.raises(types.Incompatible, match="return_contrast and triplet ask for different"):
        make_agent(plan.config, environment.spec, {"triplet": make_triplet})


def test_the_rl_batch_has_as_many_anchors_as_transitions():
    parts = AgentParts(None, None, None, None, 2, 2, ContrastRule(), batch_size=3)
    task = AuxiliaryTask(None, None, contrast_rule=ContrastRule(4, anchors="rl_batch"))
    assert needs_of({"own": task}, parts).contrast_rule.number == 3


ENTRY = {
    "triplet": Task("tasks.triplet.make_triplet", ("rainbow", "sac"), draws_samples=True),
}


def select(monkeypatch) -> None:
    """Adds the entry of `docs/newtask.md`, as if its module were there."""
    module = types_of_python.SimpleNamespace(make_triplet=make_triplet)
    monkeypatch.setitem(sys.modules, "rcrl_jax.tasks.triplet", module)
    monkeypatch.setitem(choices.TASKS, "triplet", ENTRY["triplet"])


@pytest.mark.parametrize("family", ["rainbow", "sac"])
def test_an_entry_in_the_table_selects_a_task(family, monkeypatch):
    select(monkeypatch)
    plan = make_plan(family, BASES[family])
    environment, _ = build.make_fleet(plan)
    environment.close()
    named = fields.replace(plan.config, {"auxiliary": ("triplet",)})
    assert make_agent(named, environment.spec).replay.contrast_rule.number == 16
    unused = fields.replace(named, {"auxiliary_weight": 0.0})
    assert make_agent(unused, environment.spec).replay.contrast_rule.number == 0
