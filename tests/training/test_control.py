"""Control through the same loop as Atari: presets train and resume exactly."""

import dataclasses
import functools
import json
import os
import signal

import jax
import numpy as np
import pytest

from rcrl_jax import types
from rcrl_jax.agents.make_agent import make_agent
from rcrl_jax.config import fields
from rcrl_jax.config.presets import ATARI_PRESETS, DMC_PRESETS
from rcrl_jax.envs import dmc
from rcrl_jax.envs.protocol import control_spec, discrete_spec
from rcrl_jax.replay.frames import device_frame_size
from rcrl_jax.replay.segment_replay import SegmentReplay
from rcrl_jax.runs import records
from rcrl_jax.training import build, experiment, loop, prediction
from rcrl_jax.training.fleet import Fleet
from rcrl_jax.training.history import History
from rcrl_jax.training.plan import RunId
from tests.envs import test_frame_log
from tests.training import test_golden, toy, toy_control


def run(plan) -> list[str]:
    """Runs an experiment; returns the lines that it printed."""
    lines = []
    experiment.run(plan, lines.append)
    return lines


def run_and_stop(plan, step) -> None:
    """Runs as if SIGTERM came in the middle of a step."""
    make, steps = plan.make_environment, []

    def make_and_signal(seeds):
        environment = make(seeds)
        if seeds.shape[1] == 1:  # for training
            send = environment.send

            def send_and_signal(actions):
                steps.append(0)
                if len(steps) == step:
                    os.kill(os.getpid(), signal.SIGTERM)
                send(actions)

            environment.send = send_and_signal
        return environment

    with pytest.raises(experiment.Interrupted, match=f"saved at step {step}"):
        run(dataclasses.replace(plan, make_environment=make_and_signal))


@pytest.mark.parametrize("preset", ["state_sac", "rcrl_sac"])
def test_presets_train_stop_and_resume_exactly(preset, tmp_path, request):
    digests, whole = test_golden.run_preset(preset, tmp_path / "whole")
    parts = dataclasses.replace(whole, workdir=tmp_path / "parts", observe=None)
    run_and_stop(parts, 63)
    request.getfixturevalue("undrawn_curves")  # those of the whole run are drawn
    run(parts)
    toy.assert_equal_trees(toy.last_checkpoint(parts), toy.last_checkpoint(whole))
    assert toy.recorded(parts) == toy.recorded(whole)

    lines = records.read_records(whole.paths[0].metrics)
    assert all(line["env_steps"] == 2 * line["agent_steps"] for line in lines)
    assert all(line["frames"] == line["agent_steps"] for line in lines)
    losses = [line for line in lines if "loss_critic" in line]
    assert [line["agent_steps"] for line in losses] == list(range(30, test_golden.STEPS + 1, 10))
    assert all(np.isfinite(list(line.values())).all() for line in losses)
    assert ("segment_length_p50" in losses[-1]) == ("return_contrast" in whole.config.auxiliary)
    assert "beta" not in losses[-1]
    # Every 160 environment steps are every 80 agent steps.
    evaluations = records.read_records(whole.paths[0].evaluations)
    assert [line["agent_steps"] for line in evaluations] == [80, 84]
    scores = json.loads(whole.paths[0].scores.read_text())
    assert len(scores["returns"]) == 2 and scores["env_steps"] == 2 * 84
    assert all(0 <= value <= toy_control.EPISODE for value in scores["returns"])
    if preset in test_golden.EXACT and (recorded := test_golden.recorded()):
        assert digests == recorded["digests"][preset]


def plan_of_frames(workdir, source):
    """A run of `sac_aug` whose resumption reads frames from `source`."""
    return toy_control.make_plan(
        workdir, "sac_aug", overrides={"replay.resumed_frames": source}, total_steps=84,
        checkpoint_period=30,
    )  # fmt: skip


@pytest.fixture(scope="module")
def whole_with_frames(tmp_path_factory):
    plan = plan_of_frames(tmp_path_factory.mktemp("whole"), "stored")
    run(plan)
    return plan


