"""Scores of a checkpoint are those of training; its work directory stays; reading runs no code."""

import dataclasses
import json
import pathlib
import pickle
import shutil
import signal

import jax
import numpy as np
import pytest

from rcrl_jax import files
from rcrl_jax.runs import checkpoints, manifest, parameters, storage, workdir
from rcrl_jax.runs.workdir import Unusable
from rcrl_jax.training import build, evaluation, experiment, scoring, video
from rcrl_jax.training.progress import Progress
from rcrl_jax.training.scoring import Request, Stopped, load, score
from tests.training import toy

SEEDS = (9, 3)  # not in the order of their directories' names
EPISODES, STEPS = 20, 60


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A fleet that is trained to its end."""
    plan = make_plan(tmp_path_factory.mktemp("runs") / "fleet")
    experiment.run(plan, lambda line: None)
    return plan


def make_plan(workdir, **changes):
    return toy.make_plan(
        workdir,
        **{"preset": "erainbow", "seeds": SEEDS, "total_steps": STEPS, "eval_episodes": EPISODES}
        | changes,
        make_environment=make_environment,
        film=True,
    )


def make_environment(seeds: np.ndarray):
    """Catch, where a game's seed can be told from its return."""
    environment = toy.make_catch(seeds)
    receive, worth = environment.recv, (1 + seeds.reshape(-1) % 997).astype(np.float32)

    def recv():
        step = receive()
        return step._replace(reward=step.reward * worth)

    environment.recv = recv
    return environment


@pytest.fixture(autouse=True)
def emulators(monkeypatch):
    """Emulators that have the game."""
    monkeypatch.setattr(build, "environment_maker", lambda *described: make_environment)


def test_agents_are_loaded_with_the_plan_of_their_runs(finished):
    plan, fleet, params = load(finished.workdir)
    assert (plan.runs, plan.config) == (finished.runs, finished.config)
    _, expected = build.restore_agents(finished)
    toy.assert_equal_trees(fleet.to_host(params), fleet.to_host(expected))
    for run, paths in enumerate(finished.paths):
        own, of_one, kept = load(str(paths.directory))
        assert own.runs == (finished.runs[run],) and of_one.num_runs == 1
        halves = jax.tree.map(lambda x, run=run: np.float16(x[run]), fleet.to_host(expected))
        toy.assert_equal_trees(jax.tree.map(lambda x: np.float16(x[0]), kept), halves)
    with pytest.raises(Unusable, match="7"):
        load(finished.workdir, step=7)


def snapshot(directory: pathlib.Path) -> dict[pathlib.Path, tuple]:
    """Content and time of change of everything below a directory."""
    return {
        path: (path.stat().st_mtime_ns, path.is_file() and path.read_bytes())
        for path in [directory, *directory.rglob("*")]
    }


def scores_of(plan, run: int) -> dict:
    return json.loads(plan.paths[run].scores.read_text())


def evaluate(plan, output, **request) -> list[dict]:
    """The results of each run, as they are written."""
    paths = score(Request(plan.workdir, output=output, **request), lambda line: None)
    return [json.loads((one.directory / "evaluation.json").read_text()) for one in paths]


def test_the_final_parameters_of_one_run_play_as_in_training(finished, tmp_path):
    alone = tmp_path / "a" / "seed"
    alone.mkdir(parents=True)
    own = finished.paths[1]
    for path in (own.manifest, own.parameters):
        shutil.copy(path, alone)
    lines = []
    (paths,) = score(Request(alone, output=tmp_path / "out"), lines.append)
    played = json.loads((paths.directory / "evaluation.json").read_text())
    assert (played["game"], played["seed"]) == (own.game, own.seed)
    assert played["returns"] == scores_of(finished, 1)["returns"]
    assert any("half precision" in line for line in lines)


@pytest.mark.usefixtures("undrawn_curves")
def test_a_run_of_a_fleet_is_recorded_as_the_run_alone(finished, tmp_path):
    alone = make_plan(tmp_path, seeds=SEEDS[1:])
    experiment.run(alone, lambda line: None)
    assert toy.recorded(finished, 1) == toy.recorded(alone)


def test_parameters_of_another_agent_are_refused(finished, tmp_path):
    own = finished.paths[0]
    shutil.copy(own.manifest, tmp_path)
    np.savez(tmp_path / "parameters.npz", **{"agent/params/other": np.zeros(3, np.float16)})
    with pytest.raises(Unusable, match="it holds other parameters: params/"):
        score(Request(tmp_path, output=tmp_path / "out"))


