"""One's own runs: scores by arm and game, and estimates over the games that arms share."""

import re

import numpy as np
import pytest

from rcrl_jax.tables import panels, runs, statistics, summary
from tests.tables.synthetic import score_at, write_json, write_run

LEVELS = {"rcrl": (0.1, 0.2, 0.6, 1.4), "curl": (0.0, 0.05, 0.07, 0.08)}


def finish(root, arms=LEVELS, games=("Alien", "Pong"), **of_run):
    """Runs of arms at these human-normalised levels, a seed each, on every game."""
    for preset, levels in arms.items():
        for game in games:
            for seed, level in enumerate(levels, start=50):
                write_run(root, preset, game, seed, score_at(game, level), **of_run)
    return read(root)


def read(root):
    return runs.read(root, unfinished=True).frame


def texts(table):
    """Row label -> the texts of its cells by column."""
    names = [column.name for column in table.columns]
    return {
        row.label: dict(zip(names, map(row.text, row.cells), strict=True)) for row in table.rows
    }


def test_the_longer_side_of_the_scores_goes_down(tmp_path):
    for game, scores in {"Pong": (1.0, 3.0), "Alien": (50.0,), "Hero": (7.0,)}.items():
        for seed, score in enumerate(scores):
            write_run(tmp_path, "rcrl", game, seed, score)
            write_run(tmp_path, "curl", game, seed, 10 * score)
    by_game = texts(summary.score_table(read(tmp_path)))
    assert [*by_game] == ["Alien", "Hero", "Pong"]
    assert by_game["Pong"] == {"curl": "20.0 ± 14.1 (2)", "rcrl": "2.0 ± 1.4 (2)"}
    for preset in ("erainbow", "erainbow_sa"):
        write_run(tmp_path, preset, "Pong", 0, 5.0)
    by_arm = texts(summary.score_table(read(tmp_path)))
    assert by_arm["rcrl"] == {"Alien": "50.0 (1)", "Hero": "7.0 (1)", "Pong": "2.0 ± 1.4 (2)"}
    assert by_arm["erainbow"]["Alien"] == "–"


def test_unfinished_runs_are_counted_below_the_scores(tmp_path):
    write_run(tmp_path, seed=0)
    write_run(tmp_path, seed=1, score=None)
    table = summary.score_table(read(tmp_path))
    assert texts(table)["Pong"] == {"rcrl": "10.0 (1)"}
    assert table.notes[1:] == ["rcrl: 1 run unfinished, in the curves alone."]


def test_arms_are_compared_on_the_largest_grid_with_several_runs(tmp_path):
    frame = finish(tmp_path, {**LEVELS, "erainbow": (0.1, 0.3)})
    write_run(tmp_path, "der_plus", "Pong", 0, 1.0)  # a single run
    for seed in range(2):
        write_run(tmp_path, "der_plus", "Alien", seed, 1.0)
    assert [*summary.compare(frame).scores] == ["erainbow", "curl", "rcrl"]
    found = summary.compare(read(tmp_path))
    assert found.games == ["Alien", "Pong"] and found.left_out == ["der_plus"]
    assert not found.has_intervals  # two runs of a game have none
    notes = summary.estimates(found).notes
    assert notes[1] == "Not here, because they lack one: der_plus."


def test_arms_that_share_games_are_compared_whatever_larger_ones_share(tmp_path):
    arms = {"rcrl": ("Alien", "Amidar", "Assault"), "curl": ("Pong", "Boxing", "Qbert")}
    for preset, games in (arms | {"erainbow": ("Alien", "Amidar")}).items():
        finish(tmp_path, {preset: (0.1, 0.2)}, games)
    found = summary.compare(read(tmp_path))
    assert {*found.scores} == {"rcrl", "erainbow"} and found.left_out == ["curl"]
    assert found.games == ["Alien", "Amidar"]


def test_one_arm_or_single_runs_are_not_compared(tmp_path):
    frame = finish(tmp_path / "one", {"rcrl": LEVELS["rcrl"]})
    assert summary.compare(frame) is None
    assert summary.compare(finish(tmp_path / "single", {"rcrl": (0.1,), "curl": (0.2,)})) is None
    assert summary.compare(read(tmp_path / "one").head(0)) is None


def test_estimates_are_those_of_the_scores(tmp_path):
    found = texts(summary.estimates(summary.compare(finish(tmp_path))))
    # Of 8 runs the middle 4: 0.2, 0.2, 0.6, 0.6. Gaps 0.9, 0.8, 0.4, 0.
    starts = {name: text.partition(" [")[0] for name, text in found["rcrl"].items()}
    assert starts == {"IQM": "0.400", "mean": "0.575", "optimality gap": "0.525"}
    assert found["curl"]["optimality gap"] == "0.950 [0.930, 0.972]"