@pytest.mark.usefixtures("undrawn_curves")
@pytest.mark.parametrize("frames", ["stored", "older", "lost", "rendered", "from now on stored"])
def test_a_resumed_run_may_read_its_frames_or_render_them(frames, tmp_path, whole_with_frames):
    """While frames are not wanted the simulator shows noise, so none is used that was not read."""
    whole, make_plan = whole_with_frames, functools.partial(plan_of_frames, tmp_path / "parts")
    begun = "stored" if frames in ("stored", "older", "lost") else "rendered"
    run_and_stop(make_plan(begun), 63)
    parts = make_plan("rendered" if frames == "rendered" else "stored")
    log = parts.workdir / "frames.log"
    assert log.exists() == (begun == "stored")
    if frames == "lost":
        log.unlink()
    if frames == "older":  # the checkpoint of step 60 knows less of the log
        (parts.workdir / "checkpoints" / "63" / "digests.json").write_text("{")

    made = []

    def make_blind(seeds):
        made.append(test_frame_log.Blind(seeds.reshape(-1), [2] * seeds.size, "pixels"))
        assert made[-1].renders
        return made[-1]

    lines = run(dataclasses.replace(parts, make_environment=make_blind))
    warnings = [line for line in lines if line.startswith("warning")]
    assert len(warnings) == (frames in ("lost", "older"))
    assert all(("frames.log is gone" in line) == (frames == "lost") for line in warnings)
    mine, other = toy.last_checkpoint(parts), toy.last_checkpoint(whole)
    if frames == "rendered":
        other = other._replace(frame_log=None)  # rendered runs keep none
    toy.assert_equal_trees(mine, other)
    assert toy.recorded(parts) == toy.recorded(whole)
    assert not log.exists()  # a finished run needs it no more


@pytest.mark.parametrize(
    "total_steps, what",
    [
        (toy_control.STEPS, "an action"),
        (22, "an action of an evaluation"),  # the second update, the last one, makes NaNs
    ],
    ids=["training", "evaluation"],
)
def test_an_action_that_is_not_finite_stops_the_run_and_keeps_the_state(
    total_steps, what, tmp_path
):
    """It occurs steps before losses are checked next; no environment may receive it."""
    plan = toy_control.make_plan(
        tmp_path, "state_sac", overrides={"learning_rate": 1e30}, total_steps=total_steps,
        record_period=200,
    )  # fmt: skip
    with pytest.raises(experiment.Diverged) as stop:
        run(plan)
    kept = toy.last_checkpoint(plan, tmp_path / "diverged")
    first_update = plan.config.learn_start
    assert first_update < kept.step < first_update + 5
    assert str(stop.value) == (
        f"{what} is not finite at step {kept.step}; the state is kept in {tmp_path / 'diverged'}"
    )
    assert np.isfinite(kept.history.actions).all()
    assert kept.history.actions[0, kept.step - 1].any()
    assert not kept.history.actions[0, kept.step :].any()
    assert len(kept.pending_update.index[0]) == plan.config.batch_size
    # The learner includes the update that was being computed.
    in_training = what == "an action"
    assert int(kept.learner.updates[0]) == kept.step - first_update + in_training
    assert not plan.paths[0].scores.exists()


