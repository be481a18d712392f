"""Recorded similarities: read, checked, named by the arm, tabulated, drawn."""

import json

import pytest

from benchmarks import figure_similarity
from tests.benchmarks.tables.synthetic import edit, write_lines, write_run


def line(preset="rcrl", seed=0, step=0, positive=0.5, negative=0.25, **changes):
    return {
        "preset": preset, "game": "Alien", "seed": seed, "agent_steps": step, "pairs": "held_out",
        "cosine_positive": positive, "cosine_negative": negative,
    } | changes  # fmt: skip


def record(directory, lines):
    directory.mkdir(parents=True, exist_ok=True)
    write_lines(directory / "similarity.jsonl", lines)


def test_first_and_last_snapshot_are_means_over_seeds(tmp_path):
    lines = [
        line(seed=seed, step=step, positive=0.4 + 0.1 * seed + step / 10_000)
        for seed in (0, 1)
        for step in (0, 500, 1000)
    ]
    # A measure without pairs is null.
    record(tmp_path / "Alien", [*lines, line(seed=2, step=1000, positive=None)])
    (recording,), problems = figure_similarity.read([tmp_path])
    assert not problems
    first, last = figure_similarity.to_table(recording).rows
    assert (first.label, last.label) == ("rcrl, held-out, 0", "rcrl, held-out, 1k")
    assert [cell.value for cell in last.cells] == pytest.approx([0.55, 0.25, 0.3])
    assert [cell.seeds for cell in last.cells] == [2, 2, 2]


@pytest.mark.parametrize("place", ["Alien", "."])
def test_a_preset_is_named_by_the_arm_of_its_run(tmp_path, place):
    """Runs lie below the recording's directory or beside it."""
    record(tmp_path / "Alien", [line()])
    write_run(tmp_path / place, "rcrl", "Alien", 0, changes={"embedding_init": "uniform"})
    (recording,), _ = figure_similarity.read([tmp_path])
    assert [*recording.similarity.preset] == ["rcrl(embedding_init=uniform)"]
    assert {*recording.scores.arm} == {"rcrl(embedding_init=uniform)"}
    assert [*recording.scores.score] == [2.0, 10.0]  # of the evaluations of the run


@pytest.mark.parametrize(
    "changes",
    [
        {"game": "../../etc"},
        {"preset": []},
        {"cosine_positive": "high"},
        {"cosine_positive": 10**400},
        {"agent_steps": 0},  # stands twice
    ],
)
def test_damaged_lines_leave_out_their_directory_only(tmp_path, changes):
    record(tmp_path / "good", [line()])
    record(tmp_path / "bad", [line(), line(step=500, **changes)])
    recordings, (problem,) = figure_similarity.read([tmp_path])
    assert [recording.directory.name for recording in recordings] == ["good"]
    assert "bad/similarity.jsonl is damaged" in problem and "\n" not in problem


def test_tables_and_figures_are_written(tmp_path, capsys):
    """Two recordings of one game; the arm of one has the signs of a formula."""
    for name in ("a", "b"):
        record(tmp_path / name, [line()])
    directory = write_run(tmp_path / "a", "rcrl", "Alien", 0)
    config = json.loads((directory / "manifest.json").read_text())["run"]["config"]
    edit(directory / "manifest.json", "run", config=config | {"embedding_init": "$\\frac{$"})
    figure_similarity.run([tmp_path], tmp_path / "out")
    assert "rcrl(embedding_init=$" in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        f"figure_similarity_Alien{number}.{suffix}"
        for number in ("", "_2") for suffix in ("csv", "md", "tex", "html", "png")
    }  # fmt: skip


def test_without_recordings_there_is_nothing_to_draw(tmp_path):
    with pytest.raises(ValueError, match="no similarity.jsonl"):
        figure_similarity.run([tmp_path], tmp_path / "out")