def test_the_probability_of_improvement_is_of_the_row_over_the_column(tmp_path):
    found = texts(summary.improvements(summary.compare(finish(tmp_path))))
    assert found == {
        "curl": {"curl": "–", "rcrl": "0.00 [0.00, 0.00]"},
        "rcrl": {"curl": "1.00 [1.00, 1.00]", "rcrl": "–"},
    }


def test_games_without_reference_scores_are_estimated_one_by_one(tmp_path):
    levels = {"minatar_rcrl": (0.0, 3.0, 4.0, 9.0), "minatar_erainbow": (2.0, 2.0, 2.0, 2.0)}
    for preset, scores in levels.items():
        for seed, score in enumerate(scores, start=500):
            write_run(tmp_path, preset, "Freeway", seed, score)
            write_run(tmp_path, preset, "Asterix", seed, 10 * score)
    found = summary.compare(read(tmp_path))
    assert found.unit is None and [*found.scores["minatar_rcrl"][0]] == [0.0, 30.0, 40.0, 90.0]
    table = summary.estimates(found)
    by_row = texts(table)
    assert [*by_row] == ["Asterix, IQM", "Asterix, mean", "Freeway, IQM", "Freeway, mean"]
    assert by_row["Freeway, mean"]["minatar_erainbow"] == "2.00 [2.00, 2.00]"
    # The middle half of 0, 3, 4, 9; resamples of the mean lie between 0 and 9.
    start, low, high = re.findall(r"[\d.]+", by_row["Freeway, IQM"]["minatar_rcrl"])
    assert float(start) == 3.5 and 0 <= float(low) < 3.5 < float(high) <= 9
    assert by_row["Asterix, mean"]["minatar_rcrl"].startswith("40.00 [")
    assert "These games have no reference scores: nothing is normalised." in table.notes


@pytest.mark.parametrize("seed, has_intervals", [(0, False), (50, True)])
def test_pre_registered_runs_have_no_interval(tmp_path, seed, has_intervals):
    for preset in ("rcrl", "erainbow_sa"):
        for own in range(seed, seed + 3):
            write_run(tmp_path, preset, "Hero", own, 10.0 + own, steps=100_000)
    found = summary.compare(read(tmp_path))
    assert found.has_intervals == has_intervals
    assert ("[" in str(texts(summary.improvements(found)))) == has_intervals


def test_profiles_and_sample_efficiency_are_drawn_of_the_scores(tmp_path):
    frame = finish(tmp_path)
    found, looks = summary.compare(frame), panels.styles(["rcrl", "curl"])
    lines = panels.profiles(found, looks).axes[0].lines
    levels, shares = lines[1].get_data()
    assert (levels[0], levels[-1]) == (0.0, 1.4)
    np.testing.assert_allclose(shares, [np.mean(np.array(LEVELS["rcrl"]) > x) for x in levels])
    (axes,) = panels.efficiency(frame, found, looks).axes
    steps, values = axes.lines[1].get_data()
    assert [*steps] == [500, 1000] and values[1] == pytest.approx(0.4)
    assert len(axes.collections) == 2  # a band an arm


def test_sample_efficiency_counts_environment_steps_which_tasks_have_in_common(tmp_path):
    for preset in ("rcrl_sac", "sac_aug"):
        for task, steps in (("cheetah_run", 500), ("cartpole_swingup", 250)):
            for seed in range(2):
                write_run(tmp_path, preset, task, seed, 500.0, steps=steps)
    frame = read(tmp_path)
    figure = panels.efficiency(frame, summary.compare(frame), panels.styles([*frame.arm.unique()]))
    steps, values = figure.axes[0].lines[0].get_data()
    assert [*steps] == [1000, 2000]
    np.testing.assert_allclose(values, [0.002, 0.5])


@pytest.mark.parametrize("number", [1, None])
def test_runs_that_diverged_have_no_sample_efficiency(tmp_path, number):
    for run in [*finish(tmp_path).itertuples()][:number]:
        (run.directory / "scores.json").unlink()
        write_json(run.directory / "diverged.json", {"attempts": 2})
    frame = read(tmp_path)
    assert panels.efficiency(frame, summary.compare(frame), panels.styles([*LEVELS])) is None


def test_the_optimality_gap_and_the_profile_pool_all_runs():
    scores = [np.array([0.5, 2.0]), np.array([0.0, 0.25, 1.0])]
    assert statistics.optimality_gap(scores) == pytest.approx((0.5 + 1 + 0.75) / 5)
    profile = statistics.performance_profile(np.array([0.0, 0.5, 3.0]))
    np.testing.assert_allclose(profile(scores), [0.8, 0.4, 0.0])
    drawn = [np.stack([game, game + 1]) for game in scores]  # two data sets
    np.testing.assert_allclose(profile(drawn), [[0.8, 0.4, 0.0], [1.0, 1.0, 0.0]])
