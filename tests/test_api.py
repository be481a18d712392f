"""The front door: training and loading from Python, as a script, beside other projects."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
from types import SimpleNamespace

import chex
import jax
import numpy as np
import orbax.checkpoint as ocp
import pandas as pd
import pytest

import rcrl_jax
from rcrl_jax import api
from rcrl_jax.agents.make_agent import make_agent
from rcrl_jax.config import presets
from rcrl_jax.envs.protocol import control_spec
from rcrl_jax.runs import checkpoints, manifest, paths, workdir
from rcrl_jax.trained import Player
from rcrl_jax.training import host_memory, scoring
from rcrl_jax.training.environments import ENVIRONMENTS, environment_of
from tests.tables import synthetic

ROOT = pathlib.Path(__file__).parents[1]
SMALL = {"learn_start": 20, "evaluation_period": 60, "periodic_episodes": 2, "replay.capacity": 100}


def train(directory, **changes):
    asked = {"seeds": range(2), "steps": 100, "eval_episodes": 3, "settings": SMALL, **changes}
    return rcrl_jax.train("minatar_rcrl", game="Breakout", workdir=directory, **asked)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train(tmp_path_factory.mktemp("api") / "first", learning_rate=2e-4, arm="fast")


def test_a_training_gives_what_lies_on_the_disk(run):
    loaded = rcrl_jax.load(run.directory)
    assert loaded.runs == run.runs == (("Breakout", 0), ("Breakout", 1))
    assert loaded.config == run.config and loaded.config.learning_rate == 2e-4
    assert repr(loaded) == f"<Run: minatar_rcrl on Breakout, 2 runs, {run.directory}>"
    scores = pd.DataFrame(loaded.scores())
    assert [*scores] == ["game", "seed", "score", "episodes"]
    assert [*scores.seed] == [0, 1] and [*scores.episodes] == [3, 3]
    curves = pd.DataFrame(loaded.curves())
    assert [*curves.agent_steps] == [60, 100, 60, 100]
    returns = pd.DataFrame(loaded.metrics("episode_return"))
    assert set(returns.seed) == {0, 1} and returns.agent_steps.max() <= 100
    with pytest.raises(ValueError, match="no metric 'episode_retur': did you mean episode_r"):
        loaded.metrics("episode_retur")
    assert [*rcrl_jax.scores(run.directory)["arm"]] == ["fast", "fast"]


def test_runs_that_have_begun_keep_the_name_of_their_arm(run):
    with pytest.raises(ValueError, match="holds runs of the arm fast: repeat their command"):
        train(run.directory, learning_rate=2e-4, arm="other")


def test_games_that_are_played_again_are_those_of_the_final_evaluation(run):
    played = pd.DataFrame(run.evaluate(episodes=3))
    assert [*played.episode] == [0, 1, 2, 0, 1, 2]
    means = played.groupby("seed")["return"].mean()
    np.testing.assert_array_equal(means, run.scores()["score"])


def test_results_are_read_without_checkpoints_and_the_last_evaluation_of_a_step_counts(
    run, tmp_path
):
    copy = tmp_path / "copy"
    shutil.copytree(run.directory, copy)
    shutil.rmtree(copy / "checkpoints")
    loaded = rcrl_jax.load(copy)
    np.testing.assert_equal(loaded.scores(), run.scores())
    with pytest.raises(workdir.Unusable, match="no checkpoints: to play one run, name"):
        loaded.player(seed=0)
    (path, *_) = copy.glob("*/*/seed_0/evaluations.jsonl")
    last = json.loads(path.read_text().splitlines()[-1])
    with open(path, "a") as evaluations:
        evaluations.write(json.dumps(last | {"returns": [9.0, 9.0], "mean": 9.0}) + "\n")
    curves = pd.DataFrame(loaded.curves())
    assert [*curves[curves.seed == 0].agent_steps] == [60, 100]
    assert curves[curves.seed == 0].score.iloc[-1] == 9.0


def test_a_resumption_that_was_cut_short_leaves_runs_that_can_be_read(run, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run.directory, copy)
    manifest.record_new_episodes([paths.RunPaths(copy, "minatar_rcrl", "Breakout", 0)], 50)
    assert rcrl_jax.load(copy).runs == run.runs


def test_no_evaluations_are_empty_columns_and_a_null_is_nan(run, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run.directory, copy)
    for folder in copy.glob("*/*/seed_*"):
        (folder / "evaluations.jsonl").write_text("")
        line = {"agent_steps": 99, "wall_s": 1.0, "loss_c51": None}
        with open(folder / "metrics.jsonl", "a") as metrics:
            metrics.write(json.dumps(line) + "\n")
    loaded = rcrl_jax.load(copy)
    assert [len(column) for column in loaded.curves().values()] == [0] * 4
    losses = loaded.metrics("loss_c51")["loss_c51"]
    assert losses.dtype == float and np.isnan(losses).sum() == 2


def test_scores_of_runs_under_other_conditions_share_no_matrix(tmp_path, capsys):
    for steps, score in ((1000, 1.0), (2000, 5.0)):
        synthetic.write_run(tmp_path / str(steps), score=score, steps=steps)
    (own,) = rcrl_jax.score_matrices(tmp_path).values()
    assert own.tolist() == [[5.0]] and "warning: " in capsys.readouterr().out
    assert rcrl_jax.score_matrices(tmp_path, steps=1000)["rcrl"].tolist() == [[1.0]]
    synthetic.write_run(tmp_path / "other", "curl", "Alien")
    assert rcrl_jax.score_matrices(tmp_path, steps=1000)["rcrl"].shape == (1, 0)
    assert "no game is common to curl, rcrl" in capsys.readouterr().out
    synthetic.write_run(tmp_path / "own", game="mygame.make")
    with pytest.raises(ValueError, match="runs of atari and own: name one benchmark's folders"):
        rcrl_jax.score_matrices(tmp_path, steps=1000)


def test_the_usual_work_directory_is_that_of_the_command(monkeypatch):
    class Planned(Exception):
        pass

    def stop(plan, *_, **__):
        raise Planned(plan.workdir)

    monkeypatch.setattr(api, "carry_out", stop)
    with pytest.raises(Planned, match="^runs/minatar_rcrl-Breakout-0to100$"):
        rcrl_jax.train("minatar_rcrl", "Breakout", seeds=range(100))
    games = ["Pong", "Alien"]
    assert paths.default_workdir("rcrl", games, (3, 1), games).name == "rcrl-all-3,1"


def test_a_benchmark_that_is_added_has_its_games(monkeypatch):
    atari, rcrl = ENVIRONMENTS["atari100k"], presets.atari_presets()["rcrl"]
    added = atari._replace(games=("Foo",))
    monkeypatch.setitem(ENVIRONMENTS, "mine", added)
    assert environment_of(rcrl, "Foo") is added and environment_of(rcrl, "Pong") is atari
    assert api._benchmark_of("rcrl", ["Foo"]) is added
    assert api._benchmark_of("rcrl", ["Pong"]) is atari


def test_what_cannot_be_played_is_refused(run):
    with pytest.raises(ValueError, match="episodes: must be at least 1, got 0"):
        run.evaluate(episodes=0)
    frames = np.zeros((1, 1, 10, 10, 4), np.uint8)
    with pytest.raises(ValueError, match=r"action: expected \[1\], got \[2\]"):
        run.player(seed=1).embed(frames, [0, 1])
    for action in (3, -1):
        with pytest.raises(ValueError, match="action: expected numbers from 0 to 2"):
            run.player(seed=1).embed(frames, [action])


def test_a_player_acts_and_embeds(run):
    player = run.player(seed=1)
    frames = np.random.default_rng(0).integers(0, 2, (3, 1, 10, 10, 4), np.uint8)
    actions = player.act(frames)
    assert actions.shape == (3,) and set(actions) <= {0, 1, 2}
    np.testing.assert_array_equal(player.act(frames[1:])[0], actions[1])
    same = player.embed(frames, np.zeros(3, int))
    assert same.shape == (3, run.player(seed=1).embed(frames, actions).shape[1])
    assert np.any(same != player.embed(frames, np.ones(3, int)))
    with pytest.raises(ValueError, match=r"frames: expected \[N, 1, \*frame\], got \[3, 2, "):
        player.act(frames.repeat(2, axis=1))
    for other in (frames[:, :, 1:], frames.transpose(0, 1, 4, 2, 3), frames.reshape(3, 1, 400)):
        with pytest.raises(ValueError, match=r"of shape \[10, 10, 4\], not \["):
            player.act(other)
    np.testing.assert_array_equal(player.act(frames.astype(bool)), player.act(frames))
    for kind in (np.int64, np.float64):
        with pytest.raises(ValueError, match=f"frames: expected uint8, got {kind.__name__}"):
            player.act(frames.astype(kind))
        with pytest.raises(ValueError, match=f"frames: expected uint8, got {kind.__name__}"):
            player.embed(frames.astype(kind), actions)
    with pytest.raises(ValueError, match="2 runs have seed=None, game=None; there are Breakout"):
        run.player()


def test_a_run_plays_beside_one_that_has_diverged(run, monkeypatch):
    read = checkpoints.read_agents

    def first_diverged(*args):
        found = {name: np.array(x) for name, x in read(*args).items()}
        for x in found.values():
            x[0] = np.nan
        return found

    monkeypatch.setattr(checkpoints, "read_agents", first_diverged)
    assert run.player(seed=1).act(np.zeros((1, 1, 10, 10, 4), np.uint8)).shape == (1,)
    with pytest.raises(workdir.Unusable, match="Breakout, seed 0, has diverged"):
        run.player(seed=0)


def test_a_run_stays_where_it_is_when_the_program_changes_its_directory(run, monkeypatch):
    monkeypatch.chdir(run.directory.parent)
    loaded = rcrl_jax.load(run.directory.name)
    monkeypatch.chdir("/")
    np.testing.assert_equal(loaded.scores(), run.scores())


def test_a_player_refuses_frames_that_only_a_crop_would_fit():
    """SAC crops 84 of 100 pixels, and would crop them of any larger frame."""
    agent = make_agent(presets.control_presets()["rcrl_sac"], control_spec((100, 100, 3), 6))
    player = Player(SimpleNamespace(agent=agent), None)
    with pytest.raises(ValueError, match=r"are of shape \[100, 100, 3\], not \[90, 90, 3\]"):
        player.act(np.zeros((1, 3, 90, 90, 3), np.uint8))


def test_exported_parameters_are_a_standard_checkpoint(run, tmp_path):
    _, fleet, params = scoring.load(run.directory)
    places = run.export(tmp_path / "shared")
    assert [str(place.relative_to(tmp_path)) for place in places] == [
        f"shared/{own.game}/seed_{own.seed}" for own in run.runs
    ]
    for row, place in enumerate(places):
        expected = jax.tree.map(lambda x, row=row: x[row], fleet.to_host(params))
        chex.assert_trees_all_equal(ocp.StandardCheckpointer().restore(place), expected)
    with pytest.raises(FileExistsError, match="shared/"):
        run.export(tmp_path / "shared")


def test_the_same_call_says_that_the_run_is_finished_and_another_is_refused(run, capsys):
    train(run.directory, learning_rate=2e-4)
    assert "finished already" in capsys.readouterr().out
    with pytest.raises(manifest.WorkdirMismatch, match=r"config.learning_rate 0.0002 -> 0.0001"):
        train(run.directory, learning_rate=1e-4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learningrate": 1.0}, "no field 'learningrate': did you mean learning_rate"),
        ({"settings": {"learning_rate": 0.0}}, "learning_rate: must be positive"),
        ({"devices": 7}, "devices: expected a number from 1 to 1, got 7"),
        ({"backend": "envpool"}, "unknown backend 'envpool' of Breakout: choose from minatar"),
        ({"epsilon": 0.1}, "epsilon: has no effect unless exploration"),
        ({"seeds": []}, "seeds: expected different seeds"),
        ({"seeds": [1, 1]}, "seeds: expected different seeds"),
        ({"steps": 0}, "steps: must be at least 1"),
        ({"steps": 2.5}, "steps: expected a whole number, got 2.5"),
        ({"steps": 15}, "^steps: 15 agent steps end before the first update"),
        ({"seeds": 4}, "seeds: expected different seeds from 0 to 2147483647, got 4"),
        ({"batch_size": 1.5}, "batch_size: expected a whole number, got 1.5"),
        ({"learning_rate": "1e-3"}, "learning_rate: expected a number, got '1e-3'"),
        ({"clip_rewards": "false"}, "clip_rewards: expected true or false, got 'false'"),
        ({"batching": "vamp"}, "batching: expected auto or map or vmap, got 'vamp'"),
        ({"frame_store": "gpu"}, "frame_store: expected auto or host or device, got 'gpu'"),
        ({"arm": "curl"}, "arm 'curl': an arm's name must not be a preset's"),
        ({"eval_episodes": 0}, "eval_episodes: must be at least 1"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message) as raised:
        train(tmp_path / "new", **changes)
    assert "\n" not in str(raised.value) and not os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("preset", "game", "message"),
    [
        ("minatar_rcr", "Breakout", "unknown preset 'minatar_rcr': did you mean minatar_rcrl"),
        ("minatar_rcrl", "Brakout", "unknown game 'Brakout': did you mean Breakout"),
        ("rcrl", "cheetah_run", "unknown game 'cheetah_run'"),
        ("rcrl_sac", "cheeta_run", "unknown task 'cheeta_run': did you mean cheetah_run"),
        ("rcrl_sac", "zzz", "unknown task 'zzz': choose from finger_spin"),
        ("rcrl", [], "game: expected a game, or several"),
        ("minatar_rcrl", ["Breakout"] * 2, "game: one is there twice in Breakout, Breakout"),
        # Tasks whose learning rates differ, and whose action repeats do.
        ("rcrl_sac", ["reacher_easy", "cheetah_run"], "cheetah_run differ in learning rate"),
        (
            "rcrl_sac",
            ["cheetah_run", "reacher_easy"],
            "reacher_easy differ in learning rate",
        ),
        (
            "rcrl_sac",
            ["walker_walk", "cheetah_run"],
            "cheetah_run differ in action repeat: start",
        ),
    ],
)
def test_an_unknown_preset_or_game_is_one_line(tmp_path, preset, game, message):
    with pytest.raises(ValueError, match=message):
        rcrl_jax.train(preset, game=game, workdir=tmp_path / "new")
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    "devices, available, runs, used",
    [
        (None, 1, 130, 1),
        (None, 8, 1, 1),  # a run is on one device
        (None, 4, 130, 4),
        (None, 4, 5, 3),  # two runs each; a fourth device would compute copies alone
        (None, 8, 9, 5),
        (2, 8, 130, 2),
        (8, 8, 5, 5),
    ],
)
def test_runs_share_no_more_devices_than_they_need(devices, available, runs, used, monkeypatch):
    monkeypatch.setattr(jax, "device_count", lambda: available)
    assert api._devices_of(runs, devices) == used


def test_a_game_of_one_s_own_trains_from_python(tmp_path):
    asked = {"seeds": range(2), "steps": 60, "eval_episodes": 2, "settings": SMALL}
    own = rcrl_jax.train(
        "rcrl",
        environment="gymnasium:CartPole-v1",
        workdir=tmp_path / "run",
        n_step=5,
        **asked,
    )
    assert own.config.encoder == "dense" and own.config.frame_stack == 1
    assert [*own.scores()["game"]] == ["gymnasium.CartPole-v1"] * 2
    np.testing.assert_array_equal(
        own.evaluate(episodes=2)["return"].reshape(2, 2).mean(axis=1), own.scores()["score"]
    )
    with pytest.raises(ValueError, match="game beside environment"):
        rcrl_jax.train("rcrl", "Pong", environment="gymnasium:CartPole-v1")
    with pytest.raises(ValueError, match="unknown preset 'rcr'"):
        rcrl_jax.train("rcr", environment="gymnasium:CartPole-v1")
    with pytest.raises(ValueError, match="^environment .*: expected gymnasium:CartPole-v1, or mym"):
        rcrl_jax.train("rcrl", environment=lambda: None)
    with pytest.raises(ValueError, match="; your own game is environment=mygame:make"):
        rcrl_jax.train("rcrl", "mygame:make")
    with pytest.raises(ValueError, match="'curl' reads images, this agent reads vectors"):
        rcrl_jax.train("curl", environment="gymnasium:CartPole-v1")
    player, numbers = own.player(seed=0), np.arange(8).reshape(2, 1, 4)
    np.testing.assert_array_equal(player.act(numbers), player.act(numbers.astype(np.float32)))


def test_a_directory_without_runs_is_refused(tmp_path):
    with pytest.raises(workdir.Unusable, match="is no work directory"):
        rcrl_jax.load(tmp_path)


@pytest.mark.parametrize("is_late", [True, False])
def test_a_training_after_jax_has_started_says_that_settings_of_memory_are_late(
    is_late, run, monkeypatch
):
    """The second training of a process is not late: the first one has made the settings."""
    monkeypatch.setattr(host_memory, "is_late", lambda: is_late)
    api._prepare_memory.cache_clear()
    lines = []
    train(run.directory, learning_rate=2e-4, say=lines.append)
    monkeypatch.setattr(host_memory, "is_late", lambda: True)
    train(run.directory, learning_rate=2e-4, say=lines.append)
    assert sum(line.startswith("JAX was used before") for line in lines) == 2 * is_late


def test_the_package_imports_no_jax():
    code = "import sys, rcrl_jax; sys.exit('jax' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    with pytest.raises(AttributeError, match="has no attribute 'trian'"):
        rcrl_jax.trian  # noqa: B018


def test_a_script_without_a_guard_trains_beside_packages_of_the_same_names(tmp_path):
    """DMControl's workers do not import the script, nor we the user's `experiments`."""
    for name in ("experiments", "benchmarks"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('the user has this')")
    (tmp_path / "mine.py").write_text(
        "import rcrl_jax\n"
        "run = rcrl_jax.train('state_sac', 'cheetah_run', steps=260, eval_episodes=1,\n"
        "    workdir='r', settings={'learn_start': 250, 'hidden_size': 8, 'batch_size': 8,\n"
        "              'evaluation_period': 10_000})\n"
        "print(len(run.scores()['score']), 'run')\n"
    )
    done = subprocess.run(
        [sys.executable, "mine.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "1 run"
