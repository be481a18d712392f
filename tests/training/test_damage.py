"""Damaged and lost files: a run goes on exactly, or is refused in one line that names the file."""

import dataclasses
import json
import os
import pathlib
import random
import re
import shutil
import signal

import jax
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rcrl_jax import files
from rcrl_jax.programs import launch
from rcrl_jax.runs import checkpoints, manifest, records, workdir
from rcrl_jax.runs.paths import RunPaths
from rcrl_jax.training import curves, experiment, prediction
from rcrl_jax.training.fleet import Fleet
from tests.runs.test_checkpoints import like, make_checkpoint
from tests.training import damage_trials, toy
from tests.training.test_experiment import contents
from tests.training.toy import run


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    """A run with the checkpoints of steps 150 and 170."""
    directory = tmp_path_factory.mktemp("half")
    toy.run_and_stop(toy.make_plan(directory), 170)
    assert checkpoints.kept_steps(directory / "checkpoints") == [150, 170]
    return directory


def ends(plan, capsys) -> tuple[int, list[str], str]:
    """Runs as a program does; returns its exit code, its warnings and its last line."""
    lines, code = [], 0
    try:
        with launch.ending_cleanly():
            experiment.run(plan, lines.append)
    except SystemExit as end:
        code = end.code
    error = capsys.readouterr().err.splitlines()
    assert sum(line.startswith("error: ") for line in error) == (code != 0)
    # A commit made during the tests is a change of circumstances.
    warnings = [x for x in lines if x.startswith("warning: ") and "circumstances" not in x]
    return code, warnings, error[-1]


REFUSED = [trial for trial in damage_trials.TRIALS if not trial.goes_on]


@pytest.mark.parametrize("trial", REFUSED, ids=lambda trial: trial.what)
def test_damage_is_refused_in_one_line_that_names_the_file(
    trial, half, reference, tmp_path, capsys
):
    copy = shutil.copytree(reference.workdir if trial.is_finished else half, tmp_path / "W")
    trial.damage(RunPaths(copy, "rcrl", toy.GAME, 3))

    def kept():  # a commit during the tests changes manifests
        return {n: c for n, c in contents(copy).items() if not n.endswith("manifest.json")}

    before = kept()
    code, _, last = ends(toy.make_plan(copy), capsys)
    assert code == 2 and re.match(rf"error: .*{copy}/", last)
    assert kept() == before


def test_a_second_program_in_a_work_directory_is_refused(half, tmp_path, capsys):
    copy = shutil.copytree(half, tmp_path / "W")
    with files.locked(copy, "program"):
        before = contents(copy)
        code, _, last = ends(toy.make_plan(copy), capsys)
        assert contents(copy) == before
    assert code == 2
    assert f"{copy} is in use by another program, process {os.getpid()} on " in last


@pytest.mark.usefixtures("undrawn_curves")
def test_a_program_whose_lock_is_deleted_saves_nothing_more(half, tmp_path, capsys):
    """Another program may have the new lock; the files on the disk may be that program's."""
    copy = shutil.copytree(half, tmp_path / "W")
    checkpoints = sorted(path.name for path in (copy / "checkpoints").iterdir())

    def delete_lock(moment):
        (copy / "lock").unlink(missing_ok=True)

    plan = dataclasses.replace(toy.make_plan(copy), observe=delete_lock, observe_period=1)
    code, _, last = ends(plan, capsys)
    assert code == 2 and f"{copy}/lock was deleted" in last
    assert sorted(path.name for path in (copy / "checkpoints").iterdir()) == checkpoints


GOES_ON = {
    "newest checkpoint: a flipped bit": r"/170.ckpt is damaged: its array .* changed .* step 150",
    "checkpoints: deleted": "earlier start .*/metrics.jsonl.old and 1 more",
    "metrics.jsonl: half": r"metrics.jsonl holds 2\d of 4\d records up to step 170: the others",
}
IGNORED = {
    "newest checkpoint: another agent's": r"/171.ckpt is damaged: it is of other runs.* step 170",
    "checkpoints/9999: an alien directory": "/9999 is no checkpoint and is ignored",
}


