"""Experiments end, stop, resume and refuse as documented; resuming is exact, bit for bit."""

import dataclasses
import json
import shutil
import signal
import types as python_types

import jax
import numpy as np
import pytest

from rcrl_jax.config import fields, presets
from rcrl_jax.envs import gymnasium_games
from rcrl_jax.runs import checkpoints, manifest, records, storage
from rcrl_jax.training import (
    assessment,
    build,
    evaluation,
    experiment,
    loop,
    prediction,
    session,
)
from tests.envs import own_games
from tests.training import toy, toy_control
from tests.training.toy import Interruption, run


def contents(directory) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


# --- what a run leaves ------------------------------------------------------------------------


def test_a_run_leaves_its_files(reference):
    paths = toy.paths_of(reference)
    assert paths.directory == reference.workdir / "rcrl" / "Catch" / "seed_3"
    assert {path.name for path in paths.directory.iterdir()} == {
        "manifest.json", "metrics.jsonl", "evaluations.jsonl", "scores.json", "curve.png",
        "parameters.npz", "tensorboard",
    }  # fmt: skip
    assert {path.name for path in reference.workdir.iterdir()} == {"rcrl", "checkpoints", "lock"}
    assert paths.curve.read_bytes().startswith(b"\x89PNG")
    assert json.loads(paths.manifest.read_text())["protocol"] == {
        "score": "the agent at the last step",
        "final_episodes": 5,
        "periodic_episodes": 3,
        "evaluation_epsilon": 0.1,
        "noise": "off",
        "clip_rewards": False,
        "life_loss_ends_episode": False,
        "unfinished_episodes": "count with what they have at the frame limit",
        "environment_seeds": "own seeds, from (seed, purpose, agent_steps)",
    }


def test_the_final_parameters_are_kept_in_half_precision(reference):
    kept = np.load(toy.paths_of(reference).parameters)
    params = toy.last_checkpoint(reference).learner.params
    leaves, _ = jax.tree_util.tree_flatten_with_path(params)
    assert len(leaves) == len(kept.files)
    for path, array in leaves:
        half = kept[jax.tree_util.keystr(path, simple=True, separator="/")]
        assert half.dtype == np.float16
        assert np.array_equal(half, np.float16(array[0]))


@pytest.mark.usefixtures("undrawn_curves")
def test_an_observer_sees_the_last_step_once(tmp_path, monkeypatch):
    monkeypatch.setattr(prediction, "forecast", lambda *parts: "")  # it would compile an update
    seen, asked, stop = [], [], experiment.stop_signals
    monkeypatch.setattr(experiment, "stop_signals", lambda **how: asked.append(how) or stop(**how))
    observe = {"observe": lambda moment: seen.append(moment.step), "observe_period": 8}
    run(toy.make_plan(tmp_path, total_steps=20, **observe))
    assert seen == [0, 8, 16, 20]
    assert asked == [{"ends_after_s": 3.0}]  # a second signal ends a run that hangs


@pytest.mark.parametrize(
    "plan, named",
    [
        (toy.make_plan("", seeds=(3, 5)), True),
        (toy.make_plan("", seeds=(3,)), False),
        (toy.make_plan("", seeds=(3, 5), batching="map"), False),
        (toy_control.make_plan("", "state_sac", own=(2, 2), seeds=(3, 5)), False),
    ],
    ids=["fleet", "one run", "chosen", "sac"],
)
def test_a_fleet_on_a_cpu_names_the_faster_batching_where_there_is_one(plan, named):
    with session.Session(plan) as opened:
        line = experiment._faster_batching(opened)
    assert ("--batching=vmap" in line) if named else line is None


