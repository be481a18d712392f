"""The score tables: the paper's aggregates from its columns alone, and ours worked out by hand."""

import re
import tempfile

import numpy as np
import pytest

from rcrl_jax import reference
from rcrl_jax.tables import published, runs, scores
from tests.tables.synthetic import (
    edit,
    evaluation,
    score_at,
    write_json,
    write_lines,
    write_run,
)

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


with tempfile.TemporaryDirectory() as empty:
    NONE = runs.read(empty).frame


def cells(shown, name, source):
    """Row label -> cell of one column."""
    headings = [column.heading() for column in shown.columns]
    number = headings.index(f"{name} {source}")
    return {row.label: row.cells[number] for row in shown.rows}


def runs_of(root):
    return runs.read(root).frame


def test_published_columns_alone_give_the_papers_aggregates():
    shown = scores.table1(NONE)
    assert len(shown.rows) == 26 + 4
    for name, expected in AGGREGATES.items():
        column = cells(shown, name, "published")
        found = [100 * column[f"{kind} HNS"].value for kind in ("median", "mean", "IQM")]
        # The figures were rounded to two decimals of a percent.
        assert found == pytest.approx(expected[:3], abs=0.00501)
        assert column["games at human level"].value == expected[3]
    notes = [note for note in shown.notes if "prints a median" in note]
    assert len(notes) == 1 and "ERainbow-sa" in notes[0] and "16.7 %" in notes[0]


def test_the_best_published_cells_are_the_bold_ones_of_the_paper():
    shown = scores.table1(NONE)
    counts = {
        name: sum(cells(shown, name, "published")[game].best for game in reference.games())
        for name in AGGREGATES
    }
    assert counts == {
        "SimPLe": 10, "Rainbow": 0, "ERainbow": 3, "ERainbow-sa": 0, "CURL": 3, "RCRL": 3,
        "RCRL+CURL": 7,
    }  # fmt: skip


@pytest.mark.parametrize("episodes, by_chance", [(2, 137.5), (100, 127.0)])
def test_the_best_evaluation_stands_beside_chance_and_the_final_one(tmp_path, episodes, by_chance):
    """Returns 0 and 2 in the end: two means of two draws have a best of 1.375 on average.

    A mean is 0, 1 or 2 with probabilities 1/4, 1/2, 1/4; the larger of two is 0 with 1/16, 2 with
    7/16. On Freeway random play has 0 and a human 29.6. The evaluation halfway has 2. The last one
    with 100 episodes has 1 by chance, so the larger is 1.25, and a little more.
    """
    write_run(tmp_path, "rcrl", "Freeway", 0, 1.0, episodes=episodes)
    (note,) = [n for n in scores.table1(runs_of(tmp_path)).notes if "by chance" in n]
    found = re.search(r"rcrl (.*) % \(1 run of 1 game; by chance (.*) %; final (.*) %\)", note)
    best, chance, final = map(float, found.groups())
    assert best == pytest.approx(200 / 29.6, abs=0.05)
    assert chance == pytest.approx(by_chance / 29.6, abs=0.3)  # 1,000 draws: standard error 0.06
    assert final == pytest.approx(100 / 29.6, abs=0.05)


def test_the_published_mean_is_over_the_games_that_are_there(tmp_path):
    write_run(tmp_path, "rcrl", "Pong", 0, -20.7)
    level = reference.human_normalised("Pong", reference.published("Pong", "RCRL"))
    notes = scores.table1(runs_of(tmp_path)).notes
    assert any(f"ours 0.0 %, published {100 * level:.1f} %" in note for note in notes)


def test_table_1_notes_what_is_behind_published_columns_and_unclear_runs_of_ours(tmp_path):
    edit(write_run(tmp_path, "rcrl", "Alien") / "manifest.json", "versions", git_commit="a-dirty")
    diverged = write_run(tmp_path, "rcrl", "Alien", 1, None)
    write_json(diverged / "diverged.json", {"attempts": 2})
    lines = [evaluation(step, 1, [1.0, 3.0]) for step in (250, 500)]
    write_lines(diverged / "evaluations.jsonl", lines)
    shown = scores.table1(runs_of(tmp_path), env_steps=1000)
    notes = " ".join(shown.notes)
    assert "CURL (published): copied from CURL's paper: 20 seeds, best evaluation" in notes
    assert "seed_0 (a-dirty)" in notes and "1 of our runs diverged and count as random" in notes
    mean = (10.0 + reference.published("Alien", "Random")) / 2
    assert cells(shown, "rcrl", "ours")["Alien"].value == pytest.approx(mean)
    (best,) = [note for note in shown.notes if "by chance" in note]
    assert "(1 run of 1 game;" in best


