"""The sweep command: real runs from start to results, and mistakes in one line."""

import importlib.metadata
import json
import os
import pathlib
import signal
import subprocess

import pytest

from rcrl_jax import files
from rcrl_jax.programs.sweeps import driver, local
from rcrl_jax.programs.sweeps.spec import EXPERIMENTS, read_spec
from rcrl_jax.runs import manifest
from rcrl_jax.runs.paths import RunPaths
from tests.programs import programs
from tests.programs.test_atari100k import SMALL
from tests.programs.test_command_line import ROOT, assert_refused

RUNS = ("--presets=erainbow,rcrl", "--games=Pong,Alien", "--seeds=0:2", "--results=results/toy")
FIELDS = {
    **{name: value for name, value in SMALL.items() if not name.startswith("return_contrast.")},
    "learning_rate": 3e-5,
    "curl.reduced_games": ["Pong", "Boxing"],
}
SPEC = """
experiment = "atari100k"
steps = 60
eval_episodes = 2
results = "results/toy"

[arms.small]
preset = "curl"
config = {{ {fields} }}

[[blocks]]
arms = ["small"]
games = ["Pong", "Alien"]
seeds = [1]
"""


def command(*flags: str, directory) -> programs.Ended:
    return programs.call("experiments.sweep", *flags, directory=directory)


def states(*flags, directory):
    """Run -> its fleet, from --dry_run."""
    result = command(*flags, "--dry_run", directory=directory)
    assert result.returncode == 0, result.stderr
    lines = [line.removeprefix("to do").split() for line in result.stdout.splitlines()]
    return {line[0]: line[-1] for line in lines}


@pytest.fixture
def spec(tmp_path):
    fields = ", ".join(f"{name} = {json.dumps(value)}" for name, value in FIELDS.items())
    (tmp_path / "toy.toml").write_text(SPEC.format(fields=fields))
    return tmp_path / "toy.toml"


def test_a_real_fleet_from_start_to_results(spec, tmp_path):
    # At the lowest priority it would wait for the tests that run beside this one.
    flags = ("--spec=toy.toml", "--max_runs_per_fleet=2", "--niceness=0")
    listed = states(*flags, directory=tmp_path)
    assert list(listed) == ["small-Pong-1", "small-Alien-1"] and len(set(listed.values())) == 1
    assert os.listdir(tmp_path) == ["toy.toml"]

    result = command(*flags, directory=tmp_path)
    directory = tmp_path / "runs" / "sweep" / "toy"
    (log,) = directory.glob("*.log")
    assert result.returncode == 0, result.stdout + result.stderr + log.read_text()
    assert result.stdout.splitlines()[0].startswith("2 runs to do in 1 fleets, process group ")
    assert result.stdout.splitlines()[-1] == "2 finished, 0 failed, 0 left"
    for game in ("Pong", "Alien"):
        paths = RunPaths(tmp_path / "results" / "toy" / "small", "curl", game, 1)
        assert len(json.loads(paths.scores.read_text())["returns"]) == 2
        described = json.loads(paths.manifest.read_text())
        run = described["run"]
        assert described["launch"]["arm"] == "small"
        assert run["algorithm"] == 2 and run["steps"] == 60
        values = manifest.config_values(run["config"]) | {"curl.reduced_games": ["Pong", "Boxing"]}
        assert {name: values[name] for name in FIELDS} == FIELDS
        assert len(list(paths.directory.iterdir())) == 6 and paths.parameters.exists()
    assert {path.name for path in directory.iterdir()} == {"lock", log.name}

    again = command(*flags, directory=tmp_path)
    assert again.stdout.splitlines()[0].startswith("0 runs to do in 0 fleets")
    assert (again.returncode, again.stdout.splitlines()[-1]) == (0, "2 finished, 0 failed, 0 left")
    listed = command(*flags, "--dry_run", directory=tmp_path).stdout.splitlines()
    assert [line.split()[0] for line in listed] == ["finished", "finished"]

    spec.write_text(spec.read_text().replace("steps = 60", "steps = 70"))
    other = command(*flags, directory=tmp_path)
    assert_refused(other)
    assert "results/toy/small/curl/Pong/seed_1 holds another run" in other.stderr


def test_a_spec_fixes_its_fleets(spec, tmp_path):
    spec.write_text("runs_per_fleet = 2\n" + spec.read_text())
    listed = states("--spec=toy.toml", directory=tmp_path)
    assert list(listed) == ["small-Pong-1", "small-Alien-1"] and len(set(listed.values())) == 1
    refused = command("--spec=toy.toml", "--max_runs_per_fleet=1", directory=tmp_path)
    assert_refused(refused)
    assert "the spec has runs_per_fleet=2" in refused.stderr
    spec.write_text("games_per_fleet = 0\n" + spec.read_text())
    refused = command("--spec=toy.toml", directory=tmp_path)
    assert_refused(refused)
    assert "games_per_fleet: must be at least 1, got 0" in refused.stderr


def test_a_sweep_that_fails_ends_with_1_and_names_the_log(tmp_path, monkeypatch):
    start = local.start_process

    def fail(command, *where, **how):
        return start(["false"], *where, **how)

    monkeypatch.setattr(local, "start_process", fail)
    flags = ("--presets=rcrl", "--games=Pong", "--seeds=0", "--results=results/toy", "--niceness=0")
    ended = command(*flags, directory=tmp_path)
    assert ended.returncode == 1 and not ended.stderr
    _, *_, failed, last = ended.stdout.splitlines()
    assert failed == "failed rcrl-Pong-0: exit code 1; see runs/sweep/toy/rcrl-Pong-0.log"
    assert last == "0 finished, 1 failed, 0 left"