@pytest.mark.usefixtures("undrawn_curves")
def test_a_run_says_at_once_that_it_compiles_and_forecasts_its_updates_alone(tmp_path, monkeypatch):
    said = []

    class Progress(experiment.Progress):
        def close(self):
            super().close()
            said.append("the bar has ended")

    monkeypatch.setattr(experiment, "Progress", Progress)
    experiment.run(toy.make_plan(tmp_path, total_steps=50), said.append)
    assert said[0] == f"compiling for 1 x {jax.devices()[0].device_kind}, up to a minute"
    assert f" {50 - toy.SMALL['learn_start']} updates of " in said[1]
    # On a terminal, the next line would end in the bar.
    assert said.index("the bar has ended") < said.index("final evaluation: 5 episodes")


@pytest.mark.usefixtures("undrawn_curves")
def test_checkpoint_minutes_are_minutes_since_the_last_checkpoint(tmp_path, monkeypatch):
    """Every step takes 20 s of a clock: more than a minute has passed after four of them."""
    saved, now = [], [0.0]
    monkeypatch.setattr(checkpoints.CheckpointStore, "save", lambda self, c: saved.append(c.step))
    clock = python_types.SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr(experiment, "time", clock)

    def make_environment(seeds):
        environment = toy.make_catch(seeds)
        send = environment.send

        def send_and_wait(actions):
            now[0] += 20.0
            send(actions)

        environment.send = send_and_wait
        return environment

    run(
        toy.make_plan(
            tmp_path, "erainbow", total_steps=34, eval_episodes=1, checkpoint_minutes=1,
            checkpoint_period=10, make_environment=make_environment,
        )
    )  # fmt: skip
    assert saved[:-1] == [4, 8, 10, 14, 18, 20, 24, 28, 30, 34] and saved[-1] == 34


def test_metrics_are_recorded_at_their_steps(reference):
    lines = records.read_records(toy.paths_of(reference).metrics)
    for line in lines:
        assert (
            line["env_steps"] == line["agent_steps"] and line["frames"] == 4 * line["agent_steps"]
        )
    losses = [line for line in lines if "loss_c51" in line]
    # The first update is at step 30 and has been computed when step 32 is over.
    assert [line["agent_steps"] for line in losses] == list(range(40, toy.STEPS + 1, 10))
    for line in losses:
        assert set(line) == {
            "agent_steps", "env_steps", "frames", "wall_s", "steps_per_s", "beta",
            "most_frequent_action", "loss_c51", "q_mean", "gradient_norm", "loss_return_contrast",
            "discriminator_accuracy_positive", "discriminator_accuracy_negative",
            "cosine_positive", "cosine_negative", "positive_is_anchor",
            "segment_length_p10", "segment_length_p50", "segment_length_p90",
        }  # fmt: skip
        assert all(np.isfinite(list(line.values())))
        assert line["steps_per_s"] > 0
        assert line["segment_length_p90"] <= 6  # a game of Catch, the only reward at its end
        assert 0 <= line["positive_is_anchor"] <= 1
        assert 1 / 3 <= line["most_frequent_action"] <= 1  # Catch has three actions
    # That of the update at step 238, on the way from 0.4 at step 30 to 1 at step 240.
    assert losses[-1]["beta"] == pytest.approx(0.4 + 0.6 * 208 / 210)
    games = [line for line in lines if "episode_return" in line]
    assert [line["agent_steps"] for line in games] == list(range(6, toy.STEPS + 1, 6))
    assert all(abs(game["episode_return"]) == 1 and game["episode_length"] == 6 for game in games)


def test_evaluations_and_scores_are_recorded(reference):
    paths = toy.paths_of(reference)
    lines = records.read_records(paths.evaluations)
    assert [line["agent_steps"] for line in lines] == [60, 120, 180, 240]
    assert [len(line["returns"]) for line in lines] == [3, 3, 3, 5]
    for name in ("unseen_auc", "unseen_auc_action", "unseen_auc_equal_return"):
        values = [line[name] for line in lines]  # None where all games had the same return
        assert all(value is None or 0 <= value <= 1 for value in values)
    assert any(line["unseen_auc"] is not None for line in lines)
    scores = json.loads(paths.scores.read_text())
    assert scores["agent_steps"] == toy.STEPS and scores["frames"] == 4 * toy.STEPS
    assert scores["returns"] == lines[-1]["returns"] and scores["episodes_cut"] == 0
    assert scores["mean"] == np.mean(scores["returns"])


