"""Fleets and results: every run is in one fleet, finished runs are kept completely."""

import dataclasses
import itertools
import json
import os
import pathlib
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rcrl_jax import files
from rcrl_jax.programs.sweeps import work
from rcrl_jax.programs.sweeps.spec import Arm, FleetPlan, SweepError, make_spec
from tests.programs import collisions, toy_sweep
from tests.programs.toy_sweep import COLLECTED, alone, begin, write_work

RCRL = Arm("rcrl", "rcrl")
BOTH = ("Pong", "Alien")


def make(directory, *, games=BOTH, seeds="0:3", steps=2000):
    table = {
        "experiment": "atari100k",
        "steps": steps,
        "eval_episodes": 3,
        "results": str(directory / "results"),
        "blocks": [{"presets": ["rcrl"], "games": list(games), "seeds": seeds}],
    }
    return make_spec(table)


def test_a_grid_is_split_by_seeds_if_all_games_fit_else_by_games(tmp_path):
    spec = make(tmp_path, seeds="0:5")
    (fleet,) = work.group(spec, spec.units, 130)
    assert fleet == FleetPlan(RCRL, BOTH, (0, 1, 2, 3, 4))
    assert spec.make_command(fleet, tmp_path)[4:6] == ["--games=Pong,Alien", "--seeds=0,1,2,3,4"]
    # 4 runs are 2 games x 2 seeds; three parts of nearly equal size.
    assert work.group(spec, spec.units, 4) == [
        FleetPlan(RCRL, BOTH, (0,)), FleetPlan(RCRL, BOTH, (1, 2)), FleetPlan(RCRL, BOTH, (3, 4))
    ]  # fmt: skip
    assert work.plan(spec, tmp_path / "runs", 1) == [alone(unit) for unit in spec.units]


def test_a_spec_limits_the_games_of_a_fleet(tmp_path):
    spec = dataclasses.replace(make(tmp_path, seeds="0:5"), games_per_fleet=1)
    assert work.group(spec, spec.units, 3) == [
        FleetPlan(RCRL, (game,), seeds) for seeds in ((0, 1), (2, 3, 4)) for game in BOTH
    ]


SPEC = make_spec(
    {
        "experiment": "dmc",
        "steps": 8000,
        "eval_episodes": 1,
        "results": "r",
        "arms": {"wide": {"preset": "rcrl_sac", "config": {"hidden_size": 16}}},
        "blocks": [
            {
                "presets": ["rcrl_sac", "sac_aug"],
                "arms": ["wide"],
                "games": ["cheetah_run", "walker_walk"],
                "seeds": "0:4",
            }
        ],
    }
)


@given(st.sets(st.sampled_from(SPEC.units)), st.integers(1, 9))
def test_fleets_hold_every_run_once_and_only_runs_that_can_share_a_program(units, max_runs):
    ordered = [unit for unit in SPEC.units if unit in units]
    made = work.group(SPEC, ordered, max_runs)
    assert sorted(u.name for fleet in made for u in fleet.units) == sorted(u.name for u in units)
    for fleet in made:
        assert 1 <= len(fleet.units) <= max_runs
        # Tasks differ in action repeat and learning rate.
        assert len({SPEC.make_config(unit) for unit in fleet.units}) == 1
        assert len({SPEC.agent_steps(unit) for unit in fleet.units}) == 1
    assert len({fleet.name for fleet in made}) == len(made)


@pytest.mark.parametrize("manifests", [1, 4])
def test_a_fleet_that_was_begun_keeps_its_runs(tmp_path, manifests):
    directory = tmp_path / "runs"
    short = make(tmp_path, seeds="0:2")
    (begun,) = work.plan(short, directory, 130)
    begin(short, begun, directory, manifests=manifests)

    assert work.plan(short, directory, 1) == [begun]
    spec = make(tmp_path, seeds="0:4")
    added = FleetPlan(begun.arm, begun.games, (2, 3))
    assert work.plan(spec, directory, 130) == [begun, added]
    # A sweep of fewer runs goes on with all that the fleet has; one of none leaves it alone.
    assert work.plan(make(tmp_path, seeds=[1]), directory, 1) == [begun]
    (other,) = work.plan(make(tmp_path, seeds=[7], games=["Pong"]), directory, 1)
    assert other.name == "rcrl-Pong-7"
    work.tidy(spec, directory)
    assert work.plan(short, directory, 1) == [begun]
    with pytest.raises(SweepError, match="holds another run than rcrl-Pong-0: steps 2000 -> 5000"):
        work.plan(make(tmp_path, steps=5000), directory, 130)


