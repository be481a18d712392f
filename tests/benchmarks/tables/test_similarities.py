"""Recorded similarities: read, checked, named by the arm, tabulated, drawn."""

import json

import pytest

from benchmarks.tables import similarities
from tests.benchmarks.tables.synthetic import edit, write_lines, write_run


def line(preset="rcrl", seed=0, step=0, positive=0.5, negative=0.25, **changes):
    return {
        "preset": preset, "game": "Alien", "seed": seed, "agent_steps": step, "pairs": "held_out",
        "cosine_positive": positive, "cosine_negative": negative,
    } | changes  # fmt: skip


def record(directory, lines, name="similarity.jsonl"):
    directory.mkdir(parents=True, exist_ok=True)
    write_lines(directory / name, lines)


def test_first_and_last_snapshot_are_means_over_seeds(tmp_path):
    lines = [
        line(seed=seed, step=step, positive=0.4 + 0.1 * seed + step / 10_000)
        for seed in (0, 1)
        for step in (0, 500, 1000)
    ]
    record(tmp_path / "Alien", lines)
    (recording,), problems = similarities.read([tmp_path])
    assert not problems and recording.seeds == [0, 1]
    first, last = similarities.to_table(recording).rows
    assert (first.label, last.label) == ("rcrl, held-out, 0", "rcrl, held-out, 1k")
    assert [cell.value for cell in last.cells] == pytest.approx([0.55, 0.25, 0.3])
    assert [cell.seeds for cell in last.cells] == [2, 2, 2]


@pytest.mark.parametrize("place", ["Alien", "."])
def test_a_preset_is_named_by_the_arm_of_its_run(tmp_path, place):
    """Runs lie below the recording's directory or beside it."""
    record(tmp_path / "Alien", [line()])
    write_run(tmp_path / place, "rcrl", "Alien", 0, changes={"embedding_init": "uniform"})
    (recording,), _ = similarities.read([tmp_path])
    assert recording.similarity[0]["preset"] == "rcrl(embedding_init=uniform)"


@pytest.mark.parametrize(
    "changes, reason",
    [
        ({"game": "../../etc"}, "game is"),
        ({"preset": "<b>x</b>"}, "preset is"),
        ({"seed": None}, "seed is None"),
        ({"cosine_positive": "high"}, "expected a number"),
        ({"cosine_positive": 10**400}, "expected a number"),
        ({"preset": []}, "preset is []"),
        ({"pairs": None}, "pairs is None"),
    ],
)
def test_damaged_lines_leave_out_their_directory_only(tmp_path, changes, reason):
    record(tmp_path / "good", [line()])
    record(tmp_path / "bad", [line(), line(step=500, **changes)])
    recordings, (problem,) = similarities.read([tmp_path])
    assert [recording.directory.name for recording in recordings] == ["good"]
    assert reason in problem and "line 2" in problem and "\n" not in problem


def test_nothing_measurable_is_missing_and_files_are_written(tmp_path):
    record(tmp_path / "Alien", [line(), line(step=500, positive=None)])
    values = {
        f"unseen_cosine_{sign}_{kind}_action": None if kind == "equal" else 0.5
        for sign in ("positive", "negative")
        for kind in ("equal", "different")
    }
    unseen = {"preset": "rcrl", "game": "Alien", "seed": 0, "agent_steps": 0, **values}
    record(tmp_path / "Alien", [unseen], "unseen.jsonl")
    (recording,), _ = similarities.read([tmp_path])
    first, last = similarities.to_table(recording).rows
    assert first.cells[0].value == 0.5 and last.cells[0].value is None
    written = similarities.write(recording, tmp_path / "out", "figure")
    assert [path.name for path in written] == [
        "figure.csv", "figure.md", "figure.tex", "figure.html", "figure.png", "figure_unseen.png"
    ]  # fmt: skip
    assert all(path.stat().st_size for path in written)


def test_an_arm_with_the_signs_of_a_formula_is_drawn(tmp_path):
    record(tmp_path / "Alien", [line()])
    directory = write_run(tmp_path, "rcrl", "Alien", 0)
    config = json.loads((directory / "manifest.json").read_text())["run"]["config"]
    edit(directory / "manifest.json", "run", config=config | {"embedding_init": "$\\frac{$"})
    (recording,), _ = similarities.read([tmp_path])
    assert "$" in similarities.to_table(recording).rows[0].label
    assert similarities.write(recording, tmp_path / "out", "figure")[-1].exists()


def test_recordings_of_one_game_keep_apart(tmp_path):
    for name in ("a", "b"):
        record(tmp_path / name, [line()])
    recordings, _ = similarities.read([tmp_path])
    assert list(similarities.stems("f", recordings)) == ["f_Alien", "f_Alien_2"]
