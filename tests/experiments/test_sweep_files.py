"""Specs, fleets and results of sweeps: mistakes are refused, finished runs are kept completely."""

import itertools
import os
import shutil

import pytest

from experiments.sweeps import collection, fleets, reading
from experiments.sweeps.spec import SweepError
from rcrl_jax import files
from rcrl_jax.runs import manifest
from tests.experiments import toy_sweep
from tests.experiments.toy_sweep import alone

FILES = {"scores.json", "evaluations.jsonl", "metrics.jsonl", "manifest.json", "curve.png"}


@pytest.fixture
def read(tmp_path):
    """Reads the toy spec with one piece of its text replaced by another."""

    def read(old="", new="", *, more=""):
        path = tmp_path / "spec.toml"
        text = toy_sweep.TEXT.format(results="results/toy", seeds="0:2", steps=2000)
        assert old in text
        path.write_text(text.replace(old, new, 1) + more)
        return reading.read_spec(path)

    return read


def test_units_are_ordered_by_block_seed_game_and_arm(read):
    spec = read(more='\n[[blocks]]\npresets = ["curl"]\ngames = ["Hero"]\nseeds = [7, 3]\n')
    arms = ("erainbow_sa", "rcrl", "small")
    assert [unit.name for unit in spec.units] == [
        *(f"{arm}-{game}-{seed}" for seed in (0, 1) for game in ("Pong", "Alien") for arm in arms),
        "curl-Hero-7",
        "curl-Hero-3",
    ]


def test_command_and_paths_of_a_preset_and_of_an_arm(read, tmp_path):
    spec = read("hidden_size = 16", 'hidden_size = 16, auxiliary = ["curl"], learning_rate = 1')
    preset, arm = spec.units[1], spec.units[2]
    common = ["--preset=rcrl", "--games=Pong", "--seeds=0", "--steps=2000", "--eval_episodes=3"]
    command = spec.make_command(alone(preset), tmp_path)
    assert command[1:] == ["-m", "experiments.atari100k", *common, f"--workdir={tmp_path}"]
    assert spec.make_command(alone(arm), tmp_path)[len(command) :] == [
        "--config.hidden_size=16", "--config.auxiliary=('curl',)", "--config.learning_rate=1.0"
    ]  # fmt: skip
    assert spec.make_config(arm).auxiliary == ("curl",)
    assert str(spec.result_paths(preset).directory) == "results/toy/rcrl/Pong/seed_0"
    assert str(spec.result_paths(arm).directory) == "results/toy/small/rcrl/Pong/seed_0"


def test_tasks_keep_their_learning_rate_and_count_agent_steps():
    block = {"presets": ["rcrl_sac"], "games": ["cheetah_run", "walker_walk"], "seeds": [0]}
    table = {"experiment": "dmc", "steps": 8000, "eval_episodes": 1, "results": "r"}
    spec = reading.make_spec({**table, "blocks": [block]})
    assert [spec.agent_steps(unit.game) for unit in spec.units] == [2000, 4000]
    assert [spec.make_config(unit).learning_rate for unit in spec.units] == [2e-4, 1e-3]
    assert "--tasks=cheetah_run" in spec.make_command(alone(spec.units[0]), "w")
    with pytest.raises(ValueError, match="rcrl_sac on cheetah_run: .* end before the first update"):
        reading.make_spec({**table, "steps": 4000, "blocks": [block]})