def test_cells_of_ours_are_means_with_their_runs_and_the_rest_is_missing(tmp_path):
    for seed, score in enumerate((100.0, 200.0, 600.0)):
        write_run(tmp_path, "rcrl", "Alien", seed, score)
    write_run(tmp_path, "curl", "Alien", 0, 250.0)
    shown = scores.table1(runs_of(tmp_path), env_steps=1000)
    rcrl = cells(shown, "rcrl", "ours")
    assert rcrl["Alien"] == (300.0, 3, False, None)  # no best where an arm has a single run
    assert rcrl["Pong"].value is None and rcrl["median HNS"].value is None
    assert cells(shown, "curl", "ours")["Alien"] == (250.0, 1, False, None)
    # (300 - 227.8) / (7127.7 - 227.8) and (854.2 - 227.8) / (7127.7 - 227.8)
    assert any("rcrl: 1 of 26 games" in note and "ours 1.0 %, published 9.1 %" in note
               for note in shown.notes)  # fmt: skip
    assert any("not comparable" in note and "1,000" in note for note in shown.notes)
    names = [column.name for column in shown.columns if column.source == "ours"]
    assert names == ["curl", "rcrl"]  # presets without runs are hidden


def test_the_best_of_ours_is_marked_where_all_have_several_runs(tmp_path):
    for preset, scores_of in (("rcrl", (100.0, 300.0)), ("curl", (100.0, 200.0))):
        for seed, score in enumerate(scores_of):
            write_run(tmp_path, preset, "Alien", seed, score)
    shown = scores.table1(runs_of(tmp_path), env_steps=1000)
    assert cells(shown, "rcrl", "ours")["Alien"].best
    assert not cells(shown, "curl", "ours")["Alien"].best


def test_aggregates_of_ours_are_taken_over_game_means(tmp_path):
    """Game g of 26 has the mean level g / 100: median 12.5, mean 12.5, middle 14 of 26: 12.5."""
    for number, game in enumerate(reference.games()):
        level = number / 100
        for seed, offset in enumerate((-0.05, 0.05)):
            write_run(tmp_path, "rcrl", game, seed, score_at(game, level + offset))
    write_run(tmp_path, "rcrl", "Alien", 2, score_at("Alien", 0.0))
    column = cells(scores.table1(runs_of(tmp_path)), "rcrl", "ours")
    for kind in ("median", "mean", "IQM"):
        assert column[f"{kind} HNS"].value == pytest.approx(0.125)
        assert column[f"{kind} HNS"].seeds == 2  # of the game that has the fewest
    assert column["games at human level"].value == 0


def test_arms_stand_beside_the_published_system_of_their_preset(tmp_path):
    write_run(tmp_path, "rcrl_normal", "Alien")
    write_run(tmp_path, "der_plus", "Alien")
    write_run(tmp_path, "rcrl", "Alien", changes={"n_step": 5})
    shown = scores.table1(runs_of(tmp_path))
    names = [column.name for column in shown.columns]
    assert names[names.index("RCRL") :] == [
        "RCRL", "rcrl_normal", "rcrl(n_step=5)", "RCRL+CURL", "der_plus"
    ]  # fmt: skip


def test_an_arm_with_a_name_stands_beside_its_preset_s_system_and_is_explained_once(tmp_path):
    write_run(tmp_path, "rcrl", "Pong", changes={"n_step": 5}, arm="long_steps", steps=100_000)
    table = scores.table1(runs_of(tmp_path))
    names = [column.name for column in table.columns]
    assert names[names.index("RCRL") + 1] == "long_steps"
    assert [note for note in table.notes if "n_step" in note] == ["long_steps: rcrl(n_step=5)."]
    (note,) = (note for note in table.notes if "1 of 26 games" in note)
    assert "published" in note


def test_table_1_says_whether_a_run_of_simple_stands_beside_it(tmp_path):
    write_run(tmp_path, "rcrl", "Alien")
    write_run(tmp_path, "simple_small", "Alien")
    assert scores._NO_SIMPLE_NOTE in scores.table1(runs_of(tmp_path)).notes
    write_run(tmp_path, "simple", "Alien")
    shown = scores.table1(runs_of(tmp_path))
    assert scores._NO_SIMPLE_NOTE not in shown.notes
    names = [column.name for column in shown.columns]
    assert names[2:4] == ["SimPLe", "simple"] and names[-1] == "simple_small"


def test_table_2_has_both_budgets_side_by_side(tmp_path):
    for steps, score in ((100, 300.0), (1500, 900.0)):
        write_run(tmp_path / str(steps), "rcrl", "Alien", 0, score, steps=steps)
    shown = scores.table2(runs_of(tmp_path), budgets=(100, 1500))
    assert [row.label for row in shown.rows[:5]] == list(reference.games()[:5])
    assert cells(shown, "RCRL 100k", "published")["Alien"].value == 854.2
    assert cells(shown, "RCRL 1.5M", "published")["Alien"] == (1824.0, None, True, None)
    assert cells(shown, "rcrl 100", "ours")["Alien"][:2] == (300.0, 1)
    assert cells(shown, "rcrl 1.5k", "ours")["Alien"][:2] == (900.0, 1)
    long = published.atari_budgets().query("agent == 'RCRL' and env_interactions == 1_500_000")
    levels = [reference.human_normalised(row.game, row.score) for row in long.itertuples()]
    # No run of erainbow_sa, so no column.
    assert [c.name for c in shown.columns if c.source == "ours"] == ["rcrl\n100", "rcrl\n1.5k"]
    assert cells(shown, "RCRL 1.5M", "published")["median HNS"].value == sorted(levels)[2]


