"""Control through the same loop as Atari: presets train and resume exactly."""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest

from rcrl_jax import types
from rcrl_jax.agents.make_agent import make_agent
from rcrl_jax.config import fields
from rcrl_jax.config.presets import ATARI_PRESETS
from rcrl_jax.envs import dmc, pools
from rcrl_jax.envs.protocol import control_spec, discrete_spec
from rcrl_jax.replay.segment_replay import SegmentReplay
from rcrl_jax.runs import records
from rcrl_jax.training import build, experiment
from rcrl_jax.training.fleet import Fleet
from rcrl_jax.training.plan import RunId
from tests.envs import test_frame_log
from tests.training import test_golden, toy, toy_control


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """(digests, plan) of a run of `rcrl_sac` that is never interrupted."""
    digests, plan = test_golden.run_preset("rcrl_sac", tmp_path_factory.mktemp("whole"))
    return digests, dataclasses.replace(plan, observe=None)


def with_frames_from(source, plan, workdir):
    """The plan whose resumption reads frames from `source`."""
    config = fields.replace(plan.config, {"replay.resumed_frames": source})
    return dataclasses.replace(plan, workdir=workdir, config=config)


@pytest.fixture(scope="module")
def stopped(whole, tmp_path_factory):
    """The directories of stopped runs, by the source of frames."""
    directories = {}
    for source in ("stored", "rendered"):
        directories[source] = tmp_path_factory.mktemp(source)
        toy.run_and_stop(with_frames_from(source, whole[1], directories[source]), 63)
    return directories


def test_rcrl_sac_trains_records_and_is_scored(whole):
    """It resumes in `test_a_resumed_run_may_read_its_frames_or_render_them`."""
    _, plan = whole
    lines = records.read_records(plan.paths[0].metrics)
    assert all(line["env_steps"] == 2 * line["agent_steps"] for line in lines)
    assert all(line["frames"] == line["agent_steps"] for line in lines)
    losses = [line for line in lines if "loss_critic" in line]
    assert [line["agent_steps"] for line in losses] == list(range(30, test_golden.STEPS + 1, 10))
    assert all(np.isfinite(list(line.values())).all() for line in losses)
    assert "segment_length_p50" in losses[-1] and "beta" not in losses[-1]
    # Every 160 environment steps are every 80 agent steps.
    evaluations = records.read_records(plan.paths[0].evaluations)
    assert [line["agent_steps"] for line in evaluations] == [80, 84]
    scores = json.loads(plan.paths[0].scores.read_text())
    assert len(scores["returns"]) == 2 and scores["env_steps"] == 2 * 84
    assert all(0 <= value <= toy_control.EPISODE for value in scores["returns"])


@test_golden.where_recorded
def test_rcrl_sac_matches_its_recorded_digest(whole):
    assert whole[0] == test_golden.recorded()["digests"]["rcrl_sac"]


def test_a_simulator_that_does_not_repeat_its_log_is_refused(tmp_path, whole, stopped):
    shutil.copytree(stopped["stored"], tmp_path / "parts")
    parts = with_frames_from("stored", whole[1], tmp_path / "parts")
    before = (parts.workdir / "frames.log").read_bytes()

    def make_other(seeds):
        return toy_control.Reach(seeds.reshape(-1) ^ 1, [2] * seeds.size, "pixels")

    with pytest.raises(experiment.NotReproduced, match="did not repeat the frames"):
        toy.run(dataclasses.replace(parts, make_environment=make_other))
    assert (parts.workdir / "frames.log").read_bytes() == before


@pytest.mark.usefixtures("undrawn_curves")
@pytest.mark.parametrize("frames", ["stored", "older", "lost", "rendered"])
def test_a_resumed_run_may_read_its_frames_or_render_them(frames, tmp_path, whole, stopped):
    """While frames are not wanted the simulator shows noise, so none is used that was not read."""
    _, reference = whole
    source = "rendered" if frames == "rendered" else "stored"
    shutil.copytree(stopped[source], tmp_path / "parts")
    parts = with_frames_from(source, reference, tmp_path / "parts")
    log = parts.workdir / "frames.log"
    assert log.exists() == (source == "stored")
    if frames == "lost":
        log.unlink()
    if frames == "older":  # the checkpoint of step 50 knows less of the log
        (parts.workdir / "checkpoints" / "63.ckpt").write_text("{")

    def make_blind(seeds):
        return test_frame_log.Blind(seeds.reshape(-1), [2] * seeds.size, "pixels")

    lines = toy.run(dataclasses.replace(parts, make_environment=make_blind))
    warnings = [line for line in lines if line.startswith("warning")]
    assert len(warnings) == (frames in ("lost", "older"))
    assert all(("frames.log is gone" in line) == (frames == "lost") for line in warnings)
    mine, other = toy.last_checkpoint(parts), toy.last_checkpoint(reference)
    if frames == "rendered":
        other = other._replace(frame_log=None)  # rendered runs keep none
    toy.assert_equal_trees(mine, other)
    assert toy.recorded(parts) == toy.recorded(reference)
    assert not log.exists()  # a finished run needs it no more


