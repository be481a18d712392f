"""Exchanged, reordered, edited and deleted records are noticed."""

import json
import shutil

import pytest

from rcrl_jax import files
from rcrl_jax.runs import records
from rcrl_jax.runs.paths import RunPaths
from rcrl_jax.runs.recorder import Counters, RunRecorder


def count(step):
    return Counters(step, step, 4 * step)


def write(paths, *, seed=0, steps=(10, 20, 30)):
    """Records of a short run with an evaluation at its last step; what it had written by then."""
    with RunRecorder(paths, resume_at=None) as recorder:
        for step in steps:
            recorder.record(count(step), {"loss": step + seed})
        written = recorder.written
        recorder.record_evaluation(count(step), [1.0 + seed, 2.0], episodes_cut=0)
        recorder.write_scores(count(step), [1.0 + seed, 2.0], episodes_cut=0)
    return written


def exchange(first, second):
    """Exchanges two files."""
    first.rename(first.with_name("other"))
    second.rename(first)
    first.with_name("other").rename(second)


def reverse_lines(path):
    path.write_text("".join(reversed(path.read_text().splitlines(keepends=True))))


def edit(path):
    path.write_text(path.read_text().replace("20", "21", 1))


@pytest.fixture
def paths(tmp_path):
    return [RunPaths(tmp_path, "rcrl", "Pong", seed) for seed in range(2)]


def test_a_digest_is_that_of_the_records_without_times():
    one, other = {"agent_steps": 1, "loss": 0.5}, {"agent_steps": 2, "loss": 1.5}
    timed = [{**one, "wall_s": 3.0, "steps_per_s": 1.0}, {**other, "wall_s": 9.0}]
    assert records.Digest(timed).value == records.Digest([one, other]).value
    assert records.Digest(timed).count == 2
    assert records.Digest([other, one]).value != records.Digest([one, other]).value
    assert records.Digest([one]).value != records.Digest([{**one, "loss": 0.25}]).value


def test_updates_at_the_step_of_a_checkpoint_after_it_are_recorded_once(paths):
    """A run that is killed between updates before an action repeats those after the checkpoint."""
    own, counters = paths[0], count(10)
    with RunRecorder(own, resume_at=None) as recorder:
        recorder.record(counters, {"early_updates": 200})
        written = recorder.written
        recorder.record(counters, {"early_updates": 400})
    with RunRecorder(own, resume_at=10, written=written) as recorder:
        recorder.record(counters, {"early_updates": 400})
    assert [x["early_updates"] for x in records.read_metrics(own.metrics)] == [200, 400]


@pytest.mark.parametrize("name", ["metrics", "evaluations"])
@pytest.mark.parametrize("change", ["exchanged", "edited", "emptied", "deleted"])
def test_changed_records_of_a_finished_run_are_noticed(paths, name, change):
    for seed, own in enumerate(paths):
        write(own, seed=seed)
    scores = records.read_scores(paths[0].scores)
    records.check_finished(paths[0].directory, scores)
    path, other = (getattr(own, name) for own in paths)
    if change == "exchanged":
        exchange(path, other)
    elif change == "edited":
        record, *rest = map(json.loads, path.read_text().splitlines())
        record["frames"] += 4
        path.write_text("".join(json.dumps(line) + "\n" for line in [record, *rest]))
    elif change == "emptied":
        path.write_text("")
    else:
        path.unlink()
    with pytest.raises(files.Damaged, match=rf"scores.json is damaged: .*{path.name}"):
        records.check_finished(paths[0].directory, scores)


@pytest.mark.parametrize(
    "name, value",
    [("returns", [1.0, 3.0]), ("agent_steps", 40), ("env_steps", 40), ("episodes_cut", 1)],
)
def test_edited_scores_are_not_those_of_the_last_evaluation(paths, name, value):
    write(paths[0])
    scores = records.read_scores(paths[0].scores) | {name: value}
    with pytest.raises(files.Damaged, match=rf"scores.json is damaged: {name} is not that of the"):
        records.check_finished(paths[0].directory, scores)


def test_scores_without_digests_are_not_checked(paths):
    write(paths[0])
    scores = records.read_scores(paths[0].scores)
    del scores["record_digests"]
    paths[0].evaluations.unlink()
    records.check_finished(paths[0].directory, scores)


@pytest.mark.parametrize("change", [edit, reverse_lines])
def test_a_run_does_not_continue_records_that_it_has_not_written(paths, change):
    written = write(paths[0])
    change(paths[0].metrics)
    before = paths[0].metrics.read_bytes()
    with pytest.raises(files.Damaged, match=r"up to step 30 it does not hold the records"):
        RunRecorder(paths[0], resume_at=30, written=written)
    assert paths[0].metrics.read_bytes() == before


def test_more_records_of_the_step_itself_are_those_of_its_evaluation(paths):
    written = write(paths[0])  # the evaluation came after the checkpoint
    said = []
    with RunRecorder(paths[0], resume_at=30, written=written, say=said.append) as recorder:
        assert recorder.written.lines.tolist() == [3, 1]
    assert not said


def test_lost_records_are_said(paths):
    written = write(paths[0])
    paths[0].metrics.write_text("".join(paths[0].metrics.read_text().splitlines(True)[:2]))
    said = []
    RunRecorder(paths[0], resume_at=30, written=written, say=said.append).close()
    assert said == [
        f"warning: {paths[0].metrics} holds 2 of 3 records up to step 30: the others are lost"
    ]


def test_what_is_deleted_while_a_run_writes_is_written_again(paths):
    paths[0].directory.mkdir(parents=True)
    paths[0].manifest.write_text('{"run": {}}')
    said = []
    with RunRecorder(paths[0], resume_at=None, say=said.append) as recorder:
        recorder.record(count(10), {"loss": 1.0})
        paths[0].manifest.unlink()
        paths[0].metrics.unlink()
        shutil.rmtree(paths[0].tensorboard)
        recorder.restore_deleted()
        recorder.record(count(20), {"loss": 2.0})
        recorder.restore_deleted()
    assert [line["loss"] for line in records.read_metrics(paths[0].metrics)] == [1.0, 2.0]
    assert paths[0].manifest.read_text() == '{"run": {}}'
    assert list(paths[0].tensorboard.iterdir())
    assert sorted(line.split(";")[0].split("/")[-1] for line in said) == [
        "manifest.json", "metrics.jsonl", "tensorboard"
    ]  # fmt: skip


@pytest.mark.parametrize("change", ["reordered", "lost"])
def test_evaluations_too_are_compared_with_those_that_the_run_has_written(paths, change):
    with RunRecorder(paths[0], resume_at=None) as recorder:
        for step in (10, 20):
            recorder.record_evaluation(count(step), [1.0, 2.0], episodes_cut=0)
        written = recorder.written
    path, said = paths[0].evaluations, []
    if change == "reordered":
        reverse_lines(path)
        with pytest.raises(files.Damaged, match="evaluations.jsonl is damaged: up to step 20"):
            RunRecorder(paths[0], resume_at=20, written=written)
        return
    path.write_text(path.read_text().splitlines(True)[0])
    RunRecorder(paths[0], resume_at=20, written=written, say=said.append).close()
    assert said == [f"warning: {path} holds 1 of 2 records up to step 20: the others are lost"]
