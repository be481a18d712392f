"""Records survive a kill, and an interrupted run's files equal an uninterrupted run's."""

import hashlib
import io
import json
import lzma
import os
import pathlib
import struct
import tempfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboardX.proto.event_pb2 import Event

from rcrl_jax import files
from rcrl_jax.runs import records
from rcrl_jax.runs.paths import RunPaths
from rcrl_jax.runs.recorder import Counters, RunRecorder, sample_size


def _counters(agent_steps):
    return Counters(agent_steps, agent_steps, 4 * agent_steps)


def _record(recorder, events):
    """Records events (step, kind); kinds are those of the training loop."""
    for step, kind in events:
        if kind == "losses":
            recorder.record(_counters(step), {"loss_c51": step / 7, "beta": float("nan")})
        elif kind == "episode":
            recorder.record(_counters(step), {"episode_return": -1.5, "episode_length": step})
        else:
            recorder.record_evaluation(_counters(step), [1.0, float(step)], episodes_cut=1)


def _read(paths):
    """Returns the records of both files without keys that may differ between equal runs."""
    return [
        [
            {key: value for key, value in line.items() if key not in records.WALL_CLOCK_KEYS}
            for line in records.read_records(path)
        ]
        for path in (paths.metrics, paths.evaluations)
    ]


def test_records_are_written_as_json_lines(tmp_path):
    paths = RunPaths(tmp_path, "rcrl", "Pong", 0)
    with RunRecorder(paths, resume_at=None) as recorder:
        recorder.record(
            Counters(10, 20, 80),
            {"loss_c51": np.float32(0.5), "beta": float("nan"), "updates": 3},
        )
        recorder.record_evaluation(Counters(11, 22, 88), np.array([-1.0, 2.0]), episodes_cut=1)
    (line,) = paths.metrics.read_text().splitlines()
    metrics = json.loads(line)
    assert metrics.pop("wall_s") >= 0
    assert metrics == {
        "agent_steps": 10, "env_steps": 20, "frames": 80,
        "loss_c51": 0.5, "beta": None, "updates": 3,
    }  # fmt: skip
    assert list(metrics)[:3] == ["agent_steps", "env_steps", "frames"]
    assert paths.evaluations.read_text() == (
        '{"agent_steps": 11, "env_steps": 22, "frames": 88, "returns": [-1.0, 2.0], "mean": 0.5, '
        '"episodes_cut": 1}\n'
    )


def test_parameters_are_written_by_name(tmp_path):
    paths = RunPaths(tmp_path, "rcrl", "Pong", 0)
    with RunRecorder(paths, resume_at=None) as recorder:
        recorder.write_parameters({"agent/a": np.ones((2, 3), np.float32), "b": np.float32([7])})
    kept = np.load(paths.parameters)
    assert {name: kept[name].tolist() for name in kept} == {"agent/a": [[1] * 3] * 2, "b": [7]}


_EVENTS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["losses", "episode", "evaluation"])), max_size=12
).map(
    lambda gaps: [(sum(gap for gap, _ in gaps[: i + 1]), kind) for i, (_, kind) in enumerate(gaps)]
)


@given(data=st.data(), events=_EVENTS, torn_bytes=st.integers(0, 500))
@settings(max_examples=30)
def test_an_interrupted_run_equals_an_uninterrupted_one(data, events, torn_bytes):
    last = events[-1][0] if events else 0
    checkpoint = data.draw(st.integers(0, last), label="step of the checkpoint")
    killed_after = data.draw(
        st.integers(sum(step <= checkpoint for step, _ in events), len(events)),
        label="events before the kill",
    )
    with tempfile.TemporaryDirectory() as directory:
        whole = RunPaths(pathlib.Path(directory), "whole", "Pong", 0)
        cut = RunPaths(pathlib.Path(directory), "cut", "Pong", 0)
        with RunRecorder(whole, resume_at=None) as recorder:
            _record(recorder, events)

        with RunRecorder(cut, resume_at=None) as recorder:
            _record(recorder, events[:killed_after])
        for path in (cut.metrics, cut.evaluations):
            _tear(path, torn_bytes, keep_up_to=checkpoint)
        with RunRecorder(cut, resume_at=checkpoint) as recorder:
            _record(recorder, [event for event in events if event[0] > checkpoint])

        assert _read(cut) == _read(whole)
        assert cut.evaluations.read_bytes() == whole.evaluations.read_bytes()


