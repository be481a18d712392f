"""The command on games of one's own: interrupted, resumed, scored afterwards."""

import json
import os
import pathlib
import signal

import numpy as np
import pytest

from rcrl_jax.envs import gymnasium_games
from tests.programs import programs

PROGRAM = "experiments.train"
OWN = pathlib.Path(__file__).parents[1] / "envs" / "own_games.py"
RAINBOW = ("--config.learn_start=40", "--config.hidden_size=8", "--config.max_episode_steps=40")
SAC = (
    "--preset=rcrl_sac", "--config.learn_start=40", "--config.hidden_size=8",
    "--config.return_contrast.discriminator_hidden=8",
)  # fmt: skip


def arguments(workdir, environment, *more):
    return [
        f"--environment={environment}", "--steps=90", f"--workdir={workdir}",
        "--eval_episodes=2", "--config.batch_size=4", "--config.replay.capacity=200",
        "--config.evaluation_period=60", "--config.periodic_episodes=1",
        "--config.return_contrast.batch_size=4", *more,
    ]  # fmt: skip


def directory_of(workdir, preset, game):
    return workdir / preset / game / "seed_0"


def manifest_of(directory):
    return json.loads((directory / "manifest.json").read_text())


@pytest.fixture
def folder(tmp_path):
    """The folder of a user, with a module of games, whose name is this test's own."""
    name = f"games_{tmp_path.name}".replace("-", "_").replace(".", "_")
    (tmp_path / f"{name}.py").write_text(OWN.read_text())
    return tmp_path, name


def gone(name):
    raise ValueError("the game is gone")


@pytest.mark.parametrize(
    ("environment", "preset", "other_preset", "flags", "wanted"),
    [
        ("gymnasium:CartPole-v1", "rcrl", "erainbow", RAINBOW, {"encoder": "dense"}),
        ("gymnasium:Pendulum-v1", "rcrl_sac", "sac_aug", SAC, {"observation": "state"}),
        ("make", "rcrl", "erainbow", RAINBOW, {"encoder": "minatar"}),
    ],
)
def test_a_run_is_the_same_interrupted_and_is_scored_filmed_compared_and_reported(
    folder, monkeypatch, environment, preset, other_preset, flags, wanted
):
    place, module = folder
    wanted = {**wanted, "frame_stack": 1}
    is_drawn = ":" in environment
    if ":" not in environment:
        environment = f"{module}:{environment}"
    game = environment.replace(":", ".")
    one, other = place / "one", place / "other"
    whole = programs.call(PROGRAM, *arguments(one, environment, *flags), directory=place)
    assert whole.returncode == 0, whole.stderr
    assert f"{game}: no published scores" in whole.stdout
    command = arguments(other, environment, *flags)
    with programs.after_a_save(step=50):
        stopped = programs.call(PROGRAM, *command, directory=place, checkpoint_period=50)
    assert stopped.returncode == 128 + signal.SIGTERM, stopped.stderr
    resumed = programs.call(PROGRAM, *command, directory=place)
    assert resumed.returncode == 0 and "resuming at step" in resumed.stdout, resumed.stderr
    parameters = []
    for workdir in (one, other):
        with np.load(directory_of(workdir, preset, game) / "parameters.npz") as arrays:
            parameters.append(dict(arrays))
    np.testing.assert_equal(*parameters)

    run = manifest_of(directory_of(one, preset, game))
    assert {name: run["run"]["config"][name] for name in wanted} == wanted
    assert run["environment"]["environment"] == environment
    assert ("module" in run["environment"]) == (module in environment)

    film = ["--video"] if is_drawn else []
    scored = programs.call(
        "experiments.evaluate", f"--workdir={one}", "--output=scored", *film, directory=place
    )
    assert scored.returncode == 0, scored.stderr
    filmed = directory_of(place / "scored", preset, game) / "video.mp4"
    assert filmed.exists() == is_drawn
    again = json.loads(
        (directory_of(place / "scored", preset, game) / "evaluation.json").read_text()
    )
    returns = json.loads((directory_of(one, preset, game) / "scores.json").read_text())["returns"]
    assert again["returns"] == returns and again["human_normalised_mean"] is None
    with monkeypatch.context() as patched:
        patched.setattr(gymnasium_games, "probe", gone)
        refused = programs.call(
            "experiments.evaluate", f"--workdir={one}", "--video", directory=place
        )
    assert (refused.returncode, refused.stderr) == (2, "error: the game is gone\n")

    second = [*arguments(place / "second", environment, *flags), f"--preset={other_preset}"]
    second = [flag for flag in second if "return_contrast" not in flag]
    done = programs.call(PROGRAM, *second, directory=place)
    assert done.returncode == 0, done.stderr
    results = f"--results={one},{place / 'second'}"
    unknown = programs.call("benchmarks.compare", results, "--second=none", directory=place)
    assert unknown.returncode == 2
    *_, arms = unknown.stderr.strip().partition("the arms there are: ")
    first = next(arm for arm in arms.split("), ") if arm.startswith(f"{preset}("))
    last = next(arm for arm in arms.split("), ") if arm.startswith(f"{other_preset}("))
    named = [f"{flag}={arm.rstrip(')')})" for flag, arm in (("--first", first), ("--second", last))]
    compared = programs.call("benchmarks.compare", results, *named, directory=place)
    assert compared.returncode == 0 and game in compared.stdout, compared.stderr
    assert "no reference scores: nothing is normalised" in " ".join(compared.stdout.split())
    assert not any(f"{name}=" in arm for name in wanted for arm in (first, last))
    reported = programs.call("benchmarks.report", results, "--output=page.html", directory=place)
    assert "runs: 2, left out: 0" in reported.stdout, reported.stderr