@pytest.mark.parametrize("changes", [{}, {"steps": 9999}])
def test_a_work_directory_of_another_sweep_is_not_deleted(tmp_path, changes):
    """It has the name of a fleet of ours, whose runs are finished: also if it has our settings."""
    spec, directory = make(tmp_path, seeds=[0], games=["Pong"]), tmp_path / "runs"
    (fleet,) = work.plan(spec, directory, 1)
    (unit,) = fleet.units
    write_work(spec, unit, directory)
    work.collect(spec, fleet, directory)
    begin(spec, fleet, directory, **changes)
    work.tidy(spec, directory)
    assert (directory / fleet.name).exists()
    if changes:
        work.paths_of(directory, fleet, unit).scores.write_text("{}")
        with pytest.raises(SweepError, match="holds another run than rcrl-Pong-0: steps 9999"):
            work.tidy(spec, directory)
        assert (directory / fleet.name).exists()


def test_a_run_that_diverged_for_good_is_not_trained_again(tmp_path):
    """`docs/preregistration.md` says what stands in place of its scores."""
    spec, directory = make(tmp_path, seeds=[0]), tmp_path / "runs"
    pong, _ = units = spec.units
    paths = spec.result_paths(pong)
    paths.directory.mkdir(parents=True)
    toy_sweep.write_manifest(paths.manifest, toy_sweep.describe(spec, pong), {})
    with pytest.raises(SweepError, match="does not hold the scores of a finished run"):
        work.plan(spec, directory, 1)
    files.write_json_atomically(paths.diverged, {"attempts": 1})
    with pytest.raises(SweepError, match="attempts is 1, expected 2"):
        work.plan(spec, directory, 1)
    files.write_json_atomically(paths.diverged, {"attempts": 2})
    assert [fleet.units for fleet in work.plan(spec, directory, 1)] == [units[1:]]
    toy_sweep.write_manifest(paths.manifest, toy_sweep.describe(spec, pong, steps=9999), {})
    with pytest.raises(SweepError, match="holds another run than rcrl-Pong-0: steps 9999"):
        work.plan(spec, directory, 1)


def test_a_fleet_that_was_begun_with_a_field_that_is_gone_goes_on(tmp_path):
    spec, directory = make(tmp_path, seeds=[0], games=["Pong"]), tmp_path / "runs"
    (fleet,) = work.plan(spec, directory, 1)
    begin(spec, fleet, directory)
    (path,) = directory.rglob("manifest.json")
    described = json.loads(path.read_text())
    described["run"]["config"]["return_contrast"]["discriminator_norm"] = "none"
    files.write_json_atomically(path, described)
    assert work.plan(spec, directory, 1) == [fleet]


@pytest.mark.parametrize("launch", [{}, {"runs": []}, {"runs": [[3]]}, {"runs": 3}, 3])
def test_a_manifest_that_lists_no_runs_is_refused(tmp_path, launch):
    spec = make(tmp_path)
    path = tmp_path / "runs" / "any" / "rcrl" / "Pong" / "seed_0" / "manifest.json"
    path.parent.mkdir(parents=True)
    toy_sweep.write_manifest(path, {"config": {}}, launch)
    with pytest.raises(SweepError, match="does not list the runs of a fleet; move") as raised:
        work.plan(spec, tmp_path / "runs", 130)
    assert str(path) in str(raised.value) and "\n" not in str(raised.value)


def test_a_fleet_that_another_sweep_collects_meanwhile_is_passed_over(tmp_path, monkeypatch):
    spec, runs = make(tmp_path), tmp_path / "runs"
    path = runs / "any" / "rcrl" / "Pong" / "seed_0" / "manifest.json"
    path.parent.mkdir(parents=True)
    path.touch()

    def vanish(path):
        shutil.rmtree(runs / "any")
        raise FileNotFoundError(path)

    monkeypatch.setattr(work.manifest, "read", vanish)
    assert len(work.plan(spec, runs, 130)) == 1


@pytest.fixture
def spec(tmp_path):
    return toy_sweep.make_spec(tmp_path)


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "runs"


def contents(path):
    """The files of a directory."""
    return {file.name: file.read_bytes() for file in path.iterdir() if file.is_file()}