@pytest.mark.parametrize(
    "old, new, says",
    [
        ("steps = 2000", "steps = ", "Invalid value"),
        ("steps = 2000", "stepps = 2000", "unknown 'stepps': did you mean steps?"),
        ("steps = 2000", "steps = 1e5", "steps: expected a whole number of at least 1"),
        ("steps = 2000", "steps = 3", "3 agent steps end before the first update"),
        ("eval_episodes = 3", "eval_episodes = 0", "eval_episodes: expected a whole number"),
        ('"atari100k"', '"atari"', "experiment: unknown 'atari': did you mean atari100k?"),
        ('"results/toy"', "3", "results: expected a directory, got 3"),
        ("[[blocks]]", "[blocks]", "blocks: expected [[blocks]] tables"),
        ("[arms.small]", '[arms."a/b"]', "arms.a/b: not a name"),
        ('preset = "rcrl"', 'preset = "rcl"', "arms.small: preset: unknown 'rcl': did you mean"),
        ("{ hidden_size = 16 }", "3", "arms.small: config: expected changed fields, got 3"),
        ("hidden_size = 16", "hiden_size = 16", "did you mean hidden_size?"),
        ("hidden_size = 16", "hidden_size = 1.5", "hidden_size: expected a whole number, got 1.5"),
        ("hidden_size = 16", "hidden_size = 0", "hidden_size: must be at least 1; got 0"),
        ("hidden_size = 16", "clip_rewards = 1", "clip_rewards: expected true or false, got 1"),
        ("hidden_size = 16", 'auxiliary = "curl"', "auxiliary: expected a list"),
        ("hidden_size = 16", "auxiliary = [1]", "auxiliary: must be names"),
        ('"rcrl"]', '"rcl"]', "block 1: presets: unknown 'rcl'"),
        ('["small"]', '"small"', "block 1: arms: expected a list of names"),
        ('presets = ["erainbow_sa", "rcrl"]\narms = ["small"]', "", "presets or arms are missing"),
        ('["Pong", "Alien"]', '["Pong", "Alein"]', "block 1: games: unknown 'Alein'"),
        ('games = ["Pong", "Alien"]', "", "block 1: games is missing"),
        ('"0:2"', "[1, 1]", "block 1: seeds: expected different seeds"),
        ('["Pong", "Alien"]', '["Pong", "Pong"]', "the sweep holds erainbow_sa-Pong-0 twice"),
        ("hidden_size = 16", "hidden_size = 256", "small-Pong-0 and rcrl-Pong-0, one run"),
        ('seeds = "0:2"', 'seeds = "0:2"\nseed = 3', "block 1: keys: unknown 'seed'"),
    ],
)
def test_a_wrong_spec_is_refused_in_one_line(read, tmp_path, old, new, says):
    with pytest.raises(SweepError) as raised:
        read(old, new)
    assert says in str(raised.value) and "\n" not in str(raised.value)
    assert str(raised.value).startswith(f"{tmp_path}/spec.toml: ")


@pytest.fixture
def spec(tmp_path):
    return toy_sweep.make_spec(tmp_path)


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "runs"


def write_work(spec, unit, directory, *, episodes=3, **changes):
    """A finished run in the unit's work directory."""
    fleets.begin(directory, alone(unit))
    paths = collection.work_paths(directory, alone(unit), unit)
    paths.directory.mkdir(parents=True)
    files.write_json_atomically(paths.manifest, {"run": toy_sweep.describe(spec, unit, **changes)})
    files.write_json_atomically(paths.scores, {"returns": [1.0] * episodes, "mean": 1.0})
    for path in (paths.evaluations, paths.metrics, paths.curve):
        path.write_text(path.name)
    paths.checkpoints.mkdir()
    (paths.checkpoints / "100").write_text("large")
    paths.tensorboard.mkdir()
    return paths


def contents(path):
    """The files of a directory; None if there is none."""
    if not path.exists():
        return None
    return {file.name: file.read_bytes() for file in path.iterdir() if file.is_file()}


def test_collecting_keeps_the_results_and_deletes_the_rest(spec, directory):
    for unit, parameters in ((spec.units[0], set()), (spec.units[2], {"parameters.npz"})):
        work = write_work(spec, unit, directory)
        for name in parameters:
            (work.directory / name).write_bytes(b"halves")
        assert not collection.is_finished(spec, unit)
        wanted = {name: (work.directory / name).read_bytes() for name in FILES | parameters}
        for _ in range(2):
            collection.collect(spec, alone(unit), directory)
            assert contents(spec.result_paths(unit).directory) == wanted
            assert len(list(spec.result_paths(unit).directory.iterdir())) == len(wanted)
            assert collection.is_finished(spec, unit)
        assert not list(directory.iterdir())


class Killed(BaseException):
    """Simulates SIGKILL."""


def kill_at(monkeypatch, moment):
    """Raises Killed at one moment; there is one before and one after each operation on files."""
    moments = itertools.count()

    def tick():
        if next(moments) == moment:
            raise Killed

    def wrap(function):
        def call(*arguments, **options):
            tick()
            result = function(*arguments, **options)
            tick()
            return result

        return call

    for module, name in (
        (shutil, "copyfile"), (os, "fsync"), (os, "rename"), (os, "unlink"), (os, "rmdir")
    ):  # fmt: skip
        monkeypatch.setattr(module, name, wrap(getattr(module, name)))