def test_runs_share_fleets_where_they_can(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.metadata, "distributions", list)  # an accelerator needs one
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **of: [])
    single = states(*RUNS, directory=tmp_path)
    assert list(single) == [
        f"{preset}-{game}-{seed}"
        for seed in (0, 1) for game in ("Pong", "Alien") for preset in ("erainbow", "rcrl")
    ]  # fmt: skip
    assert all(fleet == run for run, fleet in single.items())  # a core each
    common = ("--games=all", "--seeds=7:8", "--results=r", "--max_runs_per_fleet=130")
    games = states("--presets=rcrl,curl", *common, directory=tmp_path)
    assert (len(games), len(set(games.values()))) == (52, 2)
    tasks = states("--experiment=dmc", "--presets=sac_aug", *common, directory=tmp_path)
    # Action repeats 2, 8, 4 and cheetah's learning rate.
    assert (len(tasks), len(set(tasks.values()))) == (6, 4)
    assert tasks["sac_aug-finger_spin-7"] == tasks["sac_aug-walker_walk-7"]
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("says, fleets", [("cpu\n", 8), ("tpu\n", 2), ("", 2)])
def test_fleets_are_planned_for_an_accelerator_unless_jax_finds_only_cpus(
    tmp_path, monkeypatch, says, fleets
):
    """JAX says nothing where it fails, as on a TPU that another process holds."""
    found = importlib.metadata.entry_points

    def entry_points(**of):
        return ["a plugin"] if of == {"group": "jax_plugins"} else found(**of)

    def answer(command, **how):
        return subprocess.CompletedProcess(command, not says, says, "")

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    monkeypatch.setattr(subprocess, "run", answer)
    planned = states(*RUNS, directory=tmp_path)
    assert len(planned) == 8 and len(set(planned.values())) == fleets


@pytest.mark.parametrize(
    "flags, says",
    [
        ((), "--presets or --spec is missing"),
        (("--spec=none.toml",), "none.toml"),
        (("--spec=toy.toml", *RUNS[:1]), "--spec beside --presets"),
        (("--spec=toy.toml",), "toy.toml: block 1: games: unknown 'Pongg': did you mean Pong?"),
        ((*RUNS, "--ray=127.0.0.1:1"), "--ray: no Ray cluster at"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(spec, tmp_path, flags, says):
    spec.write_text(spec.read_text().replace('"Pong", "Alien"', '"Pongg"'))
    result = command(*flags, directory=tmp_path)
    assert_refused(result)
    assert says in result.stderr
    assert {path.name for path in tmp_path.iterdir()} <= {"toy.toml"}


@pytest.mark.parametrize("results", ["taken/below", "/proc/results"])
def test_results_that_cannot_be_made_are_refused_before_training(tmp_path, results):
    (tmp_path / "taken").touch()
    for asked in ((), ("--dry_run",)):
        result = command(*RUNS, f"--results={results}", *asked, directory=tmp_path)
        assert_refused(result)
        assert results.strip("/").split("/")[0] in result.stderr
        assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_a_locked_sweep_is_refused_by_the_name_of_its_results(tmp_path):
    directory = tmp_path / "outer" / "inner"
    directory.mkdir(parents=True)
    with files.locked(directory / "runs" / "sweep" / "outer", "sweep"):
        result = command(*RUNS, "--results=..", directory=directory)
    assert_refused(result)
    assert f"runs/sweep/outer is in use by another sweep, process {os.getpid()}" in result.stderr


def test_presets_have_their_own_number_of_steps(spec, tmp_path):
    games = ("--games=Pong", f"--results={tmp_path}/results", "--dry_run")
    result = command(*games, "--presets=simple_small", "--seeds=0", directory=tmp_path)
    assert result.returncode == 0, result.stderr
    result = command(*games, "--presets=simple_small,rcrl", directory=tmp_path)
    assert_refused(result)
    assert "--steps is missing: these arms differ" in result.stderr


def test_the_campaign_of_the_claim_holds_all_games_in_pairs():
    spec = read_spec(ROOT / "campaigns" / "claim.toml")
    assert (spec.steps, spec.eval_episodes) == (100_000, 100)
    assert spec.results == pathlib.Path("results/claim")
    assert len(spec.units) == 2 * (4 * 9 + 22 * 5)
    assert {unit.game for unit in spec.units} == set(EXPERIMENTS["atari100k"].environment.games)
    for baseline, ours in zip(spec.units[::2], spec.units[1::2], strict=True):
        assert (baseline.arm.name, ours.arm.name) == ("erainbow_sa", "rcrl")
        assert baseline[1:] == ours[1:]
    assert all(not unit.arm.overrides for unit in spec.units)


def test_every_list_of_runs_can_be_read():
    lists = [*(ROOT / "campaigns").glob("*.toml")]
    assert lists and all(read_spec(path).units for path in lists)


def test_a_stopped_sweep_ends_with_128_and_its_signal(tmp_path, monkeypatch):
    summary = driver.Summary(finished=1, failed=1, left=6, stopped_by=signal.SIGTERM)
    monkeypatch.setattr(driver.Sweep, "run", lambda sweep: summary)
    ended = command(*RUNS, directory=tmp_path)
    assert ended.returncode == 128 + signal.SIGTERM
    line = "stopped by SIGTERM: 1 finished, 1 failed, 6 left; the same command goes on"
    assert ended.stderr.splitlines()[-1] == line