def test_collecting_keeps_the_results_and_deletes_the_rest(spec, directory):
    unit = spec.units[0]
    paths = write_work(spec, unit, directory)
    assert not work.is_finished(spec, unit)
    wanted = {name: (paths.directory / name).read_bytes() for name in COLLECTED}
    for _ in range(2):
        work.collect(spec, alone(unit), directory)
        assert contents(spec.result_paths(unit).directory) == wanted
        assert len(list(spec.result_paths(unit).directory.iterdir())) == len(wanted)
        assert work.is_finished(spec, unit)
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
        (files, "read_bytes"), (os, "fsync"), (os, "rename"), (os, "unlink"), (os, "rmdir")
    ):  # fmt: skip
        monkeypatch.setattr(module, name, wrap(getattr(module, name)))


def test_collecting_survives_a_kill_before_and_after_every_operation(tmp_path, monkeypatch):
    for moment in itertools.count():
        (tmp_path / str(moment)).mkdir()
        spec = toy_sweep.make_spec(tmp_path / str(moment))
        directory = tmp_path / str(moment) / "runs"
        unit = spec.units[0]
        paths = write_work(spec, unit, directory)
        wanted = {name: (paths.directory / name).read_bytes() for name in COLLECTED}
        target = spec.result_paths(unit).directory
        with monkeypatch.context() as patch:
            kill_at(patch, moment)
            try:
                work.collect(spec, alone(unit), directory)
                killed = False
            except Killed:
                killed = True
        if work.is_finished(spec, unit):
            assert contents(target) == wanted
        else:  # the work directory is complete and can be collected
            assert {name: (paths.directory / name).read_bytes() for name in COLLECTED} == wanted
            assert alone(unit) in work.plan(spec, directory, 130)
        work.tidy(spec, directory)
        work.collect(spec, alone(unit), directory)
        assert contents(target) == wanted and not list(directory.iterdir())
        assert [path.name for path in target.parent.iterdir()] == [target.name]
        if not killed:
            break
    assert moment > 30


def test_two_sweeps_that_collect_a_run_at_the_same_moment_lose_nothing(tmp_path):
    """`python -m tests.programs.collisions 200` forces more."""
    assert collisions.collide(tmp_path, 10) == []


def test_collecting_waits_for_another_sweep_and_deletes_nothing(spec, directory, monkeypatch):
    unit = spec.units[0]
    paths = write_work(spec, unit, directory)
    monkeypatch.setattr(work, "_LOCK_WAIT_S", 0.1)
    with files.locked(spec.results, "sweep", ".lock"):
        with pytest.raises(files.InUse, match=r"results is in use by another sweep, process \d+"):
            work.collect(spec, alone(unit), directory)
    assert paths.scores.exists() and not spec.result_paths(unit).directory.exists()
    work.collect(spec, alone(unit), directory)
    assert work.is_finished(spec, unit) and not paths.scores.exists()


def test_a_work_directory_that_cannot_be_deleted_is_no_failure(spec, directory, monkeypatch):
    """All is in the results; on a network file system an open file keeps its directory."""
    unit = spec.units[0]
    write_work(spec, unit, directory)
    delete = shutil.rmtree

    def busy(path, *arguments, **options):
        if ".deleted." in str(path) and not options.get("ignore_errors"):
            raise OSError("not empty")
        delete(path, *arguments, **options)

    monkeypatch.setattr(shutil, "rmtree", busy)
    work.collect(spec, alone(unit), directory)
    assert work.is_finished(spec, unit)
    work.tidy(spec, directory)


@pytest.mark.parametrize("what", ["a file that nothing checks", "the whole copy"])
def test_nothing_is_deleted_before_its_copy_was_read_back(spec, directory, monkeypatch, what):
    """A disk, or another program, may change or delete what was written."""
    unit = spec.units[0]
    paths = write_work(spec, unit, directory)
    wanted = contents(paths.directory)
    target, rename = spec.result_paths(unit).directory, os.rename

    def spoil(old, new):
        rename(old, new)
        if what == "the whole copy":
            shutil.rmtree(new)
        else:
            (new / "parameters.npz").write_bytes(b"zeros")

    monkeypatch.setattr(os, "rename", spoil)
    with pytest.raises((SweepError, OSError), match=str(target)):
        work.collect(spec, alone(unit), directory)
    assert contents(paths.directory) == wanted


