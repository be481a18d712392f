"""Agents with a world model train, stop in the middle of an episode, resume exactly, are scored."""

import dataclasses
import json

import numpy as np
import pytest

from rcrl_jax.config.presets import WORLD_MODEL_PRESETS
from rcrl_jax.runs import records
from rcrl_jax.training import experiment
from tests.training import test_control, test_golden, toy, toy_world_models


@pytest.mark.usefixtures("undrawn_curves")
@pytest.mark.parametrize("preset", WORLD_MODEL_PRESETS)
def test_presets_train_stop_and_resume_exactly(preset, tmp_path):
    starts = []

    def keep(moment):
        starts.append(moment.fleet.to_host(moment.params))

    whole = toy_world_models.make_plan(
        tmp_path / "whole", preset, observe=keep, observe_period=toy_world_models.STEPS
    )
    test_control.run(whole)
    test_golden.assert_trained(*starts, whole.config)
    parts = dataclasses.replace(whole, workdir=tmp_path / "parts", observe=None)
    test_control.run_and_stop(parts, 63)  # the fourth step of an episode
    assert not toy_checkpoint(parts).memory[-1].any()  # so something is remembered
    test_control.run(parts)
    toy.assert_equal_trees(toy_checkpoint(parts), toy_checkpoint(whole))
    assert toy.recorded(parts) == toy.recorded(whole)
    assert_records(whole)


def toy_checkpoint(plan):
    return toy.last_checkpoint(plan)


def assert_records(plan):
    lines = records.read_records(plan.paths[0].metrics)
    assert all(line["env_steps"] == 2 * line["agent_steps"] for line in lines)
    losses = [line for line in lines if any(name.startswith("loss_") for name in line)]
    # The updates of step 20 are finished at step 22, and so on, every ten agent steps.
    assert [line["agent_steps"] for line in losses] == [22, 32, 42, 52, 62, 72, 82]
    assert all(np.isfinite(list(line.values())).all() for line in losses)
    evaluations = records.read_records(plan.paths[0].evaluations)
    assert [line["agent_steps"] for line in evaluations] == [50, 84]
    scores = json.loads(plan.paths[0].scores.read_text())
    assert len(scores["returns"]) == 2 and scores["env_steps"] == 2 * 84


def test_a_run_is_saved_between_the_updates_of_a_step(tmp_path, monkeypatch, undrawn_curves):
    whole = toy_world_models.make_plan(tmp_path / "whole", "dreamer")
    test_control.run(whole)
    parts = dataclasses.replace(whole, workdir=tmp_path / "parts")
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
        test_control.run(parts)
    assert saved == [1, 2]
    assert toy_checkpoint(parts).early_updates == 2
    test_control.run(parts)
    toy.assert_equal_trees(toy_checkpoint(parts), toy_checkpoint(whole))
    assert toy.recorded(parts) == toy.recorded(whole)
