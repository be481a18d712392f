"""The score tables: the paper's aggregates from its columns alone, and ours worked out by hand."""

import json

import numpy as np
import pytest

from rcrl_jax import reference
from rcrl_jax.report import dmc_table, score_tables, terminal
from rcrl_jax.results import store
from tests.results.synthetic import evaluation, write_json, write_run

# Column: median, mean and interquartile mean over games in percent, games at human level. Worked
# out once outside this code; the paper prints the medians with one decimal, and 16.7 for
# ERainbow-sa.
AGGREGATES = {
    "SimPLe": (14.36, 44.27, 23.90, 2),
    "Rainbow": (-0.02, -9.00, -0.26, 0),
    "ERainbow": (16.14, 28.54, 14.24, 2),
    "ERainbow-sa": (16.86, 30.29, 19.89, 2),
    "CURL": (17.53, 38.14, 18.90, 2),
    "RCRL": (18.50, 31.82, 20.35, 2),
    "RCRL+CURL": (19.59, 38.39, 21.96, 2),
}


def cells(table, name, source):
    """Row label -> cell of one column."""
    headings = [column.heading() for column in table.columns]
    number = headings.index(f"{name} {source}")
    return {row.label: row.cells[number] for row in table.rows}


def runs_of(root):
    return store.read_runs(root).runs


def hns(game, level):
    random, human = (reference.published(game, name) for name in ("Random", "Human"))
    return float(random + level * (human - random))


def test_published_columns_alone_give_the_papers_aggregates():
    table = score_tables.table1([])
    assert len(table.rows) == 26 + 4
    for name, expected in AGGREGATES.items():
        column = cells(table, name, "published")
        found = [100 * column[f"{kind} HNS"].value for kind in ("median", "mean", "IQM")]
        # The figures were rounded to two decimals of a percent.
        assert found == pytest.approx(expected[:3], abs=0.00501)
        assert column["games at human level"].value == expected[3]
    text = terminal.to_text(table)
    assert "16.86 %" in text
    notes = [note for note in table.notes if "prints a median" in note]
    assert len(notes) == 1 and "ERainbow-sa" in notes[0] and "16.7 %" in notes[0]


def test_the_best_published_cells_are_the_bold_ones_of_the_paper():
    table = score_tables.table1([])
    counts = {
        name: sum(cells(table, name, "published")[game].best for game in reference.games())
        for name in AGGREGATES
    }
    assert counts == {
        "SimPLe": 10, "Rainbow": 0, "ERainbow": 3, "ERainbow-sa": 0, "CURL": 3, "RCRL": 3,
        "RCRL+CURL": 7,
    }  # fmt: skip


def test_cells_of_ours_are_means_with_their_runs_and_the_rest_is_missing(tmp_path):
    for seed, score in enumerate((100.0, 200.0, 600.0)):
        write_run(tmp_path, "rcrl", "Alien", seed, score)
    write_run(tmp_path, "curl", "Alien", 0, 250.0)
    table = score_tables.table1(runs_of(tmp_path), env_steps=1000)
    rcrl = cells(table, "rcrl", "ours")
    assert rcrl["Alien"] == (300.0, 3, True, None)
    assert rcrl["Pong"].value is None and rcrl["median HNS"].value is None
    assert cells(table, "curl", "ours")["Alien"] == (250.0, 1, False, None)
    # (300 - 227.8) / (7127.7 - 227.8) and (854.2 - 227.8) / (7127.7 - 227.8)
    assert any("rcrl: 1 of 26 games" in note and "ours 1.0 %, published 9.1 %" in note
               for note in table.notes)  # fmt: skip
    assert any("not comparable" in note and "1,000" in note for note in table.notes)
    assert any(
        note == "No run of rainbow, erainbow, erainbow_sa, rcrl_curl." for note in table.notes
    )


def test_aggregates_of_ours_are_taken_over_game_means(tmp_path):
    """Game g of 26 has the mean level g / 100: median 12.5, mean 12.5, middle 14 of 26: 12.5."""
    for number, game in enumerate(reference.games()):
        level = number / 100
        for seed, offset in enumerate((-0.05, 0.05)):
            write_run(tmp_path, "rcrl", game, seed, hns(game, level + offset))
    write_run(tmp_path, "rcrl", "Alien", 2, hns("Alien", 0.0))
    column = cells(score_tables.table1(runs_of(tmp_path)), "rcrl", "ours")
    for kind in ("median", "mean", "IQM"):
        assert column[f"{kind} HNS"].value == pytest.approx(0.125)
        assert column[f"{kind} HNS"].seeds == 2  # of the game that has the fewest
    assert column["games at human level"].value == 0


