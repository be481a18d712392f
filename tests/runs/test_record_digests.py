"""Exchanged, reordered, edited and deleted records are noticed."""

import json
import shutil
import subprocess

import numpy as np
import pytest

from rcrl_jax import files
from rcrl_jax.runs import manifest, records
from rcrl_jax.runs.paths import RunPaths
from rcrl_jax.runs.recorder import Counters, RunRecorder


def count(step):
    return Counters(step, step, 4 * step)


def write(paths, *, seed=0, steps=(10, 20, 30)):
    """Records of a short run with an evaluation at its last step; what it had written by then."""
    run = {"preset": "rcrl", "game": "Pong", "seed": paths.seed, "steps": steps[-1], "config": {}}
    paths.directory.mkdir(parents=True)
    files.write_json_atomically(paths.manifest, dict.fromkeys(manifest.SECTIONS, {}) | {"run": run})
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
    assert records.read_result(paths[0].directory) == records.read_scores(paths[0].scores)
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
        records.read_result(paths[0].directory)


@pytest.mark.parametrize("section", [*sorted(set(manifest.SECTIONS) - {"launch"}), "resumed"])
def test_a_changed_manifest_of_a_finished_run_is_noticed(paths, section):
    write(paths[0])
    described = manifest.read(paths[0].manifest)
    described["launch"]["command"] = "another"  # which computes the same
    files.write_json_atomically(paths[0].manifest, described)
    assert records.read_result(paths[0].directory)
    if section == "resumed":
        described["launch"]["resumed"] = [{"versions": {"git_commit": "another"}}]
    else:
        described[section] |= {"a": "field"}
    files.write_json_atomically(paths[0].manifest, described)
    with pytest.raises(files.Damaged, match="to manifest.json, which has changed"):
        records.read_result(paths[0].directory)


def change_scores(paths, **changes):
    scores = records.read_scores(paths.scores) | changes
    files.write_json_atomically(paths.scores, scores)


@pytest.mark.parametrize(
    "name, value, says",
    [
        ("returns", [2.0, 1.0], "returns is not that of the last line"),
        ("episodes_cut", 1, "episodes_cut is not that of the last line"),
        ("agent_steps", 40, "agent_steps is 40, but steps is 30 in manifest.json"),
        ("env_steps", 40, "env_steps is not that of the last line"),
        ("seed", 5, "seed is 5, but seed is 0 in manifest.json"),
        ("episodes", 3, "episodes is 3, but it holds 2 returns"),
    ],
)
def test_edited_scores_are_noticed(paths, name, value, says):
    write(paths[0])
    change_scores(paths[0], **{name: value})
    with pytest.raises(files.Damaged, match=rf"scores.json is damaged: {says}"):
        records.read_result(paths[0].directory)


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


# A file of digests beside results


@pytest.fixture
def listed(paths, tmp_path):
    """The paths of a run all of whose files have a digest in tmp_path / digests.txt."""
    write(paths[0])
    np.savez(paths[0].parameters, w=np.zeros(3))
    paths[0].curve.write_bytes(b"a picture")
    lines = ["# a comment\n"]
    for name in records.recorded_files(paths[0].directory):
        path = paths[0].directory / name
        lines.append(f"{records.digest_of(path)}  {path.relative_to(tmp_path)}\n")
    (tmp_path / records.DIGESTS).write_text("".join(lines))
    return paths[0]


LISTED = ("evaluations.jsonl", "manifest.json", "metrics.jsonl", "parameters.npz", "scores.json")


def test_every_file_of_a_run_but_pictures_has_a_digest(listed):
    assert records.recorded_files(listed.directory) == [*LISTED]
    assert records.read_result(listed.directory)
    listed.curve.write_bytes(b"drawn again")
    assert records.read_result(listed.directory)


@pytest.mark.parametrize("name", LISTED)
@pytest.mark.parametrize("change", ["a space added", "deleted"])
def test_a_file_unlike_its_digest_is_refused(listed, name, change):
    """Without digests in the scores, and in a way that no other check sees."""
    path = listed.directory / name
    if change == "deleted":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes() + b" ")
    says = f"{name} is missing, of which" if change == "deleted" else f"{name} is damaged: it has"
    with pytest.raises(files.Damaged, match=says):
        records.read_result(listed.directory)


def test_a_file_added_to_a_run_with_digests_is_refused(listed):
    listed.diverged.write_text('{"attempts": 2}')
    with pytest.raises(files.Damaged, match="diverged.json is damaged: it is not among the run's"):
        records.read_result(listed.directory)


def test_a_run_that_is_newer_than_the_digests_is_not_compared(listed, paths):
    write(paths[1])
    assert records.read_result(paths[1].directory)


def test_digests_are_those_that_sha256sum_checks(listed, tmp_path):
    check = ["sha256sum", "--check", "--strict", "--quiet", records.DIGESTS]
    assert subprocess.run(check, cwd=tmp_path).returncode == 0
    listed.scores.write_bytes(b"{}")
    assert subprocess.run(check, cwd=tmp_path, capture_output=True).returncode == 1


@pytest.mark.parametrize("line", ["0  a", "x" * 64 + "  a", "0" * 64 + " a", "", "0" * 64 + "  "])
def test_a_damaged_file_of_digests_is_refused(listed, tmp_path, line):
    path = tmp_path / records.DIGESTS
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(files.Damaged, match="digests.txt is damaged: line 7 is no digest"):
        records.read_result(listed.directory)


def test_a_run_that_has_diverged_for_good_has_no_scores(paths):
    own = paths[0]
    write(own)
    own.diverged.write_text('{"attempts": 2}')
    with pytest.raises(files.Damaged, match="it holds both"):
        records.read_result(own.directory)
    own.scores.unlink()
    assert records.read_result(own.directory) is None
    own.diverged.unlink()
    assert not records.has_result(own.directory)
    with pytest.raises(FileNotFoundError):
        records.read_result(own.directory)
