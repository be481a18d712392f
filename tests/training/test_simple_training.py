"""SimPLe trains, stops in the middle of a round's updates, resumes exactly, is scored thrice."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from rcrl_jax import types
from rcrl_jax.agents.agent import EVALUATION
from rcrl_jax.agents.make_agent import make_agent
from rcrl_jax.envs.protocol import discrete_spec
from rcrl_jax.replay.frames import device_frame_size
from rcrl_jax.runs import records
from rcrl_jax.training import assessment, prediction
from rcrl_jax.training.fleet import Fleet
from tests.training import test_golden, toy, toy_simple


@pytest.mark.usefixtures("undrawn_curves")
def test_simple_resumes_exactly_in_the_middle_of_a_round(tmp_path, monkeypatch):
    starts = []

    def keep(moment):
        starts.append(moment.fleet.to_host(moment.params))

    whole = toy_simple.make_plan(tmp_path / "whole", observe=keep, observe_period=toy_simple.STEPS)
    toy.run(whole)
    test_golden.assert_trained(*starts)
    parts = dataclasses.replace(whole, workdir=tmp_path / "parts", observe=None)
    toy.run_and_stop_between_updates(parts, monkeypatch, 48, 5)  # among rollouts in the model
    toy.run_and_stop(parts, 55)  # in an episode
    toy.run_and_stop_between_updates(parts, monkeypatch, 72, 1)  # after the last action
    toy.run(parts)
    toy.assert_same_result(parts, whole)

    last = toy.last_checkpoint(whole)
    assert last.step == 72 and last.early_updates == 1
    assert last.learner.updates == 19 and last.learner.opt_state.progress.model_updates == 9
    lines = records.read_records(whole.paths[0].metrics)
    updates = [line for line in lines if "loss_pixels" in line]
    assert [line["agent_steps"] for line in updates] == [13, 25, 37, 49, 61]
    assert not updates[0]["loss_pixels"] and updates[1]["loss_pixels"] > 0
    assert all(np.isfinite(list(line.values())).all() for line in updates)
    evaluations = records.read_records(whole.paths[0].evaluations)
    assert [line["agent_steps"] for line in evaluations] == [48, 72]
    for line in evaluations:
        assert {"mean", "mean_temperature_0.0", "mean_temperature_1.0"} <= line.keys()
        assert "mean_temperature_0.5" not in line
    scores = json.loads(whole.paths[0].scores.read_text())
    assert scores["mean"] == evaluations[-1]["mean"]


@pytest.mark.usefixtures("undrawn_curves")
def test_evaluations_come_before_updates_and_each_mean_has_its_policy(tmp_path, monkeypatch):
    assessed, means = [], {}
    assess, play = assessment.Assessor._assess, assessment.evaluation.evaluate

    def noted(assessor, *arguments, **named):
        state = assessor._session.state
        assessed.append((state.step, int(state.learner.updates[0])))
        return assess(assessor, *arguments, **named)

    def played(params, fleet, games, **named):
        result = play(params, fleet, games, **named)
        result = result._replace(returns=result.returns + len(means))  # tells policies apart
        means[games.agent_steps, games.policy_name] = result.returns.mean()
        return result

    monkeypatch.setattr(assessment.Assessor, "_assess", noted)
    monkeypatch.setattr(assessment.evaluation, "evaluate", played)
    plan = toy_simple.make_plan(tmp_path)
    toy.run(plan)
    assert assessed == [(48, 10), (72, 19)]  # before the updates of step 48, after the last ones
    for line in records.read_records(plan.paths[0].evaluations):
        step = line["agent_steps"]
        assert line["mean"] == means[step, EVALUATION]
        for name in ("temperature_0.0", "temperature_1.0"):
            assert line[f"mean_{name}"] == means[step, name]


def test_a_run_is_the_same_alone_and_in_a_fleet():
    """After a round of all kinds of updates."""

    def train(seeds):
        learner, _, history = toy.trained(toy_simple.make_plan("", seeds=seeds), 25)
        return learner, history

    toy.assert_equal_trees(jax.tree.map(lambda x: x[1:], train((4, 5))), train((5,)))


@pytest.mark.parametrize("kind", range(3))
def test_updates_of_each_kind_lower_for_accelerators(kind):
    """With frames on the device; the stochastic model has all parts of the other."""
    config = toy_simple.make_config("stochastic")
    agent = make_agent(config, discrete_spec(config.frame_shape, 3))
    fleet = Fleet(agent, (0, 1), types.RunSpec(np.int32([3, 3]), {}))
    batch = prediction.empty_batch(agent, 2, "device", kind)
    frames = np.zeros((2, 4, device_frame_size(agent.observations.stored)), np.uint8)
    toy.assert_lowers_for_accelerators(fleet, batch, frames, kind)