def test_other_readings_of_a_system_appear_only_with_runs(tmp_path):
    def names(table):
        return [column.name for column in table.columns if column.source == "ours"]

    assert "rcrl_normal" not in names(score_tables.table1([]))
    write_run(tmp_path, "rcrl_normal", "Alien")
    table = score_tables.table1(runs_of(tmp_path))
    shown = [column.name for column in table.columns]
    assert shown[shown.index("RCRL") :][:3] == ["RCRL", "rcrl", "rcrl_normal"]
    assert names(score_tables.table1([], ["der_plus", "rcrl"])) == ["rcrl", "der_plus"]


def test_mixed_conditions_and_diverged_runs_are_said(tmp_path):
    write_run(tmp_path, "rcrl", "Alien", 0, algorithm=1)
    directory = write_run(tmp_path, "rcrl", "Alien", 1, None, algorithm=2)
    write_json(directory / "diverged.json", {"attempts": 2})
    notes = score_tables.table1(runs_of(tmp_path)).notes
    assert any(note.startswith("Mixed") for note in notes)
    assert any(note.startswith("1 of our runs diverged") for note in notes)
    assert not any(note.startswith("Mixed") for note in score_tables.table1([]).notes)


def test_table_2_has_both_budgets_side_by_side(tmp_path):
    for steps, score in ((100, 300.0), (1500, 900.0)):
        write_run(tmp_path / str(steps), "rcrl", "Alien", 0, score, steps=steps)
    table = score_tables.table2(runs_of(tmp_path), budgets=(100, 1500))
    assert [row.label for row in table.rows[:5]] == list(reference.games()[:5])
    assert cells(table, "RCRL 100k", "published")["Alien"].value == 854.2
    assert cells(table, "RCRL 1.5M", "published")["Alien"] == (1824.0, None, True, None)
    assert cells(table, "rcrl 100", "ours")["Alien"][:2] == (300.0, 1)
    assert cells(table, "rcrl 1500", "ours")["Alien"][:2] == (900.0, 1)
    levels = [
        reference.human_normalised(row.game, row.score)
        for row in reference.atari1p5m_scores()
        if (row.agent, row.env_interactions) == ("RCRL", 1_500_000)
    ]
    assert cells(table, "RCRL 1.5M", "published")["median HNS"].value == sorted(levels)[2]


class TestDmc:
    def test_scores_before_the_end_are_those_of_an_evaluation(self, tmp_path):
        for seed, score in enumerate((700.0, 800.0)):
            directory = write_run(tmp_path, "rcrl_sac", "cheetah_run", seed, score, steps=125_000)
            at_100k = evaluation(25_000, 4, [300.0 + 100 * seed])
            final = evaluation(125_000, 4, [score - 1.0, score + 1.0] * 5)
            lines = [json.dumps(line) + "\n" for line in (at_100k, final)]
            (directory / "evaluations.jsonl").write_text("".join(lines))
        column = cells(dmc_table.dmc_table(runs_of(tmp_path)), "rcrl_sac", "ours")
        deviation = pytest.approx(np.sqrt(5000))
        assert column["cheetah_run, 100k"] == (350.0, 2, False, deviation)
        assert column["cheetah_run, 500k"] == (750.0, 2, False, deviation)
        assert column["walker_walk, 500k"].value is None

    def test_a_single_seed_has_no_deviation_and_state_agents_do_not_compete(self, tmp_path):
        for preset, score in (("state_sac", 900.0), ("pixel_sac", 200.0), ("curl_sac", 300.0)):
            write_run(tmp_path, preset, "cartpole_swingup", 0, score, steps=62_500)
        table = dmc_table.dmc_table(runs_of(tmp_path))
        place = "cartpole_swingup, 500k"
        assert cells(table, "state_sac", "ours")[place] == (900.0, 1, False, None)
        assert cells(table, "curl_sac", "ours")[place] == (300.0, 1, True, None)
        assert cells(table, "CURL", "published")[place] == (841.0, None, False, 45.0)
        assert not cells(table, "State SAC", "published")[place].best