def damaged_copy(half, what: str, tmp_path) -> tuple[damage_trials.Trial, pathlib.Path]:
    (trial,) = (trial for trial in damage_trials.TRIALS if trial.what == what)
    copy = shutil.copytree(half, tmp_path / "W")
    trial.damage(RunPaths(copy, "rcrl", toy.GAME, 3))
    return trial, copy


@pytest.mark.parametrize("what", IGNORED)
def test_what_is_no_checkpoint_of_the_run_is_said_and_ignored(what, half, tmp_path):
    """`make endurance` goes on from all damage."""
    _, copy = damaged_copy(half, what, tmp_path)
    said = []
    store = checkpoints.CheckpointStore(copy / "checkpoints", said.append)
    assert store.restore(toy.checkpoint_like(toy.make_plan(copy))).step == 170
    store.close()
    assert len(said) == 1 and re.search(IGNORED[what], said[0])


@pytest.mark.usefixtures("undrawn_curves")
@pytest.mark.parametrize("what", GOES_ON)
def test_a_run_goes_on_exactly_and_says_what_is_lost(what, half, reference, tmp_path, capsys):
    trial, copy = damaged_copy(half, what, tmp_path)
    code, warnings, _ = ends(toy.make_plan(copy), capsys)
    assert code == 0
    assert len(warnings) == 1 and re.search(GOES_ON[what], warnings[0])
    if trial.loses_metrics:
        own, expected = (
            toy.last_checkpoint(plan)._replace(records=None)
            for plan in (toy.make_plan(copy), reference)
        )
        toy.assert_equal_trees(own, expected)
    else:
        toy.assert_same_result(toy.make_plan(copy), reference)


def test_a_resumed_learner_lies_on_its_device(half, tmp_path, monkeypatch):
    """Arrays of the host would be copied for every action until the next update."""

    class Acted(Exception):
        """Training goes on from the checkpoint."""

    def act(fleet, params, *arguments, **named):
        raise Acted(params)

    monkeypatch.setattr(prediction, "forecast", lambda *parts: "")  # it would compile an update
    monkeypatch.setattr(Fleet, "act", act)
    with pytest.raises(Acted) as first:
        run(toy.make_plan(shutil.copytree(half, tmp_path / "W")))
    leaves = jax.tree.leaves(first.value.args)
    assert leaves and all(isinstance(leaf, jax.Array) for leaf in leaves)


# --- a finished run ---------------------------------------------------------------------------


@pytest.fixture
def finished(reference, tmp_path):
    """The plan of a copy of a finished run of two checkpoints."""
    return toy.make_plan(shutil.copytree(reference.workdir, tmp_path / "W"))


def test_scores_of_another_seed_are_refused(finished):
    path = toy.paths_of(finished).scores
    path.write_text(json.dumps(json.loads(path.read_text()) | {"seed": 9}))
    with pytest.raises(files.Damaged, match="seed is 9, but seed is 3 in manifest.json"):
        run(finished)


def test_a_finished_run_on_a_disk_that_cannot_be_written_has_its_scores(finished, monkeypatch):
    def full(paths):
        raise OSError(30, "Read-only file system", str(paths.curve))

    monkeypatch.setattr(curves, "draw_learning_curve", full)
    said = []
    scores = experiment.run(finished, said.append)
    assert scores == [records.read_scores(toy.paths_of(finished).scores)["mean"]]
    assert any(line.startswith("warning: the curve cannot be drawn") for line in said)


@pytest.mark.usefixtures("undrawn_curves")
def test_a_finished_run_that_is_asked_for_other_episodes_records_them(finished):
    plan = dataclasses.replace(finished, eval_episodes=3)
    (score,) = experiment.run(plan)
    last = records.last_evaluation(toy.paths_of(plan))
    assert len(last["returns"]) == 3 and last["mean"] == score
    before = toy.paths_of(plan).evaluations.read_text()
    assert experiment.run(plan) == [score]
    assert toy.paths_of(plan).evaluations.read_text() == before