def test_pictures_are_read_by_the_usual_encoder(folder):
    place, module = folder
    flags = arguments(place / "run", f"{module}:Picture", *RAINBOW)
    done = programs.call(PROGRAM, *flags, directory=place)
    assert done.returncode == 0, done.stderr
    run = manifest_of(directory_of(place / "run", "rcrl", f"{module}.Picture"))
    assert run["run"]["config"]["encoder"] == "data_efficient"
    assert run["environment"]["frame_shape"] == [84, 84]


def test_a_game_that_follows_no_seed_is_said_to_and_goes_on_with_new_episodes(folder):
    place, module = folder
    command = arguments(place / "run", f"{module}:Drifting", *RAINBOW)
    with programs.after_a_save(step=50):
        stopped = programs.call(PROGRAM, *command, directory=place, checkpoint_period=50)
    assert stopped.returncode == 128 + signal.SIGTERM, stopped.stderr
    (line,) = [line for line in stopped.stdout.splitlines() if "equal seeds" in line]
    assert "Drifting is not the same game" in line and "a resumed one begins new episodes" in line
    directory = directory_of(place / "run", "rcrl", f"{module}.Drifting")
    run = manifest_of(directory)
    assert run["environment"]["repeats_exactly"] is False and "new_episodes_at" not in run["run"]
    resumed = programs.call(PROGRAM, *command, directory=place)
    assert resumed.returncode == 0, resumed.stderr
    (step,) = manifest_of(directory)["run"]["new_episodes_at"]
    assert f"new episodes begin at step {step}" in resumed.stdout and 50 <= step <= 51
    again = programs.call(PROGRAM, *command, directory=place)
    assert again.returncode == 0 and "finished already" in again.stdout, again.stderr


def test_a_damaged_log_of_a_game_that_follows_no_seed_is_refused(folder):
    place, module = folder
    command = arguments(place / "run", f"{module}:Drifting", *RAINBOW)
    with programs.after_a_save(step=50):
        programs.call(PROGRAM, *command, directory=place, checkpoint_period=50)
    log = place / "run" / "frames.log"
    content = log.read_bytes()
    log.write_bytes(content[:300] + b"?" + content[301:])
    refused = programs.call(PROGRAM, *command, directory=place)
    assert refused.returncode == 2 and len(refused.stderr.splitlines()) == 1
    assert "frames.log is damaged" in refused.stderr and "another --workdir" in refused.stderr
    assert len(log.read_bytes()) == len(content)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], ["--environment is missing"]),
        (["--environment=CartPole-v1"], ["expected gymnasium:CartPole-v1"]),
        (["--environment=gymnasium:CartPol-v1"], ["Did you mean: `CartPole`"]),
        (["--environment=nowhere:make"], ["no module 'nowhere'"]),
        (["--environment=gymnasium:Pendulum-v1"], ["continuous actions", "rcrl_sac"]),
        (["--environment=gymnasium:CartPole-v1", "--preset=rcrl_sac"], ["discrete", "rcrl"]),
        (
            ["--environment=gymnasium:CartPole-v1", "--config.encoder=nature"],
            ["encoder: 'nature' does not read", "float32 [4]; choose dense"],
        ),
        (
            ["--environment=gymnasium:CartPole-v1", "--config.augmentation=pad_crop"],
            ["augmentation", "'dense'"],
        ),
        (["--environment=tests.envs.own_games:broken"], ["OSError: no display"]),
    ],
)
def test_a_mistake_is_one_line(tmp_path, flags, words):
    ended = programs.call(PROGRAM, *flags, f"--workdir={tmp_path / 'run'}")
    assert ended.returncode == 2 and len(ended.stderr.splitlines()) == 1
    assert all(word in ended.stderr for word in words), ended.stderr
    assert not os.listdir(tmp_path)
