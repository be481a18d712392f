"""The command on continuing Catch: trains, measures, says what it found."""

import json

import pytest

from experiments.simple import measure
from tests.programs import programs

PROGRAM = "experiments.simple"
TINY = {
    "frame_height": 14, "frame_width": 14, "frame_stack": 2, "rounds": 1, "round_steps": 24,
    "real_rollout": 24, "real_agents": 2, "model_updates": 1, "first_model_factor": 1,
    "policy_updates": 1, "model_rollout": 4, "model_agents": 2, "minibatch_steps": 2, "passes": 1,
    "max_episode_steps": 24, "periodic_episodes": 1, "deterministic.filters": 8,
    "deterministic.compress_steps": 1,
}  # fmt: skip


def test_the_command_writes_what_it_measures(tmp_path, monkeypatch):
    for name, value in (("HELD_OUT", 4), ("FITTED", 6), ("LENGTH", 3), ("_STARTS", 12)):
        monkeypatch.setattr(measure, name, value)
    result = programs.call(
        PROGRAM, "--seed=1", "--eval_episodes=1", f"--workdir={tmp_path}",
        *(f"--config.{name}={value}" for name, value in TINY.items()),
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    directory = tmp_path / "simple_catch" / "ContinuingCatch" / "seed_1"
    assert (directory / "model.png").read_bytes()[1:4] == b"PNG"
    found = json.loads((directory / "model.json").read_text())
    assert found["command"].startswith(f"python -m {PROGRAM} --seed=1")
    for play in ("policy", "uniform"):
        assert found["model"][play]["rollouts"] == 4
        assert len(found["model"][play]["pixels"]["by_step"]["model"]) == 3
    assert found["play"]["episodes"] == 1
    assert found["play"]["difference"]["standard_error"] is None
    scores = json.loads((directory / "scores.json").read_text())
    assert found["play"]["policy"]["mean"] == pytest.approx(scores["mean"])
    assert {"uniform", "constant", "untrained"} <= found["play"].keys()
    assert "uniform play, 4 rollouts: log-likelihood of the frames" in result.stdout
    assert f"results in {directory}" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--game=Pong"], "--game: simple_catch plays ContinuingCatch alone"),
        (["--backend=ale"], "--backend: simple_catch plays ContinuingCatch alone"),
        (["--seeds=0,1"], "one --game and one --seed at a time"),
        (["--config.model=stochastic"], "only the deterministic model has a likelihood"),
        (["--config.frame_height=15"], "a multiple of 7 pixels"),
        (["--preset=simple_small", "--game=Pon"], "did you mean Pong?"),
    ],
)
def test_what_cannot_be_measured_is_refused(tmp_path, arguments, says):
    result = programs.call(PROGRAM, *arguments, directory=tmp_path)
    assert result.returncode == 2 and says in result.stderr
    assert not list(tmp_path.iterdir())