def test_the_last_checkpoint_has_the_final_scores_bit_for_bit(finished, tmp_path):
    before = snapshot(finished.workdir)
    found = evaluate(finished, tmp_path, film=True)
    assert snapshot(finished.workdir) == before
    for run, own in enumerate(found):
        expected = scores_of(finished, run)
        assert len(set(expected["returns"])) > 1  # else the order would not matter
        for name in expected.keys() - {"measured", "record_digests"}:
            assert own[name] == expected[name], name
        assert own["checkpoint"] == str(finished.workdir / "checkpoints" / f"{STEPS}.ckpt")
        assert own["run"] == json.loads(finished.paths[run].manifest.read_text())["run"]
        assert own["environment"]["backend"] == "catch" and own["versions"]["jax"]
        assert own["video"] == {"file": "video.mp4", "episode": 0, "return": own["returns"][0]}
        std, mean = np.std(own["returns"], ddof=1), np.mean(own["returns"])
        assert own["standard_error"] == pytest.approx(std / EPISODES**0.5)
        assert own["mean"] == mean
    assert found[0]["returns"] != found[1]["returns"]
    # The film of the first run is the one of training.
    film = tmp_path / "erainbow" / "Catch" / "seed_9" / "video.mp4"
    assert film.read_bytes() == finished.paths[0].video.read_bytes()
    assert (tmp_path / "erainbow" / "Catch" / "seed_3" / "video.mp4").exists()


def test_play_without_learning_stands_beside_the_scores(finished, tmp_path):
    lines = []
    request = Request(finished.workdir, seeds=(3,), nulls=True, output=tmp_path)
    (paths,) = score(request, lines.append)
    own = json.loads((paths.directory / "evaluation.json").read_text())
    assert own["seed"] == 3 and own["returns"] == scores_of(finished, 1)["returns"]
    assert own["video"] is None and not list(tmp_path.rglob("*.mp4"))
    found = own["nulls"]
    assert found["episodes"] == EPISODES and found["constant_action"] in (0, 1, 2)
    assert found["policy"] == {"mean": own["mean"], "standard_error": own["standard_error"]}
    null = max(("uniform", "constant", "untrained"), key=lambda name: found[name]["mean"])
    assert found["best_null"] == null
    assert found["difference"]["mean"] == pytest.approx(own["mean"] - found[null]["mean"])
    assert any("without learning" in line for line in lines)


def test_later_episodes_continue_those_of_training(finished, tmp_path):
    (late,) = evaluate(finished, tmp_path / "late", seeds=(9,), episodes=10, first_episode=10)
    (more,) = evaluate(finished, tmp_path / "more", seeds=(9,), episodes=10, first_episode=20)
    expected = scores_of(finished, 0)["returns"]
    assert late["returns"] == expected[10:] and late["first_episode"] == 10
    assert more["returns"] not in (expected[:10], expected[10:])


# --- checkpoints --------------------------------------------------------------------------------


@pytest.fixture
def copy(finished, tmp_path):
    """The work directory, to be changed."""
    return pathlib.Path(shutil.copytree(finished.workdir, tmp_path / "fleet"))


def keep(plan, directory, step: int, change=lambda leaf: leaf) -> None:
    """Saves a checkpoint with changed learners."""
    last = toy.last_checkpoint(plan)
    store = checkpoints.CheckpointStore(directory, print)
    store.save(last._replace(step=step, learner=jax.tree.map(change, last.learner)))
    store.close()


def test_a_step_chooses_the_checkpoint_and_the_episodes(finished, copy, tmp_path):
    """The state of a fleet that diverged is one of them."""
    keep(finished, copy / "diverged", 77)
    ask = Request(copy, seeds=(9,), episodes=10, output=tmp_path / "output")
    (paths,) = score(ask._replace(step=77), lambda line: None)
    own = json.loads((paths.directory / "evaluation.json").read_text())
    assert own["agent_steps"] == 77 and own["checkpoint"] == str(copy / "diverged" / "77.ckpt")
    with pytest.raises(Unusable, match=r"no checkpoint 5; there are: 50, 60, 77 \(diverged\)$"):
        score(ask._replace(step=5))
    assert workdir.find_checkpoint(workdir.read(copy), None).step == STEPS
    shutil.rmtree(copy / "checkpoints")
    assert workdir.find_checkpoint(workdir.read(copy), None).step == 77


