"""The command on real games and tasks: scores and films as in training."""

import dataclasses
import functools
import json
import shutil
import signal

import jax
import pytest

from rcrl_jax import types
from rcrl_jax.config import fields, presets
from rcrl_jax.envs import atari
from rcrl_jax.training import build, experiment, prediction, scoring
from rcrl_jax.training.plan import Plan, RunId
from tests.programs import programs, test_atari100k, test_dmc
from tests.training.test_scoring import snapshot

PROGRAM = "experiments.evaluate"
GAMES = ("MsPacman", "Breakout")  # with different numbers of actions


def train(workdir, preset, config, runs, make_environment, **changes) -> Plan:
    """Plays some steps and ends before the first update, whose compilation would take long."""
    plan = Plan(
        preset=preset,
        config=config,
        runs=tuple(RunId(*run) for run in runs),
        total_steps=config.learn_start // 2,
        workdir=workdir,
        eval_episodes=3,
        make_environment=make_environment,
        film=True,
    )
    plan = dataclasses.replace(plan, **changes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prediction, "forecast", lambda *parts: "")
        experiment.run(plan, lambda line: None)
    return plan


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """A fleet of two games."""
    small = {**test_atari100k.SMALL, "max_episode_steps": 150, "evaluation_epsilon": 0.5}
    return train(
        tmp_path_factory.mktemp("atari") / "fleet",
        "erainbow",
        fields.replace(presets.ATARI_PRESETS["erainbow"], small),
        [(game, 4) for game in GAMES],
        functools.partial(atari.make_games, GAMES, 1, "envpool"),
    )


def read(directory) -> dict:
    return json.loads((directory / "evaluation.json").read_text())


def test_atari_scores_and_film_are_those_of_training(played, tmp_path):
    before = snapshot(played.workdir)
    result = programs.call(
        PROGRAM, f"--workdir={played.workdir}", f"--output={tmp_path}", "--video"
    )
    assert result.returncode == 0, result.stderr
    assert snapshot(played.workdir) == before
    for paths in played.paths:
        own = tmp_path / "erainbow" / paths.game / "seed_4"
        expected = json.loads(paths.scores.read_text())
        assert read(own)["returns"] == expected["returns"]
        assert read(own)["launch"]["command"].startswith("python -m experiments.evaluate --workdir")
        for words in (f"{paths.game} ", "random", "human", f"results in {own}"):
            assert words in result.stdout
    first = played.paths[0]
    assert len(set(json.loads(first.scores.read_text())["returns"])) > 1
    film = tmp_path / "erainbow" / first.game / "seed_4" / "video.mp4"
    assert film.read_bytes() == first.video.read_bytes()
    assert "Traceback" not in result.stderr and "warning" not in result.stdout.lower()


def test_one_game_of_a_fleet_is_played_on_another_backend(played, tmp_path):
    """Breakout has fewer actions than the networks of its fleet."""
    lines = []
    request = scoring.Request(
        played.workdir, games=["Breakout"], backend="ale", episodes=1, output=tmp_path
    )
    (paths,) = scoring.score(request, lines.append)
    assert paths.game == "Breakout"
    assert read(paths.directory)["environment"]["backend"] == "ale"
    assert any("not as in training" in line and "backend envpool -> ale" in line for line in lines)


def test_one_run_of_a_fleet_is_played_by_its_final_parameters_alone(played, tmp_path):
    """Breakout's parameters have the actions of MsPacman."""
    own = played.paths[1]
    alone = tmp_path / "alone"
    alone.mkdir()
    for path in (own.manifest, own.parameters):
        shutil.copy(path, alone)
    (paths,) = scoring.score(scoring.Request(alone, output=tmp_path / "out"))
    assert paths.game == own.game == "Breakout"
    assert read(paths.directory)["returns"] == json.loads(own.scores.read_text())["returns"]


@pytest.mark.usefixtures("renderer")
def test_control_scores_and_film_are_those_of_training(tmp_path):
    small = {**test_dmc.SMALL, "auxiliary": ()}
    config = fields.replace(presets.DMC_PRESETS["sac_aug"], small)
    runs = [RunId("cartpole_swingup", 1)]
    maker = build.environment_maker(config, runs, "dm_control")
    plan = train(tmp_path / "runs", "sac_aug", config, runs, maker, eval_episodes=1)
    output = tmp_path / "output"
    (paths,) = scoring.score(scoring.Request(plan.workdir, film=True, output=output))
    own = read(paths.directory)
    assert own["returns"] == json.loads(plan.paths[0].scores.read_text())["returns"]
    assert (own["agent_steps"], own["env_steps"], own["frames"]) == (10, 80, 10)
    film = paths.directory / "video.mp4"
    assert film.read_bytes() == plan.paths[0].video.read_bytes()


def test_a_signal_ends_with_128_and_its_number(tmp_path, monkeypatch):
    def stop(request):
        raise scoring.Stopped(signal.SIGINT)

    monkeypatch.setattr(scoring, "score", stop)
    ended = programs.call(PROGRAM, "--workdir=x", directory=tmp_path)
    assert ended.returncode == 128 + signal.SIGINT


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (types.Incompatible("frames have other shapes"), "frames have other shapes"),
        (MemoryError("9 GiB"), "too little memory: 9 GiB; score fewer runs at a time"),
        (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: 9 bytes"), "JAX_PLATFORMS=cpu"),
    ],
)
def test_what_ends_an_evaluation_is_one_line(tmp_path, monkeypatch, error, says):
    def end(request):
        raise error

    monkeypatch.setattr(scoring, "score", end)
    ended = programs.call(PROGRAM, "--workdir=x", directory=tmp_path)
    assert ended.returncode == 2 and len(ended.stderr.splitlines()) == 1
    assert says in ended.stderr
