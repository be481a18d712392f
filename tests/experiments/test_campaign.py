"""The campaign command: real runs from start to results, and mistakes in one line."""

import json
import os
import pathlib

import pytest

from experiments import sweeps
from rcrl_jax import files
from rcrl_jax.training import manifest
from rcrl_jax.training.run_paths import RunPaths
from rcrl_jax.training.sweep import driver
from rcrl_jax.training.sweep.reading import read_spec
from tests.experiments import programs
from tests.experiments.test_atari100k import SMALL
from tests.experiments.test_command_line import ROOT, assert_refused

FIELDS = {
    **SMALL,
    "max_episode_steps": 20,
    "learning_rate": 3e-5,
    "return_contrast.positive_excludes_anchor": True,
    "curl.reduced_games": ["Pong", "Boxing"],
}
SPEC = """
experiment = "atari100k"
steps = 60
eval_episodes = 2
results = "results/toy"

[arms.small]
preset = "erainbow"
config = {{ {fields} }}

[[blocks]]
arms = ["small"]
games = ["Pong"]
seeds = [1]
"""


def command(*flags: str, directory) -> programs.Ended:
    return programs.call("experiments.campaign", *flags, directory=directory)


@pytest.fixture
def spec(tmp_path):
    fields = ", ".join(f"{name} = {json.dumps(value)}" for name, value in FIELDS.items())
    (tmp_path / "toy.toml").write_text(SPEC.format(fields=fields))
    return tmp_path / "toy.toml"


def test_a_real_run_from_start_to_results(spec, tmp_path):
    states = command("--spec=toy.toml", "--dry_run", directory=tmp_path).stdout.splitlines()
    assert [line.split() for line in states] == [["to", "do", "small-Pong-1"]]
    assert os.listdir(tmp_path) == ["toy.toml"]

    # At the lowest priority it would wait for the tests that run beside this one.
    result = command("--spec=toy.toml", "--niceness=0", directory=tmp_path)
    log = tmp_path / "runs" / "campaign" / "toy" / "small-Pong-1.log"
    assert result.returncode == 0, result.stderr + log.read_text()
    assert result.stdout.splitlines()[-1] == "1 finished, 0 failed, 0 left"
    paths = RunPaths(tmp_path / "results" / "toy" / "small", "erainbow", "Pong", 1)
    assert len(json.loads(paths.scores.read_text())["returns"]) == 2
    run = json.loads(paths.manifest.read_text())["run"]
    assert run["algorithm"] == manifest.ALGORITHM and run["steps"] == 60
    values = manifest.config_values(run["config"]) | {"curl.reduced_games": ["Pong", "Boxing"]}
    assert {name: values[name] for name in FIELDS} == FIELDS
    assert len(list(paths.directory.iterdir())) == 6 and paths.parameters.exists()
    left = {path.name for path in (tmp_path / "runs" / "campaign" / "toy").iterdir()}
    assert left == {"lock", "small-Pong-1.log"}

    again = command("--spec=toy.toml", directory=tmp_path)
    assert again.returncode == 0 and "started" not in again.stdout
    states = command("--spec=toy.toml", "--dry_run", directory=tmp_path).stdout.splitlines()
    assert [line.split()[0] for line in states] == ["finished"]

    spec.write_text(spec.read_text().replace("steps = 60", "steps = 70"))
    other = command("--spec=toy.toml", directory=tmp_path)
    assert_refused(other)
    assert "results/toy/small/erainbow/Pong/seed_1 holds another run" in other.stderr


def test_mistakes_are_one_line_and_exit_code_2(spec, tmp_path):
    for flags, says in (
        ([], "--spec is missing"),
        (["--spec=none.toml"], "none.toml"),
        (["--spec=toy.toml", "--workers=0"], "workers"),
        (["--spec=toy.toml", "toy"], "unexpected argument 'toy'"),
    ):
        result = command(*flags, directory=tmp_path)
        assert_refused(result)
        assert says in result.stderr
    spec.write_text(spec.read_text().replace("Pong", "Pongg"))
    result = command("--spec=toy.toml", directory=tmp_path)
    assert_refused(result)
    assert "toy.toml: block 1: games: unknown 'Pongg': did you mean Pong?" in result.stderr
    assert os.listdir(tmp_path) == ["toy.toml"]


def test_a_locked_campaign_and_another_algorithm_are_refused(spec, tmp_path):
    with driver.locked(tmp_path / "runs" / "toy"):
        result = command("--spec=toy.toml", "--workdir=runs", directory=tmp_path)
    assert_refused(result)
    assert f"in use by another sweep, process {os.getpid()}" in result.stderr

    paths = RunPaths(tmp_path / "results" / "toy", "rcrl", "Hero", 3)
    paths.directory.mkdir(parents=True)
    files.write_json_atomically(paths.manifest, {"run": {"preset": "rcrl"}})
    result = command("--spec=toy.toml", "--workdir=runs", directory=tmp_path)
    assert_refused(result)
    assert "results/toy/rcrl/Hero/seed_3 has algorithm number none" in result.stderr


def test_help_explains_the_spec_and_every_flag(tmp_path):
    text = programs.run("experiments.campaign", "--help", directory=tmp_path).stdout
    for word in ("[[blocks]]", "[arms.uniform]", "--spec", "--workdir", "--workers", "dry_run",
                 "kill -STOP -- -PGID", "failures.jsonl"):  # fmt: skip
        assert word in text
    assert "absl" not in text.partition("flags:")[0]


def test_the_campaign_of_the_claim_holds_all_games_in_pairs():
    spec = read_spec(ROOT / "campaigns" / "claim.toml", sweeps.EXPERIMENTS)
    assert (spec.steps, spec.eval_episodes) == (100_000, 100)
    assert spec.results == pathlib.Path("results/claim")
    assert len(spec.units) == 2 * (4 * 9 + 22 * 5)
    assert {unit.game for unit in spec.units} == set(sweeps.EXPERIMENTS["atari100k"].games)
    for baseline, ours in zip(spec.units[::2], spec.units[1::2], strict=True):
        assert (baseline.arm.name, ours.arm.name) == ("erainbow_sa", "rcrl")
        assert baseline[1:] == ours[1:]
    assert all(not unit.arm.overrides for unit in spec.units)