def test_an_agent_that_diverged_is_refused_and_others_of_its_fleet_are_scored(
    finished, copy, tmp_path
):
    def spoil(leaf):
        if np.issubdtype(leaf.dtype, np.floating):
            leaf = leaf.copy()
            leaf[1] = np.nan
        return leaf

    keep(finished, copy / "diverged", 77, spoil)
    ask = Request(copy, step=77, episodes=1, output=tmp_path / "output")
    with pytest.raises(Unusable, match="Catch, seed 3, has diverged"):
        score(ask)
    assert not (tmp_path / "output").exists()
    score(ask._replace(seeds=(9,)), lambda line: None)


def test_a_checkpoint_that_vanishes_is_replaced_by_the_next(copy, tmp_path, monkeypatch):
    """What training does when it saves while the checkpoint is read."""
    read, calls = storage.read, []

    def replaced_meanwhile(path, prefix):
        if not calls:
            newer = checkpoints.path_of(path.parent, 250)
            about, arrays = read(path)
            storage.write(newer, arrays, about | {"step": 250})
            path.unlink()
        calls.append(path)
        return read(path, prefix)

    monkeypatch.setattr(storage, "read", replaced_meanwhile)
    (paths, _) = score(Request(copy, episodes=1, output=tmp_path / "out"), lambda line: None)
    own = json.loads((paths.directory / "evaluation.json").read_text())
    assert own["agent_steps"] == 250 and len(calls) == 2


def test_parameters_of_another_agent_are_not_read(copy):
    arrays = checkpoints.read_agents(checkpoints.path_of(copy / "checkpoints", STEPS))
    like, rows = _agents(copy), range(len(SEEDS))
    larger = jax.tree.map(lambda x: np.zeros((*x.shape[:-1], x.shape[-1] + 1), x.dtype), like)
    for other in (larger, {"params": {"nothing": np.zeros(3)}}, {**like, "more": np.zeros(3)}):
        with pytest.raises(ValueError, match="it holds other parameters"):
            parameters.fit(arrays, rows, other)
    toy.assert_equal_trees(
        parameters.fit(arrays, rows, like),
        toy.last_checkpoint(make_plan(copy)).learner.params.agent,
    )


def _agents(workdir):
    return toy.checkpoint_like(make_plan(workdir)).learner.params.agent


# --- refusals -----------------------------------------------------------------------------------


def edit(path: pathlib.Path, change) -> None:
    described = json.loads(path.read_text())
    change(described)
    files.write_json_atomically(path, described)


def edit_all(workdir, change) -> None:
    for path in workdir.glob("*/*/seed_*/manifest.json"):
        edit(path, change)


@pytest.mark.parametrize(
    "spoil, says",
    [
        (shutil.rmtree, "there is no directory"),
        (lambda at: shutil.rmtree(at / "erainbow"), "no work directory: there is no <preset>/"),
        (
            lambda at: shutil.rmtree(at / "checkpoints"),
            "no checkpoints: to play one run, name .*/Catch/seed_9",
        ),
        (
            lambda at: (shutil.rmtree(at / "checkpoints"), _unscored(at)),
            "no checkpoint yet: training writes one",
        ),
        (
            lambda at: edit_all(at, lambda m: m["run"].pop("format")),
            f"in format None .* reads format {manifest.FORMAT}: train again",
        ),
        (
            lambda at: edit_all(at, lambda m: m["run"]["config"].update(gone=1)),
            "other hyperparameters",
        ),
        (lambda at: edit_all(at, lambda m: m["launch"].pop("runs")), "damaged: there is no 'runs'"),
        (lambda at: shutil.rmtree(at / "erainbow/Catch/seed_3"), "Catch, seed 3 is missing"),
        (
            lambda at: (
                shutil.rmtree(at / "erainbow/Catch/seed_3"),
                edit_all(at, lambda m: m["launch"]["runs"].pop()),
            ),
            "60.ckpt is damaged: it does not hold 1 run",
        ),
        (
            lambda at: edit(
                at / "erainbow/Catch/seed_3/manifest.json", lambda m: m["run"].update(steps=1)
            ),
            "runs of several experiments",
        ),
        (
            lambda at: (at / "erainbow/Catch/seed_3/manifest.json").write_text('{"run": {"see'),
            "manifest.json is damaged: Unterminated",
        ),
        (
            lambda at: edit_all(at, lambda m: m["protocol"].update(final_episodes=None)),
            "protocol.final_episodes is None",
        ),
    ],
)
def test_what_cannot_be_scored_is_refused_in_one_line(copy, tmp_path, spoil, says):
    spoil(copy)
    with pytest.raises(Unusable, match=says) as refusal:
        score(Request(copy, output=tmp_path / "output"))
    assert "\n" not in str(refusal.value) and str(copy) in str(refusal.value)
    assert not (tmp_path / "output").exists()