@pytest.mark.usefixtures("undrawn_curves")
def test_measuring_on_unseen_episodes_changes_nothing_in_training(tmp_path, reference, monkeypatch):
    monkeypatch.setattr(assessment.instruments, "measure", lambda *_, **__: [{}])
    plan = toy.make_plan(tmp_path)
    run(plan)
    trained, expected = (toy.last_checkpoint(p)._replace(records=None) for p in (plan, reference))
    toy.assert_equal_trees(trained, expected)
    assert toy.recorded(plan)["metrics"] == toy.recorded(reference)["metrics"]
    unmeasured, lines = (
        records.read_records(toy.paths_of(p).evaluations) for p in (plan, reference)
    )
    assert [line["returns"] for line in unmeasured] == [line["returns"] for line in lines]


def test_a_checkpoint_costs_a_fraction_of_the_frames(reference):
    saved = toy.last_checkpoint(reference)
    # Per step of log or ring: an action, and a priority.
    assert saved.history.actions.nbytes == toy.STEPS
    assert saved.replay.priorities.nbytes == 8 * reference.config.replay.capacity
    assert saved.pending_update is not None
    assert int(saved.learner.updates[0]) == toy.STEPS - reference.config.learn_start


def test_a_finished_run_is_not_trained_again(reference, monkeypatch):
    monkeypatch.setattr(build, "make_fleet", None)  # neither emulators nor agents are made
    before = contents(reference.workdir)
    lines = run(reference)
    assert any("finished already" in line for line in lines)
    assert any("Catch" in line for line in lines)  # the scores are said again
    after = contents(reference.workdir)
    curve = str(toy.paths_of(reference).curve.relative_to(reference.workdir))
    assert before.pop(curve) and after.pop(curve)  # drawn again
    assert before == after


# --- resuming ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("hangup")
def test_signals_save_at_once_and_the_same_call_resumes(tmp_path, reference, monkeypatch):
    plan = toy.make_plan(tmp_path / "interrupted")
    evaluating = plan.config.periodic_episodes
    interruptions = [  # signal, environments, their steps until it comes, what is saved then
        (signal.SIGTERM, 1, 20, 20),  # before learning
        (signal.SIGTERM, evaluating, 2, 60),  # during an evaluation,
        (signal.SIGTERM, evaluating, 3, 60),  # and again during its repetition
        (signal.SIGHUP, 1, 63, 63),  # when a terminal is closed
        (signal.SIGINT, 1, 73, 73),  # during learning, and between two lines of metrics
        (signal.SIGTERM, 1, 100, 100),  # when a checkpoint is due anyway
    ]
    for signum, num_envs, sends, step in interruptions:
        make = Interruption(signum, num_envs=num_envs, step=sends)
        before = signal.getsignal(signum)
        with pytest.raises(experiment.Interrupted) as stop:
            run(toy.make_plan(plan.workdir, make_environment=make))
        assert signal.getsignal(signum) is before
        assert stop.value.signum == signum
        assert str(stop.value) == f"stopped by {signal.Signals(signum).name}, saved at step {step}"
        saved = toy.last_checkpoint(plan)
        assert saved.step == step
        assert (saved.pending_update is not None) == (step > plan.config.learn_start)
        if step == 20:
            shutil.copytree(plan.workdir, tmp_path / "other_emulator")
            seen = contents(plan.workdir)

    # Emulators that differ are detected, and the work directory stays usable.
    wrong = tmp_path / "other_emulator"
    with pytest.raises(experiment.NotReproduced, match="did not repeat the frames"):
        run(toy.make_plan(wrong, make_environment=lambda seeds: toy.make_catch(seeds ^ 1)))
    assert contents(wrong) == seen

    # A signal ends the final evaluation at once: the state is already saved.
    make = Interruption(signal.SIGTERM, num_envs=plan.eval_episodes, step=2)
    with pytest.raises(experiment.Interrupted, match="saved at step 240"):
        run(toy.make_plan(plan.workdir, make_environment=make))
    assert not toy.paths_of(plan).scores.exists()

    with monkeypatch.context() as patch:  # nothing is left that needs the replay
        patch.setattr(loop, "rebuild", None)
        lines = run(plan)
    assert "resuming after the last of 240 steps" in lines
    toy.assert_same_result(plan, reference)

    # Killed between the line of the final evaluation and the scores: the line is not repeated.
    toy.paths_of(plan).scores.unlink()
    run(plan)
    toy.assert_same_result(plan, reference)