@pytest.mark.usefixtures("undrawn_curves")
def test_evaluations_deleted_before_the_next_one_are_written_again(tmp_path):
    def delete(moment):
        if moment.step == 120:
            toy.paths_of(plan).evaluations.unlink()

    plan = toy.make_plan(
        tmp_path, total_steps=130, observe=delete, observe_period=60, checkpoint_period=1000
    )
    said = run(plan)
    evaluations = records.read_evaluations(toy.paths_of(plan).evaluations)
    assert [line["agent_steps"] for line in evaluations] == [60, 120, 130]
    assert any("has deleted" in line and "evaluations.jsonl" in line for line in said)


@pytest.mark.usefixtures("undrawn_curves")
def test_a_finished_run_that_starts_again_keeps_its_old_scores(finished):
    """Its checkpoints are gone, and other final games are asked for."""
    paths = toy.paths_of(finished)
    old = {path.name: path.read_bytes() for path in (paths.scores, paths.parameters)}
    shutil.rmtree(paths.checkpoints)

    def stop(moment):
        if moment.step == 10:
            os.kill(os.getpid(), signal.SIGTERM)

    again = dataclasses.replace(finished, eval_episodes=3, observe=stop, observe_period=10)
    with pytest.raises(experiment.Interrupted):
        experiment.run(again, lambda line: None)
    for name, content in old.items():
        assert (paths.directory / f"{name}.old").read_bytes() == content
        assert not (paths.directory / name).exists()
    experiment.run(finished, lambda line: None)  # goes on, and reaches the same result
    new, old = records.read_scores(paths.scores), json.loads(old["scores.json"])
    for scores in (new, old):  # the manifest says that other games were asked for in between
        del scores["record_digests"]["manifest"]
    assert new == old


def test_a_deleted_manifest_is_called_that(finished):
    toy.paths_of(finished).manifest.unlink()
    with pytest.raises(manifest.WorkdirMismatch, match=r"manifest.json is gone, .* restore it"):
        run(finished)


@pytest.mark.usefixtures("undrawn_curves")
def test_a_checkpoint_under_another_number_is_set_aside(finished):
    toy.paths_of(finished).scores.unlink()
    directory = toy.paths_of(finished).checkpoints
    older, newest = checkpoints.kept_steps(directory)
    path = checkpoints.path_of(directory, newest)
    path.rename(checkpoints.path_of(directory, newest + 5))
    said = run(finished)
    assert any(f"it is the checkpoint of step {newest}" in line for line in said)
    assert any(f"going on from the checkpoint of step {older}" in line for line in said)
    says = f"no checkpoint after step {older}, so training starts at step {older}"
    assert any(says in line for line in said)
    assert (toy.paths_of(finished).directory / "parameters.npz.old").exists()


def test_scores_whose_records_were_edited_are_refused(finished):
    path = toy.paths_of(finished).metrics
    path.write_text(path.read_text().replace('"episode_length": 6', '"episode_length": 5', 1))
    with pytest.raises(files.Damaged, match="it does not belong to the records in metrics.jsonl"):
        run(finished)


# --- checkpoints ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Two checkpoints."""
    directory = tmp_path_factory.mktemp("saved") / "checkpoints"
    store = checkpoints.CheckpointStore(directory, print)
    for step in (10, 20):
        store.save(make_checkpoint(step))
    store.close()
    return directory


def test_every_flipped_bit_of_a_checkpoint_is_noticed(saved, tmp_path):
    """Of 100 random bits, half of them in the first lines."""
    rng, wanted = random.Random(0), like(make_checkpoint(20))
    path = checkpoints.path_of(saved, 20)
    toy.assert_equal_trees(checkpoints.read_checkpoint(path, wanted), make_checkpoint(20))
    content = path.read_bytes()
    first_lines = content.index(b"\n", content.index(b"\n") + 1)
    copy = checkpoints.path_of(tmp_path, 20)
    for number in range(100):
        copy.write_bytes(content)
        damage_trials.flip_bit(
            copy, rng.randrange(8 * (first_lines if number % 2 else len(content)))
        )
        with pytest.raises(files.Damaged) as damaged:
            checkpoints.read_checkpoint(copy, wanted)
        assert str(damaged.value).startswith(str(copy))