@pytest.mark.usefixtures("undrawn_curves")
@pytest.mark.parametrize("preset, action_repeat", [("state_sac", 2), ("rcrl_sac", 4)])
def test_tasks_of_the_suite_train_stop_and_resume_exactly(
    preset, action_repeat, tmp_path, request, monkeypatch
):
    """Tasks of equal action repeat form a fleet: its runs take their agent steps together."""
    # A worker for each of two tasks; otherwise one for all, because it takes a second to start.
    monkeypatch.setattr(os, "cpu_count", lambda: 2 if action_repeat == 2 else 1)
    finish, total_steps, capacity, stop = run, 60, 40, 35
    if DMC_PRESETS[preset].observation == "pixels":
        request.getfixturevalue("renderer")
        # Not to the end: rendering the episodes of an evaluation would take minutes.
        finish, capacity, stop = functools.partial(run_and_stop, step=36), 30, 25
    tasks = tuple(
        name for name, task in dmc.DMC_TASKS.items() if task.action_repeat == action_repeat
    )
    # The first update is at step 20; the ring wraps after the run is resumed.
    overrides = {"evaluation_period": 2000, "replay.capacity": capacity}
    plan = toy_control.make_plan(
        tmp_path / "whole", preset, overrides=overrides, total_steps=total_steps
    )
    plan = dataclasses.replace(
        plan,
        runs=tuple(RunId(task, 3) for task in tasks),
        eval_episodes=1,
        make_environment=functools.partial(
            dmc.make_tasks,
            tasks,
            1,
            backend="dm_control",
            observation=plan.config.observation,
            render_size=plan.config.render_size,
        ),
        checkpoint_period=1000,
    )
    finish(plan)
    parts = dataclasses.replace(plan, workdir=tmp_path / "parts")
    run_and_stop(parts, stop)
    finish(parts)
    toy.assert_equal_trees(toy.last_checkpoint(parts), toy.last_checkpoint(plan))
    for r, task in enumerate(tasks):
        assert toy.recorded(parts, r) == toy.recorded(plan, r)
        described = json.loads(plan.paths[r].manifest.read_text())
        assert described["environment"]["task"] == task
        assert described["environment"]["action_repeat"] == dmc.DMC_TASKS[task].action_repeat


def test_logged_actions_reproduce_rendered_frames():
    """Resuming from pixels needs this: rendering is deterministic, bit for bit."""
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (12, 2, dmc.MAX_NUM_ACTIONS)).astype(np.float32)
    checksums = []
    for _ in range(2):
        environment = dmc.make_dmc(["cheetah_run", "reacher_easy"], [3, 4], render_size=25)
        history = History(2, len(actions), (dmc.MAX_NUM_ACTIONS,))
        environment.reset()
        for action in actions:
            history.add(action, environment.step(action).frame)
        environment.close()
        checksums.append(history.checksum)
    np.testing.assert_array_equal(*checksums)
    assert checksums[0][0] != checksums[0][1]


# --- the replay ---------------------------------------------------------------------------------


def replay_of(config, rewards, action_repeat) -> SegmentReplay:
    """The replay of one run of an experiment, after `rewards` without an end of an episode.

    The action of transition t is t.
    """
    spec = {
        None: discrete_spec((84, 84), 6),
        "pixels": control_spec((100, 100, 3), 6, action_repeat=action_repeat),
        "state": control_spec((24,), 6, action_repeat=action_repeat),
    }[getattr(config, "observation", None)]
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


def contrast_of(settings, action_repeat=4) -> list[np.ndarray]:
    """Indices of anchors, positives and negatives of `replay_of` twelve rewards of 1.5."""
    sample = replay_of(settings, [1.5] * 12, action_repeat).sample(1.0)
    return [pairs.action[0, :, 0].astype(int) for pairs in sample.batch.contrast]


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
    anchor, positive, negative = contrast_of(settings)
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
    rewards = [1.0, 0.0, -1.0, 0.0, 1.0, 0.0]  # returns 1 0 0 1 1 0
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


# --- readings of the return-contrastive task ------------------------------------------------------


@functools.cache
def fleet_of(**network):
    return build.make_fleet(toy_control.make_plan("", "rcrl_sac", overrides=network))[1]


def first_update(**variant):
    """Critic and metrics after one update of `rcrl_sac` on Reach."""
    fields_ = {"return_contrast.batch_size": 8} | variant
    plan = toy_control.make_plan("", "rcrl_sac", overrides=fields_)
    of_network = ("return_contrast.loss", "return_contrast.discriminator_input")
    fleet = fleet_of(**{n: v for n, v in variant.items() if n in of_network})
    environment, own = build.make_fleet(plan)
    replay = build.make_replay(own, "host")  # the other fields change it alone
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (1, 60, toy_control.MAX_NUM_ACTIONS)).astype(np.float32)
    actions[..., 2:] = 0.0
    loop.rebuild(
        actions, environment=environment, replay=replay,
        history=History(1, 60, actions.shape[2:]),
    )  # fmt: skip
    learner, result = fleet.update(fleet.init(), replay.sample(1.0).batch)
    return jax.tree.map(np.array, (learner.params.agent.critic, result.metrics))