# --- refusing ---------------------------------------------------------------------------------


def test_of_more_than_two_runs_a_report_has_one_table(tmp_path):
    said = run(toy.make_plan(tmp_path, seeds=(3, 4, 5), total_steps=5, eval_episodes=1))
    head, row, note, last = said[-4:]
    assert head.split() == ["rcrl", "runs"] and row.split()[::4] == [toy.GAME, "3"]
    assert note == "(rcrl: mean ± deviation over runs)"
    assert last == f"results in {tmp_path / 'rcrl'}"
    assert not any("seed_" in line for line in said)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"overrides": {"learning_rate": 0.5}}, "config.learning_rate 0.001 -> 0.5"),
        ({"total_steps": toy.STEPS + 1}, "steps 240 -> 241"),
        ({"backend": "ale"}, "backend catch -> ale"),
        ({"seeds": (4,)}, "belongs to rcrl/Catch/seed_3 as well"),
        ({"seeds": (3, 4)}, "belongs to other runs than rcrl/Catch/seed_4"),
    ],
)
def test_a_work_directory_of_another_run_is_refused_untouched(reference, change, message):
    before = contents(reference.workdir)
    with pytest.raises(manifest.WorkdirMismatch) as refusal:
        run(toy.make_plan(reference.workdir, **change))
    assert message in str(refusal.value) and "\n" not in str(refusal.value)
    assert contents(reference.workdir) == before


def test_a_finished_run_goes_on_under_the_name_of_its_backend(reference):
    assert "this run is finished already: nothing to do" in run(
        toy.make_plan(reference.workdir, backend="catch")
    )


def test_a_run_stays_valid_if_scoring_it_again_is_interrupted(tmp_path, monkeypatch):
    """The circumstances of new scores are recorded with them."""
    plan = toy.make_plan(tmp_path, total_steps=60, eval_episodes=1)
    run(plan)
    (paths,) = plan.paths
    circumstances = manifest.circumstances()
    circumstances["versions"]["git_commit"] = "another"
    monkeypatch.setattr(manifest, "circumstances", lambda: circumstances)
    again = dataclasses.replace(plan, eval_episodes=2)
    with monkeypatch.context() as patch:
        patch.setattr(evaluation, "evaluate", lambda *arguments, **options: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(again)
    assert records.read_result(paths.directory)["episodes"] == 1
    run(again)
    assert records.read_result(paths.directory)["episodes"] == 2
    (resumed,) = json.loads(paths.manifest.read_text())["launch"]["resumed"]
    assert resumed["versions"]["git_commit"] == "another"


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_state(tmp_path):
    # Updates four steps apart are recorded and checked too.
    plan = toy.make_plan(tmp_path, overrides={"learning_rate": 1e36, "update_period": 4})
    with pytest.raises(experiment.Diverged) as stop:
        run(plan)
    assert str(tmp_path / "diverged") in str(stop.value) and "\n" not in str(stop.value)
    lines = records.read_records(toy.paths_of(plan).metrics)
    losses = [line for line in lines if "loss_c51" in line]
    assert losses[-1]["loss_c51"] is None
    assert losses[-1]["agent_steps"] < 100
    state = toy.last_checkpoint(plan, tmp_path / "diverged")
    assert state.step == losses[-1]["agent_steps"]
    assert not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.learner.params))
    assert not toy.paths_of(plan).scores.exists()
    kept = checkpoints.path_of(tmp_path / "diverged", state.step)
    written = kept.stat().st_mtime_ns
    with pytest.raises(experiment.Diverged):  # the same command does the same again
        run(plan)
    assert list(kept.parent.iterdir()) == [kept] and kept.stat().st_mtime_ns == written