def test_collecting_survives_a_kill_before_and_after_every_operation(tmp_path, monkeypatch):
    for moment in itertools.count():
        (tmp_path / str(moment)).mkdir()
        spec = toy_sweep.make_spec(tmp_path / str(moment))
        directory = tmp_path / str(moment) / "runs"
        unit = spec.units[0]
        work = write_work(spec, unit, directory)
        wanted = {name: (work.directory / name).read_bytes() for name in FILES}
        target = spec.result_paths(unit).directory
        with monkeypatch.context() as patch:
            kill_at(patch, moment)
            try:
                collection.collect(spec, alone(unit), directory)
                killed = False
            except Killed:
                killed = True
        if collection.is_finished(spec, unit):
            assert contents(target) == wanted
        else:  # the work directory is complete and can be collected
            assert {name: (work.directory / name).read_bytes() for name in FILES} == wanted
            assert alone(unit) in fleets.plan(spec, directory, 130)
        fleets.tidy(spec, directory)
        collection.collect(spec, alone(unit), directory)
        assert contents(target) == wanted and not list(directory.iterdir())
        assert [path.name for path in target.parent.iterdir()] == [target.name]
        if not killed:
            break
    assert moment > 30


@pytest.mark.parametrize(
    "changes, says",
    [
        ({"steps": 6}, "holds another run than erainbow_sa-Pong-0: steps 6 -> 5"),
        ({"seed": 1}, "seed 1 -> 0"),
        ({"config": {}}, "config.encoder absent -> data_efficient"),
        ({"episodes": 2}, "2 final episodes, the sweep asks for 3"),
    ],
)
def test_another_run_is_neither_collected_nor_taken_for_finished(spec, directory, changes, says):
    unit = spec.units[0]
    work = write_work(spec, unit, directory, **changes)
    with pytest.raises(SweepError, match=says):
        collection.collect(spec, alone(unit), directory)
    target = spec.result_paths(unit).directory
    assert not target.exists()
    shutil.copytree(work.directory, target)
    before = contents(target)
    for check in (
        lambda: collection.is_finished(spec, unit),
        lambda: fleets.plan(spec, directory, 1),
        lambda: collection.collect(spec, alone(unit), directory),
    ):
        with pytest.raises(SweepError, match=says) as raised:
            check()
        assert "\n" not in str(raised.value) and "seed_0" in str(raised.value)
    assert contents(target) == before and work.workdir.exists()


def test_files_of_no_run_are_refused(spec, directory):
    work = write_work(spec, spec.units[0], directory)
    work.scores.write_text("{")
    with pytest.raises(SweepError, match="scores.json does not hold the scores"):
        collection.collect(spec, alone(spec.units[0]), directory)
    spec.results.mkdir()
    (spec.results / "manifest.json").write_text("[]")
    with pytest.raises(SweepError, match="is not a manifest"):
        fleets.plan(spec, directory, 1)


@pytest.mark.parametrize("number", [manifest.ALGORITHM + 1, 1, None])
@pytest.mark.parametrize("where", ["results", "elsewhere below the results", "work directory"])
def test_another_algorithm_number_is_refused(spec, directory, number, where):
    unit = spec.units[0]
    path = {
        "results": spec.result_paths(unit).manifest,
        "elsewhere below the results": spec.results / "a" / "b" / "manifest.json",
        "work directory": collection.work_paths(directory, alone(unit), unit).manifest,
    }[where]
    fleets.begin(directory, alone(unit))
    path.parent.mkdir(parents=True)
    run = toy_sweep.describe(spec, unit, algorithm=number)
    if number is None:
        del run["algorithm"]
    files.write_json_atomically(path, {"run": run})
    with pytest.raises(SweepError) as raised:
        fleets.plan(spec, directory, 1)
    assert f"algorithm {number or 'absent'} -> " in str(raised.value) or (
        f"has algorithm number {number or 'none'}" in str(raised.value)
    )
    assert str(path.parent) in str(raised.value) and "\n" not in str(raised.value)