def _tear(path, torn_bytes, *, keep_up_to):
    """Cuts bytes off the last line, if it was written after the checkpoint."""
    lines = path.read_bytes().splitlines(keepends=True)
    if lines and json.loads(lines[-1])["agent_steps"] > keep_up_to:
        lines[-1] = lines[-1][: max(0, len(lines[-1]) - torn_bytes)]
        path.write_bytes(b"".join(lines))


def test_a_new_run_empties_the_files_of_an_old_one(tmp_path):
    paths = RunPaths(tmp_path, "rcrl", "Pong", 0)
    with RunRecorder(paths, resume_at=None) as recorder:
        _record(recorder, [(0, "losses"), (0, "evaluation")])
    with RunRecorder(paths, resume_at=None):
        pass
    assert _read(paths) == [[], []]


def test_training_time_continues_after_resuming(tmp_path):
    paths = RunPaths(tmp_path, "rcrl", "Pong", 0)
    paths.directory.mkdir(parents=True)
    paths.metrics.write_text(
        '{"agent_steps": 1, "wall_s": 1000.5}\n{"agent_steps": 9, "wall_s": 5000.0}\n'
    )
    with RunRecorder(paths, resume_at=1) as recorder:
        _record(recorder, [(2, "losses")])
    assert 1000.5 <= records.read_records(paths.metrics)[-1]["wall_s"] < 1100


@pytest.mark.parametrize("torn", ["", "{", '{"agent_steps": 2', '{"a": {}', "\x00\x00\x00", "12"])
def test_a_torn_last_line_is_not_read(tmp_path, torn):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"agent_steps": 1}\n' + torn)
    assert records.read_records(path) == [{"agent_steps": 1}]


def test_a_last_line_without_a_newline_is_read_and_completed(tmp_path):
    paths = RunPaths(tmp_path, "rcrl", "Pong", 0)
    paths.directory.mkdir(parents=True)
    paths.evaluations.write_text('{"agent_steps": 1, "returns": [3.0], "mean": 3.0}')
    with RunRecorder(paths, resume_at=1) as recorder:
        recorder.record_evaluation(_counters(2), [4.0], episodes_cut=0)
    assert [line["mean"] for line in records.read_records(paths.evaluations)] == [3.0, 4.0]


def _events(directory):
    """Reads TensorBoard's files, in the order in which they were written."""
    for path in sorted(directory.iterdir(), key=lambda path: path.stat().st_mtime_ns):
        file = io.BytesIO(path.read_bytes())
        while header := file.read(12):  # length and its checksum
            yield Event.FromString(file.read(struct.unpack("<Q", header[:8])[0]))
            file.read(4)  # checksum of the event


def test_tensorboard_mirrors_finite_scalars_and_purges_what_a_resumed_run_repeats(tmp_path, capfd):
    paths = RunPaths(tmp_path, "rcrl", "Pong", 0)
    with RunRecorder(paths, resume_at=None) as recorder:
        _record(recorder, [(5, "losses"), (12, "evaluation")])
    (first,) = paths.tensorboard.iterdir()
    os.utime(first, (0, 0))
    events = list(_events(paths.tensorboard))
    scalars = [(e.step, v.tag, v.simple_value) for e in events for v in e.summary.value]
    assert scalars == [(5, "training/loss_c51", pytest.approx(5 / 7)), (12, "evaluation/mean", 6.5)]

    with RunRecorder(paths, resume_at=10):
        pass
    starts = [event.step for event in _events(paths.tensorboard) if event.session_log.status]
    assert starts == [0, 11]
    assert capfd.readouterr().out == ""


def test_records_are_on_the_disk_before_the_scores_that_have_their_digests(tmp_path, monkeypatch):
    synced = []

    def sync(descriptor):
        synced.append(pathlib.Path(f"/proc/self/fd/{descriptor}").readlink().name)

    paths = RunPaths(tmp_path, "rcrl", "Pong", 4)
    with RunRecorder(paths, resume_at=None) as recorder:
        monkeypatch.setattr(os, "fsync", sync)
        recorder.write_scores(Counters(100, 200, 800), [1.0], episodes_cut=0)
    assert synced[:2] == ["metrics.jsonl", "evaluations.jsonl"]
    assert "scores.json" in synced[2]