def test_the_note_on_single_runs_has_the_spread_of_one_published_run_a_game(tmp_path):
    rng = np.random.default_rng(1)
    levels = [
        rng.choice(reference.human_normalised(game, own), 20_000)
        for game, own in published.curl_runs().items()
    ]
    for game in reference.games():
        for seed in range(2):
            write_run(tmp_path, "erainbow", game, seed, score_at(game, 0.1 + 0.1 * seed))
    assert not [n for n in scores.table1(runs_of(tmp_path)).notes if "cannot be ranked" in n]
    for game in reference.games():
        write_run(tmp_path, "curl", game, 0, score_at(game, 0.1))
    (note,) = [n for n in scores.table1(runs_of(tmp_path)).notes if "cannot be ranked" in n]
    stated = [float(number) for number in re.findall(r"\d+\.\d", note)]
    drawn = [estimator(levels, axis=0) for estimator in (np.median, np.mean)]
    expected = 100 * np.quantile(drawn, [0.025, 0.975], axis=1).T
    np.testing.assert_allclose(stated, expected.ravel(), atol=0.5)


class TestDmc:
    def test_scores_before_the_end_are_those_of_an_evaluation(self, tmp_path):
        for seed, score in enumerate((700.0, 800.0)):
            directory = write_run(tmp_path, "rcrl_sac", "cheetah_run", seed, score, steps=125_000)
            at_100k = evaluation(25_000, 4, [300.0 + 100 * seed])
            final = evaluation(125_000, 4, [score - 1.0, score + 1.0] * 5)
            write_lines(directory / "evaluations.jsonl", [at_100k, final])
        column = cells(scores.control_table(runs_of(tmp_path)), "rcrl_sac", "ours")
        deviation = pytest.approx(np.sqrt(5000))
        assert column["cheetah_run, 100k"] == (350.0, 2, False, deviation)
        assert column["cheetah_run, 500k"] == (750.0, 2, False, deviation)
        assert column["walker_walk, 500k"].value is None

    def test_a_single_seed_has_no_deviation_and_state_agents_do_not_compete(self, tmp_path):
        for preset, score in (("state_sac", 900.0), ("pixel_sac", 200.0), ("curl_sac", 300.0)):
            write_run(tmp_path, preset, "cartpole_swingup", 0, score, steps=62_500)
        shown = scores.control_table(runs_of(tmp_path))
        place = "cartpole_swingup, 500k"
        assert cells(shown, "state_sac", "ours")[place] == (900.0, 1, False, None)
        assert cells(shown, "curl_sac", "ours")[place] == (300.0, 1, False, None)
        assert cells(shown, "CURL", "published")[place] == (841.0, None, False, 45.0)
        assert not cells(shown, "State SAC", "published")[place].best
        at_100k = "cartpole_swingup, 100k"
        assert cells(shown, "DrQ", "published")[at_100k].best
        assert not cells(shown, "State SAC", "published")[at_100k].best
        for seed in range(2):
            for preset, score in (("state_sac", 900.0), ("pixel_sac", 200.0), ("curl_sac", 300.0)):
                two = tmp_path / "two"
                write_run(two, preset, "cartpole_swingup", seed, score, steps=62_500)
        shown = scores.control_table(runs_of(tmp_path / "two"))
        assert cells(shown, "curl_sac", "ours")[place].best
        assert not cells(shown, "state_sac", "ours")[place].best

    def test_every_arm_is_in_the_table_or_named_below_it(self, tmp_path):
        write_run(tmp_path, "sac_aug", "cartpole_swingup", 0, 500.0, steps=12_500)
        changes = {"batch_size": 128}
        write_run(tmp_path, "rcrl_sac", "cheetah_run", 0, 1.0, steps=25_000, changes=changes)
        write_run(tmp_path, "curl_sac", "cheetah_run", 0, 1.0, steps=300)
        shown = scores.control_table(runs_of(tmp_path))
        names = [column.name for column in shown.columns]
        assert names[names.index("RAD [rliable run data]") + 1] == "sac_aug"
        assert "rcrl_sac(batch_size=128)" in names
        (note,) = (note for note in shown.notes if note.startswith("Not evaluated"))
        assert note == "Not evaluated at these steps: curl_sac."