@pytest.mark.parametrize(
    "total_steps, what",
    [
        (toy_control.STEPS, "an action"),
        (22, "a parameter"),  # the second update, the last one, makes NaNs
    ],
    ids=["training", "evaluation"],
)
def test_a_run_that_diverges_stops_and_keeps_the_state(total_steps, what, tmp_path):
    """That is steps before losses are checked next; no environment may receive such an action."""
    plan = toy_control.make_plan(
        tmp_path, "state_sac", overrides={"learning_rate": 1e30}, total_steps=total_steps,
        record_period=200,
    )  # fmt: skip
    with pytest.raises(experiment.Diverged) as stop:
        toy.run(plan)
    kept = toy.last_checkpoint(plan, tmp_path / "diverged")
    first_update = plan.config.learn_start
    assert first_update < kept.step < first_update + 5
    assert str(stop.value) == (
        f"{plan.runs[0].game} 3: {what} is not finite at step {kept.step}; the state is kept in "
        f"{tmp_path / 'diverged'}"
    )
    assert np.isfinite(kept.history.actions).all()
    assert kept.history.actions[0, kept.step - 1].any()
    assert not kept.history.actions[0, kept.step :].any()
    assert len(kept.pending_update.index[0]) == plan.config.batch_size
    # The learner includes the update that was being computed.
    in_training = what == "an action"
    assert int(kept.learner.updates[0]) == kept.step - first_update + in_training
    assert not plan.paths[0].scores.exists()


def test_tasks_of_the_suite_train_stop_and_resume_exactly(tmp_path, monkeypatch):
    """Tasks of equal action repeat form a fleet: its runs take their agent steps together."""
    # One worker: each takes a second to start.
    monkeypatch.setattr(pools, "usable_cores", lambda: 1)
    tasks = tuple(name for name, task in dmc.DMC_TASKS.items() if task.action_repeat == 2)
    # The first update is at step 20; the ring wraps after the run is resumed.
    plan = toy_control.make_plan(tmp_path / "whole", "state_sac", overrides={"replay.capacity": 30})
    runs = tuple(RunId(task, 3) for task in tasks)
    plan = dataclasses.replace(
        plan,
        runs=runs,
        make_environment=build.environment_maker(plan.config, runs, "dm_control"),
        checkpoint_period=1000,
    )
    # Not to the end: the episodes of an evaluation would take minutes.
    parts = dataclasses.replace(plan, workdir=tmp_path / "parts")
    for part, step in ((plan, 36), (parts, 25), (parts, 36)):
        toy.run_and_stop(part, step)
    toy.assert_same_result(parts, plan)
    for paths, task in zip(plan.paths, tasks, strict=True):
        described = json.loads(paths.manifest.read_text())["environment"]
        assert (described["task"], described["action_repeat"]) == (task, 2)


# --- the replay ---------------------------------------------------------------------------------


def replay_of(config, rewards, action_repeat) -> SegmentReplay:
    """The replay of one run of an experiment, after `rewards` without an end of an episode.

    The action of transition t is t.
    """
    spec = {
        ("rainbow", "pixels"): discrete_spec((84, 84), 6),
        ("sac", "pixels"): control_spec((100, 100, 3), 6, action_repeat=action_repeat),
        ("sac", "state"): control_spec((24,), 6, action_repeat=action_repeat),
    }[config.family, config.observation]
    fleet = Fleet(make_agent(config, spec), (0,), types.RunSpec(np.int32([6]), {}))
    replay = build.make_replay(fleet, "host")
    frame, never = np.zeros((1, *spec.frame.shape), spec.frame.dtype), np.zeros(1, bool)
    for t, reward in enumerate(rewards):
        action = np.full((1, *fleet.agent.action.shape), t, np.float32)
        replay.add(frame, action, np.float32([reward]), never, never, frame)
    return replay