def test_scores_are_written_with_their_summary(tmp_path):
    paths = RunPaths(tmp_path, "rcrl", "Pong", 4)
    with RunRecorder(paths, resume_at=None) as recorder:
        recorder.write_scores(Counters(100, 200, 800), [-20.7, 14.6, -20.7, 14.6], episodes_cut=2)
    empty = hashlib.sha256().hexdigest()
    assert json.loads(paths.scores.read_text()) == {
        "measured": "final evaluation: the agent at the last step",
        "preset": "rcrl",
        "game": "Pong",
        "seed": 4,
        "agent_steps": 100,
        "env_steps": 200,
        "frames": 800,
        "mean": pytest.approx(-3.05),
        "median": pytest.approx(-3.05),
        "std": pytest.approx(17.65),
        "human_normalised_mean": pytest.approx(0.5),  # Random -20.7, Human 14.6
        "episodes": 4,
        "episodes_cut": 2,
        "returns": [-20.7, 14.6, -20.7, 14.6],
        "record_digests": {"metrics": empty, "evaluations": empty},
    }


def test_scores_of_a_game_without_published_scores(tmp_path):
    paths = RunPaths(tmp_path, "rcrl", "Catch", 0)
    with RunRecorder(paths, resume_at=None) as recorder:
        recorder.write_scores(_counters(1), np.array([1.0, 0.0]), episodes_cut=0)
    assert json.loads(paths.scores.read_text())["human_normalised_mean"] is None


def test_cut_episodes_are_told_where_not_all_of_them_end_so():
    scores = {"game": "Pong", "env_steps": 1000, "episodes": 2, "episodes_cut": 1}
    assert sample_size(scores) == "1 seed, 1,000 steps, 2 episodes, 1 cut"
    assert sample_size({**scores, "episodes_cut": 0}) == "1 seed, 1,000 steps, 2 episodes"
    assert sample_size({**scores, "game": "cheetah_run"}) == "1 seed, 1,000 steps, 2 episodes"


def test_compressed_records_stand_in_place_of_missing_ones(tmp_path):
    plain = tmp_path / "metrics.jsonl"
    content = b'{"agent_steps": 1, "wall_s": 0.5}\n'
    records.packed(plain).write_bytes(lzma.compress(content))
    assert records.read_content(plain) == content
    assert records.read_metrics(plain) == [{"agent_steps": 1, "wall_s": 0.5}]
    plain.write_bytes(b"")
    assert records.read_metrics(plain) == []


@pytest.mark.parametrize(
    "spoil", [lambda own: own[:-8], lambda own: own + b"more", lambda own: own[2:]]
)
def test_damaged_compressed_records_are_refused(tmp_path, spoil):
    plain = tmp_path / "metrics.jsonl"
    records.packed(plain).write_bytes(spoil(lzma.compress(b"{}\n" * 99)))
    with pytest.raises(files.Damaged, match=r"metrics\.jsonl\.xz is damaged"):
        records.read_records(plain)


def test_compressed_records_that_grow_beyond_bounds_are_refused(tmp_path, monkeypatch):
    plain = tmp_path / "metrics.jsonl"
    records.packed(plain).write_bytes(lzma.compress(b"{}\n" * 9999))
    monkeypatch.setattr(files, "MOST_BYTES", 9999)
    with pytest.raises(files.Damaged, match="does not end"):
        records.read_records(plain)


def test_a_list_of_digests_is_parsed_once_and_again_after_a_change(tmp_path):
    path = tmp_path / records.DIGESTS
    path.write_text(f"{'0' * 64}  a\n")
    records.read_digests(path)["b"] = "the caller's own"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records.re, "fullmatch", None)
        assert records.read_digests(path) == {"a": "0" * 64}
    path.write_text(f"{'1' * 64}  a\n")
    assert records.read_digests(path) == {"a": "1" * 64}
