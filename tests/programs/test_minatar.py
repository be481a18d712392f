"""The command on MinAtar: alone, in a fleet, scored afterwards."""

import json

import numpy as np
import pytest

from tests.programs import programs

PROGRAM = "experiments.minatar"
STEPS = 90


def arguments(workdir, *more):
    return [
        "--preset=minatar_rcrl", f"--steps={STEPS}", f"--workdir={workdir}", "--eval_episodes=2",
        "--config.learn_start=40", "--config.batch_size=4", "--config.return_contrast.batch_size=4",
        "--config.replay.capacity=200", "--config.max_episode_steps=30",
        "--config.evaluation_period=60", "--config.periodic_episodes=1", "--batching=map", *more,
    ]  # fmt: skip


def files_of(workdir, game, seed):
    directory = workdir / "minatar_rcrl" / game / f"seed_{seed}"
    with np.load(directory / "parameters.npz") as arrays:
        parameters = {name: arrays[name] for name in arrays}
    returns = json.loads((directory / "scores.json").read_text())["returns"]
    return parameters, returns


@pytest.mark.slow
def test_a_fleet_of_the_command_is_described_and_compared(tmp_path):
    fleet = tmp_path / "fleet"
    command = arguments(fleet, "--game=Breakout", "--seeds=0,1", "--nulls")
    result = programs.call(PROGRAM, *command)
    assert result.returncode == 0, result.stderr
    assert "Breakout: no published scores" in result.stdout
    sentence = result.stdout.splitlines()[-1]
    assert sentence.startswith("minatar_rcrl on Breakout, 2 seeds of 90 steps: the agents score ")
    assert (fleet / "minatar_rcrl" / "Breakout" / "gain.png").exists()

    described = json.loads(
        (fleet / "minatar_rcrl" / "Breakout" / "seed_1" / "manifest.json").read_text()
    )
    environment = described["environment"]
    assert environment["backend"] == "minatar" and environment["rules"] == 1
    assert environment["sticky_action_probability"] == 0.1
    assert environment["action_set"] == [0, 1, 3]

    refused = programs.call(PROGRAM, *command, "--config.sticky=0.2")
    assert refused.returncode == 2 and "config.sticky 0.1 -> 0.2" in refused.stderr


@pytest.mark.slow
def test_one_game_of_a_mixed_fleet_is_scored_and_filmed_with_the_frames_of_the_fleet(tmp_path):
    workdir = tmp_path / "mixed"
    trained = programs.call(PROGRAM, *arguments(workdir, "--games=Breakout,Freeway"))
    assert trained.returncode == 0, trained.stderr
    for place in (workdir, workdir / "minatar_rcrl" / "Breakout" / "seed_0"):
        output = tmp_path / f"scored-{place.name}"
        flags = [f"--workdir={place}", f"--output={output}"]
        flags += ["--games=Breakout", "--nulls", "--video"] if place == workdir else []
        scored = programs.call("experiments.evaluate", *flags)
        assert scored.returncode == 0, scored.stderr
        own = json.loads(
            (output / "minatar_rcrl" / "Breakout" / "seed_0" / "evaluation.json").read_text()
        )
        assert own["human_normalised_mean"] is None
        if place == workdir:
            assert own["returns"] == files_of(workdir, "Breakout", 0)[1]
            assert own["nulls"]["constant_action"] in (0, 1, 2) and own["video"]


def test_from_a_manifest_the_same_run_is_trained_again(tmp_path):
    """Alone, although it was one of a fleet; in a directory of its own."""
    fleet, again = tmp_path / "fleet", tmp_path / "again"
    done = programs.call(PROGRAM, *arguments(fleet, "--game=Breakout", "--seeds=4,7"))
    assert done.returncode == 0, done.stderr
    told = fleet / "minatar_rcrl" / "Breakout" / "seed_7" / "manifest.json"
    before = told.read_bytes()
    done = programs.call(PROGRAM, f"--from={told}", directory=tmp_path)
    assert done.returncode == 0, done.stderr
    own = tmp_path / "runs" / "minatar_rcrl-Breakout-7-again"
    np.testing.assert_equal(files_of(own, "Breakout", 7), files_of(fleet, "Breakout", 7))
    assert told.read_bytes() == before
    run = json.loads((own / "minatar_rcrl/Breakout/seed_7/manifest.json").read_text())["run"]
    assert run == json.loads(before)["run"]
    older = json.loads(before)
    older["run"]["algorithm"] = 1
    (tmp_path / "older.json").write_text(json.dumps(older))
    started = json.loads(before)
    started["run"]["init_from"] = {"directory": "x"}
    (tmp_path / "started.json").write_text(json.dumps(started))
    for flags, says in (
        (["--seed=7"], "--from beside --seed: the manifest says it"),
        (["--init_from=x"], "--from beside --init_from: the manifest says it"),
        (["--from=started.json"], "started from other agents: repeat its launch.command"),
        (["--config.n_step=3"], "--from beside --config.n_step: the manifest says it"),
        (["--from=older.json"], "has algorithm number 1, this code 2"),
        (["--from=nowhere.json"], "nowhere.json"),
    ):
        ended = programs.call(
            PROGRAM, f"--from={told}", *flags, f"--workdir={again}", directory=tmp_path
        )
        assert ended.returncode == 2 and len(ended.stderr.splitlines()) == 1
        assert says in ended.stderr and not again.exists()
    ended = programs.call("experiments.dmc", f"--from={told}", directory=tmp_path)
    assert ended.returncode == 2 and "experiments.minatar trains it" in ended.stderr