@pytest.mark.parametrize(
    "segment_reward, threshold, action_repeat, length",
    [
        ("sum", 1.0, 2, 1),
        ("sum", 2.0, 4, 2),  # 1.5, 3 > 2
        ("mean", 1.0, 2, 2),  # 0.75, 1.5 > 1
        ("mean", 2.0, 4, 6),  # 0.375 six times are 2.25
    ],
)
def test_a_segment_ends_above_the_preset_s_threshold(
    segment_reward, threshold, action_repeat, length
):
    config = toy_control.make_config(
        "state_sac",
        {
            "return_contrast.segment_reward": segment_reward,
            "return_contrast.segment_threshold": threshold,
        },
    )
    replay = replay_of(config, [1.5] * 12, action_repeat)
    assert replay.segment_lengths(0).tolist() == [length] * (12 // length)


def sizes(size: int) -> dict[str, object]:
    """Fields for batches of `size` transitions and as many anchors, without a network to train."""
    return {
        "auxiliary": ("return_contrast",),
        "batch_size": size,
        "return_contrast.batch_size": size,
        "replay.capacity": size,
    }


@pytest.mark.parametrize(
    "segment_reward, threshold, apart",
    [
        ("sum", 1.0, 0),
        ("sum", 1.5, 1),  # returns of neighbours differ by 1.5
        ("mean", 1.0, 2),  # a mean of 1 is a sum of 4: 3 <= 4 < 4.5
    ],
)
def test_returns_are_equal_up_to_the_segment_s_threshold(segment_reward, threshold, apart):
    settings = toy_control.make_config(
        "state_sac",
        {
            **sizes(2000),
            "return_contrast.segment_reward": segment_reward,
            "return_contrast.segment_threshold": threshold,
            "return_contrast.positives": "equal_return",
            "return_contrast.negative_differs_in_return": True,
        },
    )
    sample = replay_of(settings, [1.5] * 12, 4).sample(1.0)
    anchor, positive, negative = (p.action[0, :, 0].astype(int) for p in sample.batch.contrast)
    assert set(positive - anchor) == set(range(-apart, apart + 1))
    assert set(abs(negative - anchor)) == set(range(apart + 1, 12))


def test_on_atari_only_the_same_return_is_equal():
    settings = fields.replace(
        ATARI_PRESETS["rcrl"],
        {
            **sizes(500),
            "return_contrast.positives": "equal_return",
            "return_contrast.positive_excludes_anchor": True,
            "n_step": 1,
        },
    )
    rewards = [0.25, 0.0, -0.25, 0.0, 0.25, 0.0]  # returns 0.25 0 0 0.25 0.25 0
    sample = replay_of(settings, rewards, 1).sample(1.0)
    anchor, positive, _ = (pairs.action[0] for pairs in sample.batch.contrast)
    one, none = [0, 3, 4], [1, 2, 5]
    assert {(a, p) for a, p in zip(anchor.tolist(), positive.tolist(), strict=True)} == {
        (a, p) for own in (one, none) for a in own for p in own if a != p and a != 5
    }


@pytest.mark.parametrize("anchors", ["as_transitions", "uniform", "rl_batch"])
def test_anchors_of_sac_come_from_the_configured_source(anchors):
    settings = toy_control.make_config(
        "state_sac", {**sizes(400), "return_contrast.anchors": anchors}
    )
    sample = replay_of(settings, [0.5] * 12, 2).sample(1.0)
    anchor = sample.batch.contrast.anchor.action
    # The newest transition's next state is not known yet.
    assert set(anchor[0, :, 0]) == set(range(12 if anchors == "uniform" else 11))
    assert np.array_equal(anchor, sample.batch.transitions.action) == (anchors == "rl_batch")
    in_order = np.all(np.diff(anchor[0, :, 0]) >= 0)
    assert in_order == (anchors != "uniform")  # one draw from each part of the replay, or anywhere


def test_on_atari_any_reward_ends_a_segment_whatever_the_action_repeat():
    replay = replay_of(ATARI_PRESETS["rcrl"], [0.0, 0.25, -1.5, 0.0, 0.0, 0.5, 1.5], 4)
    assert replay.segment_lengths(0).tolist() == [2, 1, 3, 1]


# --- runs beside others -------------------------------------------------------------------------


def test_a_run_does_not_change_beside_one_with_more_actions():
    """From states: `test_fleets_on_two_devices`."""

    def train(own, seeds):
        return toy.trained(toy_control.make_plan("", "rcrl_sac", own, seeds), 30)

    together, alone = train((3, 1), (4, 5)), train((1,), (5,))
    toy.assert_equal_trees(jax.tree.map(lambda x: x[1:], together), alone)