@pytest.fixture(scope="module")
def default_update():
    return first_update()


@pytest.mark.parametrize(
    "variant",
    [
        {"return_contrast.loss": "cross_entropy"},
        {"return_contrast.discriminator_input": "difference_product"},
        {"return_contrast.anchors": "uniform"},
        {"return_contrast.anchors": "rl_batch"},
        {"return_contrast.positives": "equal_return"},
        {"return_contrast.positive_excludes_anchor": True},
        {"return_contrast.negative_differs_in_return": True},
    ],
    ids=lambda variant: "+".join(f"{name}={value}" for name, value in variant.items()),
)
def test_readings_of_the_return_task_change_sac_s_update(variant, default_update):
    critic, metrics = first_update(**variant)
    assert all(np.isfinite(value).all() for value in jax.tree.leaves((critic, metrics)))
    default_critic, default_metrics = default_update
    assert metrics["loss_critic"] == pytest.approx(default_metrics["loss_critic"], rel=1e-5)
    assert abs(metrics["loss_return_contrast"] / default_metrics["loss_return_contrast"] - 1) > 1e-4
    for part in ("convolutions", "embedding"):
        leaves, default = (jax.tree.leaves(getattr(c, part)) for c in (critic, default_critic))
        assert any(np.any(a != b) for a, b in zip(leaves, default, strict=True))


# --- runs beside others -------------------------------------------------------------------------


def train(own, seeds, preset="state_sac"):
    """Learner, replay and log of runs with `own` action components."""
    plan = toy_control.make_plan("", preset, own, seeds)
    environment, fleet = build.make_fleet(plan)
    replay = build.make_replay(fleet, "host")
    history = History(len(seeds), 60, fleet.agent.action.shape)
    *_, last = toy.training(fleet, environment, 60, replay=replay, history=history)
    return fleet.to_host(last.state.learner), replay.state, history.state


@pytest.mark.parametrize("preset", ["state_sac", "rcrl_sac"])
def test_a_run_does_not_change_beside_one_with_more_actions(preset):
    together = train((1, 3), (4, 5), preset)
    for r, (own, seed) in enumerate([((1,), 4), ((3,), 5)]):
        of_one = jax.tree.map(lambda x, r=r: x[r : r + 1], together)
        toy.assert_equal_trees(of_one, train(own, (seed,), preset))


def test_before_learning_actions_are_uniform_and_afterwards_the_policy_s():
    _, _, history = train((3,), (7,))
    actions = history.actions[0]
    start = toy_control.SMALL["learn_start"]
    assert actions[:start].std() > 0.5
    # A fresh policy has a standard deviation of exp(-4).
    assert actions[start : start + 5].std() < 0.3


def test_the_update_lowers_for_accelerators():
    """Every loss of SAC at once, with frames on the device."""
    settings = toy_control.make_config(
        "sac_aug", auxiliary=("return_contrast", "curl", "reconstruction")
    )
    shape = (toy_control.SIZE, toy_control.SIZE, 3)
    agent = make_agent(settings, control_spec(shape, toy_control.MAX_NUM_ACTIONS))
    constants = jax.tree.map(lambda x: np.repeat(x, 2), agent.run_constants("reach"))
    fleet = Fleet(agent, (0, 1), types.RunSpec(np.int32([1, 3]), constants))
    batch = prediction.empty_batch(agent, 2, "device")
    frames = np.zeros((2, 4, device_frame_size(agent.observations.stored)), np.uint8)
    exported = jax.export.export(fleet.programs.update, platforms=("tpu", "cuda"))(
        *fleet.update_arguments(jax.eval_shape(fleet.init), batch)[:-1], frames
    )
    assert set(exported.platforms) == {"tpu", "cuda"}