@pytest.mark.parametrize(
    "folder, says",
    [
        ("", "holds results of several trainings: name the folder of one run that has"),
        ("curl/Alien/seed_0", "it is one run, without its agent: there is no parameters.npz"),
    ],
)
def test_results_without_an_agent_say_what_to_name(folder, says):
    with pytest.raises(Unusable, match=says):
        workdir.read(pathlib.Path(__file__).parents[2] / "results" / "base" / folder)


def test_an_agent_plays_as_many_games_as_its_scores_have(copy):
    """A finished run may have been scored again, with other games than its manifest says."""
    assert workdir.read(copy).final_episodes == EPISODES
    path = copy / "erainbow/Catch/seed_9/scores.json"
    edit(path, lambda scores: scores.update(returns=[1.0] * 7, mean=1.0))
    assert workdir.read(copy).final_episodes == 7


def _unscored(workdir):
    for path in workdir.glob("*/*/*/scores.json"):
        path.unlink()


def test_a_field_that_is_newer_than_a_run_has_the_default_of_its_preset(copy):
    before = workdir.read(copy).config
    edit_all(copy, lambda m: m["run"]["config"].pop("noisy_sigma"))
    assert workdir.read(copy).config == before


@pytest.mark.parametrize(
    "request_, says",
    [
        ({"games": ["Pong"]}, "--games: .* has no run of Pong; it has Catch"),
        ({"seeds": (9, 4)}, "--seeds: .* has no run of 4; it has 9, 3"),
    ],
)
def test_runs_that_are_not_there_are_refused(finished, request_, says):
    with pytest.raises(Unusable, match=says):
        score(Request(finished.workdir, **request_))


def test_results_are_neither_overwritten_nor_put_into_the_work_directory(finished, tmp_path):
    ask = Request(finished.workdir, seeds=(9,), episodes=1, output=tmp_path)
    score(ask, lambda line: None)
    before = snapshot(tmp_path)
    with pytest.raises(Unusable, match="is there already: choose another --output"):
        score(ask)
    assert snapshot(tmp_path) == before
    with pytest.raises(Unusable, match="is in the work directory"):
        score(ask._replace(output=finished.workdir / "evaluation"))
    assert not (finished.workdir / "evaluation").exists()
    # Named like its preset, a work directory lies where results of its parent would.
    alike = tmp_path / "alike" / "erainbow"
    shutil.copytree(finished.workdir, alike)
    before = snapshot(alike)
    named = alike / "erainbow" / "Catch" / "seed_9"
    for place, output in ((alike, alike.parent), (named, alike)):
        with pytest.raises(Unusable, match="is in the work directory"):
            score(Request(place, seeds=(9,), episodes=1, output=output))
    assert snapshot(alike) == before


def test_results_written_while_games_are_played_are_not_overwritten(
    finished, tmp_path, monkeypatch
):
    theirs, play = tmp_path / "erainbow" / "Catch" / "seed_9" / "evaluation.json", scoring._play

    def played(*arguments):
        assert not theirs.parent.exists()  # a stop would leave nothing
        theirs.parent.mkdir(parents=True)
        theirs.write_text("of another program")
        return play(*arguments)

    monkeypatch.setattr(scoring, "_play", played)
    with pytest.raises(Unusable, match="is there already"):
        score(Request(finished.workdir, seeds=(9,), episodes=1, output=tmp_path), lambda line: None)
    assert theirs.read_text() == "of another program"


