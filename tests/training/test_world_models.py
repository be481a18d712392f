"""Agents with a world model train, stop, resume exactly, are scored, ignore the rest of a fleet."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from rcrl_jax import types
from rcrl_jax.agents.make_agent import make_agent
from rcrl_jax.config.presets import WORLD_MODEL_PRESETS
from rcrl_jax.envs.protocol import control_spec
from rcrl_jax.replay.frames import device_frame_size
from rcrl_jax.runs import records
from rcrl_jax.training import prediction
from rcrl_jax.training.fleet import Fleet
from rcrl_jax.training.session import Session
from tests.training import test_golden, toy, toy_world_models

# Everything of `dreamer` is part of `dreamer_rcrl`.
PRESETS = [preset for preset in WORLD_MODEL_PRESETS if preset != "dreamer"]


@pytest.mark.usefixtures("undrawn_curves")
def test_a_run_is_saved_between_the_updates_of_a_step(tmp_path, monkeypatch):
    starts = []
    whole = toy_world_models.make_plan(
        tmp_path / "whole", "dreamer_rcrl", observe_period=toy_world_models.STEPS,
        observe=lambda moment: starts.append(moment.fleet.to_host(moment.params)), record_period=2,
    )  # fmt: skip
    toy.run(whole)
    test_golden.assert_trained(*starts)

    parts = dataclasses.replace(whole, workdir=tmp_path / "parts", observe=None)
    toy.run_and_stop_between_updates(parts, monkeypatch, 40, 2)
    toy.run_and_stop(parts, 63)  # the fourth step of an episode
    assert not toy.last_checkpoint(parts).memory[-1].any()  # so something is remembered
    toy.run(parts)
    toy.assert_same_result(parts, whole)

    lines = records.read_records(whole.paths[0].metrics)
    assert all(line["env_steps"] == 2 * line["agent_steps"] for line in lines)
    losses = [line for line in lines if "loss_model" in line]
    # The updates of step 20 are finished at step 22, and so on, every ten agent steps.
    after = [line["agent_steps"] for line in losses if "early_updates" not in line]
    assert after == list(range(22, 90, 10))
    # The first of two updates before an action is finished when the second one is dispatched.
    before = [(x["agent_steps"], x["early_updates"]) for x in losses if "early_updates" in x]
    assert before == [(step, 2) for step in range(20, 84, 10)]
    assert all(np.isfinite(list(line.values())).all() for line in losses)
    evaluations = records.read_records(whole.paths[0].evaluations)
    assert [line["agent_steps"] for line in evaluations] == [50, 84]
    scores = json.loads(whole.paths[0].scores.read_text())
    assert len(scores["returns"]) == 2 and scores["env_steps"] == 2 * 84


@pytest.mark.usefixtures("undrawn_curves")
def test_slac_resumes_between_updates_of_the_model_alone_and_in_an_episode(tmp_path, monkeypatch):
    whole = toy_world_models.make_plan(tmp_path / "whole", "slac")
    toy.run(whole)
    parts = dataclasses.replace(whole, workdir=tmp_path / "parts")
    toy.run_and_stop_between_updates(parts, monkeypatch, 20, 2)
    toy.run_and_stop(parts, 63)  # the fourth step of an episode
    assert not toy.last_checkpoint(parts).memory[-1].any()  # so something is remembered
    toy.run(parts)
    toy.assert_same_result(parts, whole)
    scores = json.loads(whole.paths[0].scores.read_text())
    assert len(scores["returns"]) == 2


class Counting(toy_world_models.LargeReach):
    """Its frames show episode and step; `taken` tells which action was taken where."""

    def __init__(self, seeds, own):
        super().__init__(seeds, own)
        self.taken = {}

    def _frame(self):
        frame = np.zeros((1, 64, 64, 3), np.uint8)
        frame[..., 0], frame[..., 1] = self._episodes[0], self._time[0]
        return frame

    def send(self, actions):
        place = int(self._episodes[0]), int(self._time[0])
        super().send(actions)
        self.taken[place] = actions[0].copy()
        self._last = self._last._replace(reward=np.float32([self.reward(*place)]))

    @staticmethod
    def reward(episode, time):
        return 100 * episode + time


@pytest.mark.parametrize("preset", ["planet", "slac"])
def test_windows_and_memory_hold_the_actions_that_the_environment_received(preset):
    """Through the whole loop: from what acts to what learns."""
    environments = []

    def make_environment(seeds):
        environments.append(Counting(seeds.reshape(-1), (2,)))
        return environments[-1]

    plan = toy_world_models.make_plan("", preset, make_environment=make_environment)
    session = Session(dataclasses.replace(plan, total_steps=35))
    taken, steps = environments[0].taken, 0
    for step in toy.training(session):
        if step.outcome is None:  # an update before an action
            continue
        remembered = np.asarray(step.state.memory.state.action)[0, 0]
        newest = remembered if preset == "planet" else remembered[-1]
        np.testing.assert_array_equal(newest, list(taken.values())[-1])
        steps += 1
    assert steps == len(taken) == 35

    batch, seen = session.replay.sample(1.0).batch, set()
    windows = jax.tree.map(lambda x: x[0], batch.transitions)
    for frames, actions, rewards in zip(
        windows.observation, windows.action, windows.reward, strict=True
    ):
        for frame, action, reward in zip(frames, actions, rewards, strict=True):
            episode, time = map(int, frame[0, 0, :2])
            # PlaNet's actions and rewards led to the frame, SLAC's follow it.
            place = (episode, time - 1 if preset == "planet" else time)
            if place in taken:
                np.testing.assert_array_equal(action, taken[place])
                assert reward == Counting.reward(*place)
                seen.add(place)
            else:  # the first frame, or the last one
                assert not action.any() and reward == 0.0
    assert len(seen) > 5


@pytest.mark.parametrize("preset", PRESETS)
def test_a_world_model_does_not_change_beside_a_run_with_more_actions(preset):
    """After four updates of the model and, of SLAC, four of policy and critics."""
    steps = 28 if preset == "slac" else 23

    def train(own, seeds):
        plan = toy_world_models.make_plan("", preset, own, seeds)
        return toy.trained(plan, steps)

    together, alone = train((3, 1), (4, 5)), train((1,), (5,))
    toy.assert_equal_trees(jax.tree.map(lambda x: x[1:], together), alone)


@pytest.mark.parametrize("preset", PRESETS)
def test_updates_lower_for_accelerators_with_frames_on_the_device(preset):
    config = toy_world_models.make_config(preset)
    agent = make_agent(config, control_spec((64, 64, 3), 3, action_repeat=2))
    constants = jax.tree.map(lambda x: np.repeat(x, 2), agent.run_constants("reach"))
    fleet = Fleet(agent, (0, 1), types.RunSpec(np.int32([1, 3]), constants))
    frames = np.zeros((2, 4, device_frame_size(agent.observations.stored)), np.uint8)
    for kind in range(len(agent.replay.sequences)):
        batch = prediction.empty_batch(agent, 2, "device", kind)
        toy.assert_lowers_for_accelerators(fleet, batch, frames, kind)