def test_a_flipped_bit_of_the_agents_is_noticed_where_only_they_are_read(saved, tmp_path):
    path = pathlib.Path(shutil.copy(checkpoints.path_of(saved, 20), tmp_path))
    ((_, kernel),) = checkpoints.read_agents(path).items()
    assert (
        kernel.tobytes() == jax.tree.leaves(make_checkpoint(20).learner.params.agent)[0].tobytes()
    )
    content = path.read_bytes()
    damage_trials.flip_bit(path, 8 * content.index(kernel.tobytes()) + 3)
    with pytest.raises(files.Damaged, match="learner/params/agent/dense/kernel has changed"):
        checkpoints.read_agents(path)


def test_a_run_ends_at_the_step_after_a_failed_save(tmp_path, monkeypatch, capsys):
    steps = []
    write = checkpoints.write_checkpoint

    def failing(path, saved):
        steps.append(saved.step)
        if saved.step > 50:
            raise OSError(28, "No space left on device", str(path))
        write(path, saved)

    monkeypatch.setattr(checkpoints, "write_checkpoint", failing)
    plan = toy.make_plan(tmp_path)
    code, _, last = ends(plan, capsys)
    assert code == 2 and "No space left on device" in last and "that of step 50" in last
    assert steps == [50, 100]
    assert records.read_metrics(toy.paths_of(plan).metrics)[-1]["agent_steps"] < 150


def test_checkpoints_deleted_in_mid_run_are_said_and_saved_again(tmp_path):
    said = []
    store = checkpoints.CheckpointStore(tmp_path / "checkpoints", said.append)
    store.save(make_checkpoint(1))
    store.wait()
    shutil.rmtree(tmp_path / "checkpoints")
    store.save(make_checkpoint(2))
    store.close()
    assert checkpoints.kept_steps(tmp_path / "checkpoints") == [2]
    (line,) = said
    assert line.startswith("warning: another program has deleted ")


# --- records ----------------------------------------------------------------------------------


READERS = {
    "manifest.json": lambda path: manifest.read(path),
    "metrics.jsonl": lambda path: records.read_metrics(path),
    "evaluations.jsonl": lambda path: records.read_evaluations(path),
    "scores.json": lambda path: records.read_scores(path),
    "work directory": lambda path: workdir.read(path.parents[3]),
}

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)


@settings(max_examples=80, suppress_health_check=list(HealthCheck))
@given(data=st.data(), name=st.sampled_from(sorted(READERS)))
def test_readers_return_or_raise_one_line_that_names_a_file(reference, tmp_path, data, name):
    target = tmp_path / "rcrl" / toy.GAME / "seed_3"
    shutil.copytree(
        toy.paths_of(reference).directory, target, dirs_exist_ok=True,
        ignore=shutil.ignore_patterns("tensorboard", "*.png"),
    )  # fmt: skip
    (tmp_path / "checkpoints").mkdir(exist_ok=True)
    path = target / (name if "." in name else "manifest.json")
    path.write_bytes(data.draw(damaged(path)))
    try:
        READERS[name](path)
    except (files.Damaged, manifest.WorkdirMismatch, workdir.Unusable) as error:
        assert "\n" not in str(error) and str(tmp_path) in str(error)


@st.composite
def damaged(draw, path: pathlib.Path) -> bytes:
    """A file's content with bytes, or a value at any depth, replaced."""
    content = path.read_bytes()
    if draw(st.booleans()):
        at = draw(st.integers(0, len(content)))
        return content[:at] + draw(st.binary(max_size=8)) + content[at + draw(st.integers(0, 99)) :]
    lines = content.splitlines() if path.suffix == ".jsonl" else [content]
    number = draw(st.integers(0, len(lines) - 1))
    lines[number] = json.dumps(_replaced(draw, json.loads(lines[number]))).encode()
    return b"\n".join(lines) + b"\n"


def _replaced(draw, value):
    """A JSON value with one part replaced or, in an object, left out."""
    if not isinstance(value, dict | list) or not value or draw(st.integers(0, 4)) == 0:
        return draw(values)
    keys = list(value) if isinstance(value, dict) else range(len(value))
    key = draw(st.sampled_from(list(keys)))
    copy = value.copy()
    if draw(st.integers(0, 4)) == 0:
        del copy[key]
    else:
        copy[key] = _replaced(draw, value[key])
    return copy