def test_an_output_that_cannot_be_written_is_refused_before_the_games(
    finished, tmp_path, monkeypatch
):
    monkeypatch.setattr(evaluation, "evaluate", lambda *arguments, **options: pytest.fail("played"))
    (tmp_path / "file").touch()
    for output in (tmp_path / "file", tmp_path / "file" / "below", pathlib.Path("/proc/output")):
        with pytest.raises(Unusable, match=f"^--output: {output}/.* cannot be written: "):
            score(Request(finished.workdir, output=output))


def test_a_failed_video_leaves_no_scores_and_the_command_can_be_repeated(
    finished, tmp_path, monkeypatch
):
    write, calls = video.write_video, []

    def fail_once(path, frames):
        calls.append(path)
        if len(calls) == 2:  # the second run's
            raise video.VideoFailed("no space left")
        write(path, frames)

    monkeypatch.setattr(video, "write_video", fail_once)
    ask = Request(finished.workdir, episodes=1, film=True, output=tmp_path)
    with pytest.raises(video.VideoFailed):
        score(ask, lambda line: None)
    assert not list(tmp_path.rglob("evaluation.json"))
    for paths in score(ask, lambda line: None):
        assert (paths.directory / "evaluation.json").exists()
        assert (paths.directory / "video.mp4").exists()


def test_the_default_output_is_named_after_work_directory_and_step(finished, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (paths,) = score(Request(finished.workdir, seeds=(9,), episodes=1), lambda line: None)
    assert paths.workdir == pathlib.Path("runs/evaluate-fleet-60")


def test_a_signal_ends_the_games_and_nothing_is_written(finished, tmp_path, monkeypatch):
    def advance(self, steps):
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(Progress, "advance", advance)
    with pytest.raises(Stopped) as stop:
        score(Request(finished.workdir, output=tmp_path / "output"), lambda line: None)
    assert stop.value.signum == signal.SIGTERM
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_run_that_resumes_in_another_order_is_refused(copy):
    with pytest.raises(manifest.WorkdirMismatch, match="in another order: repeat the old command"):
        experiment.run(make_plan(copy, seeds=SEEDS[::-1]), lambda line: None)


@pytest.mark.usefixtures("undrawn_curves")
def test_a_fleet_resumed_under_other_circumstances_says_so_once(copy, monkeypatch):
    plan, asked = make_plan(copy), []
    plan.paths[0].scores.unlink()
    edit_all(copy, lambda described: described["versions"].update(python="3.5"))
    circumstances = manifest.circumstances
    monkeypatch.setattr(manifest, "circumstances", lambda: asked.append(0) or circumstances())
    warnings = [line for line in toy.run(plan) if "circumstances" in line]
    assert len(asked) == 1  # it starts git three times
    assert len(warnings) == 1 and "versions.python 3.5" in warnings[0]
    for own in plan.paths:
        (resumed,) = manifest.read(own.manifest)["launch"]["resumed"]
        assert resumed["versions"]["python"] != "3.5"
    assert not [line for line in toy.run(plan) if "circumstances" in line]  # it is finished


# --- checkpoints from somebody else, which must not run code -------------------------------------


class Unpickled(Exception):
    """Something has tried to unpickle."""


@pytest.fixture
def nothing_unpickles(monkeypatch):
    def refuse(*arguments, **options):
        raise Unpickled

    class Unpickler:
        __init__ = load = refuse

    for name, replacement in (("load", refuse), ("loads", refuse), ("Unpickler", Unpickler)):
        monkeypatch.setattr(pickle, name, replacement)


def test_unpickling_would_be_noticed(tmp_path, nothing_unpickles):
    np.save(tmp_path / "objects.npy", np.array([{}], object), allow_pickle=True)
    for read in (
        lambda: pickle.loads(pickle.dumps(1)),
        lambda: np.load(tmp_path / "objects.npy", allow_pickle=True),
    ):
        with pytest.raises(Unpickled):
            read()


@pytest.mark.usefixtures("undrawn_curves", "nothing_unpickles")
def test_reading_a_checkpoint_unpickles_nothing(copy):
    """Neither the whole state, as training resumes it, nor the agents alone, as they are scored."""
    plan = dataclasses.replace(make_plan(copy), film=False)
    assert toy.last_checkpoint(plan).step == STEPS
    fleet, params = build.restore_agents(plan)
    assert fleet.num_runs == len(SEEDS) and params
    plan.paths[0].scores.unlink()
    assert f"resuming after the last of {STEPS} steps" in toy.run(plan)