# --- environments that do not repeat ----------------------------------------------------------


def trained_on_entropy(monkeypatch, workdir, *, cut_at=(), stop_at=()):
    """Arrays of the last checkpoint, metrics and manifest of a run on 'Entropic'.

    All runs draw the same bytes, one after the other, also after they are resumed.
    """
    game = gymnasium_games.name_of("tests.envs.own_games:Entropic")
    gymnasium_games.probe(game)  # with bytes of the operating system
    save_if_due, stops = experiment._Saves.save_if_due, list(stop_at)

    def save_or_stop(saves):
        if stops and saves.session.state.step == stops[0]:
            stops.pop(0)
            saves.received.append(signal.SIGTERM)
        save_if_due(saves)

    changes = {**toy.SMALL, "max_episode_steps": 15, "replay.capacity": 70}
    changes |= {"encoder": "minatar", "frame_stack": 1, "evaluation_period": 1000}
    config = fields.replace(presets.OWN_PRESETS["rcrl"], changes)
    plan = toy.plan_of(workdir, "rcrl", config, game, (3, 5), total_steps=130, eval_episodes=1,
                       backend="gymnasium", make_environment=None)  # fmt: skip
    maker = build.environment_maker(config, plan.runs, "gymnasium")
    plan = dataclasses.replace(plan, make_environment=maker)
    with monkeypatch.context() as patch:
        octets = iter(np.random.default_rng(0).bytes(10_000))
        patch.setattr(own_games, "draw_byte", lambda: next(octets))
        patch.setattr(own_games.Entropic, "cut_at", cut_at)
        patch.setattr(experiment._Saves, "save_if_due", save_or_stop)
        for step in stop_at:
            with pytest.raises(experiment.Interrupted, match=f"saved at step {step}"):
                run(plan)
        run(plan)
    _, arrays = storage.read(checkpoints.path_of(plan.paths[0].checkpoints, 130))
    arrays = {name: own for name, own in arrays.items() if name.split("/")[0] not in (
        "records", "frame_log")}  # fmt: skip
    metrics = [
        {name: value for name, value in line.items() if name not in records.WALL_CLOCK_KEYS}
        for line in records.read_metrics(plan.paths[1].metrics)
    ]
    return arrays, metrics, manifest.read(plan.paths[1].manifest)["run"]


def test_a_resumed_run_that_does_not_repeat_is_the_run_whose_episodes_end_there(
    tmp_path, monkeypatch
):
    """Bit for bit, priorities and frames in the ring included, after two interruptions."""
    cuts = (50, 93)
    expected, metrics, whole = trained_on_entropy(monkeypatch, tmp_path / "one", cut_at=cuts)
    found, own_metrics, resumed = trained_on_entropy(monkeypatch, tmp_path / "two", stop_at=cuts)
    assert found.keys() == expected.keys()
    for name, own in found.items():
        np.testing.assert_array_equal(own, expected[name], err_msg=name)
    ended = [line for line in metrics if "episode_return" in line]
    assert [line for line in ended if line["agent_steps"] in cuts]  # which nothing recorded
    assert own_metrics == [
        line for line in metrics if "episode_return" not in line or line["agent_steps"] not in cuts
    ]
    assert resumed.pop(manifest.NEW_EPISODES) == list(cuts) and resumed == whole
