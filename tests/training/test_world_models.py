"""Agents with a world model train, stop in the middle of an episode, resume exactly, are scored."""

import dataclasses
import functools
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
from rcrl_jax.training import build, experiment, prediction
from rcrl_jax.training.fleet import Fleet
from rcrl_jax.training.history import History
from tests.training import test_control, test_golden, toy, toy_world_models

# Everything of `dreamer` is part of `dreamer_rcrl`.
PRESETS = [preset for preset in WORLD_MODEL_PRESETS if preset != "dreamer"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """By preset, the plan of a run that is never interrupted; made once."""

    @functools.cache
    def plan_of(preset):
        starts = []
        plan = toy_world_models.make_plan(
            tmp_path_factory.mktemp(preset), preset, observe_period=toy_world_models.STEPS,
            observe=lambda moment: starts.append(moment.fleet.to_host(moment.params)),
        )  # fmt: skip
        toy.run(plan)
        test_golden.assert_trained(*starts, plan.config)
        return dataclasses.replace(plan, observe=None)

    return plan_of


@pytest.mark.usefixtures("undrawn_curves")
@pytest.mark.parametrize("preset", PRESETS)
def test_world_models_train_stop_in_an_episode_and_resume_exactly(preset, whole, tmp_path):
    parts = dataclasses.replace(whole(preset), workdir=tmp_path)
    test_control.run_and_stop(parts, 63)  # the fourth step of an episode
    assert not toy.last_checkpoint(parts).memory[-1].any()  # so something is remembered
    toy.run(parts)
    toy.assert_same_result(parts, whole(preset))

    lines = records.read_records(parts.paths[0].metrics)
    assert all(line["env_steps"] == 2 * line["agent_steps"] for line in lines)
    losses = [line for line in lines if any(name.startswith("loss_") for name in line)]
    # The updates of step 20 are finished at step 22, and so on, every ten agent steps; those of
    # SLAC come every two.
    recorded = range(30, 90, 10) if preset == "slac" else range(22, 90, 10)
    assert [line["agent_steps"] for line in losses] == list(recorded)
    assert all(np.isfinite(list(line.values())).all() for line in losses)
    evaluations = records.read_records(parts.paths[0].evaluations)
    assert [line["agent_steps"] for line in evaluations] == [50, 84]
    scores = json.loads(parts.paths[0].scores.read_text())
    assert len(scores["returns"]) == 2 and scores["env_steps"] == 2 * 84


@pytest.mark.usefixtures("undrawn_curves")
def test_a_run_is_saved_between_the_updates_of_a_step(whole, tmp_path, monkeypatch):
    parts = dataclasses.replace(whole("dreamer_rcrl"), workdir=tmp_path)
    saved = []
    save_if_due = experiment._Saves.save_if_due

    def stop_early(saves, state):
        """As if ten minutes had passed after the first and the second early update."""
        if state.step == 40 and state.early_updates and len(saved) < 2:
            saved.append(state.early_updates)
            saves.save(state)
            if len(saved) == 2:
                raise experiment.Interrupted(15, state.step)
        save_if_due(saves, state)

    monkeypatch.setattr(experiment._Saves, "save_if_due", stop_early)
    with pytest.raises(experiment.Interrupted):
        toy.run(parts)
    assert saved == [1, 2]
    assert toy.last_checkpoint(parts).early_updates == 2
    toy.run(parts)
    toy.assert_same_result(parts, whole("dreamer_rcrl"))


def test_dreamer_does_not_change_beside_a_run_with_more_actions(tmp_path):
    def train(own, seeds):
        plan = toy_world_models.make_plan(tmp_path, "dreamer_rcrl", own, seeds)
        environment, fleet = build.make_fleet(plan)
        replay = build.make_replay(fleet, "host")
        history = History(len(seeds), 45, fleet.agent.action.shape)
        *_, last = toy.training(fleet, environment, 45, replay=replay, history=history)
        state = last.state
        return fleet.to_host((state.learner, state.memory)), replay.state, history.state

    together = train((1, 3), (4, 5))
    for r, (own, seed) in enumerate([((1,), 4), ((3,), 5)]):
        of_one = jax.tree.map(lambda x, r=r: x[r : r + 1], together)
        toy.assert_equal_trees(of_one, train(own, (seed,)))


@pytest.mark.parametrize("preset", PRESETS)
def test_updates_lower_for_accelerators_with_frames_on_the_device(preset):
    config = toy_world_models.make_config(preset)
    agent = make_agent(config, control_spec((64, 64, 3), 3, action_repeat=2))
    constants = jax.tree.map(lambda x: np.repeat(x, 2), agent.run_constants("reach"))
    fleet = Fleet(agent, (0, 1), types.RunSpec(np.int32([1, 3]), constants))
    batch = prediction.empty_batch(agent, 2, "device")
    frames = np.zeros((2, 4, device_frame_size(agent.observations.stored)), np.uint8)
    exported = jax.export.export(fleet.programs.update, platforms=("tpu", "cuda"))(
        *fleet.update_arguments(jax.eval_shape(fleet.init), batch)[:-1], frames
    )
    assert set(exported.platforms) == {"tpu", "cuda"}