@pytest.mark.parametrize(
    "changes, says",
    [
        ({"steps": 6}, "holds another run than erainbow_sa-Pong-0: steps 6 -> 5"),
        ({"seed": 1}, "seed 1 -> 0"),
        ({"config": {}}, r"config.auxiliary absent -> \[\]"),
        ({"episodes": 2}, "2 final episodes, the sweep asks for 3"),
    ],
)
def test_another_run_is_neither_collected_nor_taken_for_finished(spec, directory, changes, says):
    unit = spec.units[0]
    paths = write_work(spec, unit, directory, **changes)
    with pytest.raises(SweepError, match=says):
        work.collect(spec, alone(unit), directory)
    target = spec.result_paths(unit).directory
    assert not target.exists()
    shutil.copytree(paths.directory, target)
    before = contents(target)
    for check in (
        lambda: work.is_finished(spec, unit),
        lambda: work.plan(spec, directory, 1),
        lambda: work.collect(spec, alone(unit), directory),
    ):
        with pytest.raises(SweepError, match=says) as raised:
            check()
        assert "\n" not in str(raised.value) and "seed_0" in str(raised.value)
    assert contents(target) == before and paths.workdir.exists()


@pytest.mark.parametrize("name", ["metrics.jsonl", "evaluations.jsonl"])
def test_a_run_without_its_records_is_neither_collected_nor_taken_for_finished(
    spec, directory, name
):
    unit = spec.units[0]
    paths = write_work(spec, unit, directory)
    target = shutil.copytree(paths.directory, spec.result_paths(unit).directory)
    (target / name).unlink()
    for check in (work.is_finished, lambda *_: work.plan(spec, directory, 1)):
        with pytest.raises(SweepError, match=rf"{name}, to which it belongs, is missing; move it"):
            check(spec, unit)
    shutil.rmtree(target)
    (paths.directory / name).unlink()
    with pytest.raises(SweepError, match=rf"{name}, to which it belongs, is missing"):
        work.collect(spec, alone(unit), directory)
    assert not target.exists() and paths.scores.exists()


def test_files_of_no_run_are_refused(spec, directory):
    paths = write_work(spec, spec.units[0], directory)
    whole = paths.scores.read_text()
    paths.scores.write_text("{")
    with pytest.raises(SweepError, match="scores.json is damaged"):
        work.collect(spec, alone(spec.units[0]), directory)
    paths.scores.write_text(whole)
    paths.curve.unlink()
    paths.curve.symlink_to("/dev/zero")
    with pytest.raises(files.Damaged, match="curve.png is damaged: it is not a regular file"):
        work.collect(spec, alone(spec.units[0]), directory)
    (spec.results / "manifest.json").write_text("[]")
    with pytest.raises(SweepError, match="is not a manifest"):
        work.plan(spec, directory, 1)


@pytest.mark.parametrize("number", [3, 1, None])
@pytest.mark.parametrize("where", ["results", "elsewhere below the results", "work directory"])
def test_another_algorithm_number_is_refused(spec, directory, number, where):
    unit = spec.units[0]
    path = {
        "results": spec.result_paths(unit).manifest,
        "elsewhere below the results": spec.results / "a" / "b" / "manifest.json",
        "work directory": work.paths_of(directory, alone(unit), unit).manifest,
    }[where]
    path.parent.mkdir(parents=True)
    run = toy_sweep.describe(spec, unit, algorithm=number)
    if number is None:
        del run["algorithm"]
    launch = {"runs": [[unit.game, unit.seed]]}
    toy_sweep.write_manifest(path, run, launch)
    with pytest.raises(SweepError) as raised:
        work.plan(spec, directory, 1)
    assert f"algorithm {number or 'absent'} -> " in str(raised.value) or (
        f"has algorithm number {number or 'none'}" in str(raised.value)
    )
    assert str(path.parent) in str(raised.value) and "\n" not in str(raised.value)


def test_results_are_on_the_disk_before_the_work_directory_goes(spec, directory, monkeypatch):
    unit, done, (fsync, rename) = spec.units[0], [], (os.fsync, os.rename)
    write_work(spec, unit, directory)

    def sync(descriptor):
        done.append(pathlib.Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fsync(descriptor)

    def move(source, target):
        done.append(f"to {pathlib.Path(target).name}")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "rename", move)
    work.collect(spec, alone(unit), directory)
    assert set(done[:6]) == COLLECTED
    above = ["Pong", unit.arm.name, "results"]  # which may be new, too
    assert done[6:] == [".partial.seed_0", "to seed_0", *above, f"to .deleted.{alone(unit).name}"]
