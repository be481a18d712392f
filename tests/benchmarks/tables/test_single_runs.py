"""What single runs say of medians and means: against a slow reference, and where it stands."""

import random
import statistics

import numpy as np
import pytest

from benchmarks.tables import published, runs, scores, single_runs
from rcrl_jax import reference
from tests.benchmarks.tables.synthetic import write_run
from tests.benchmarks.tables.test_scores import cells, hns


def test_intervals_equal_those_of_a_slow_reference():
    rng = random.Random(1)
    frame = published.atari_runs()
    frame = frame[frame.agent == "CURL [rliable, final]"]
    levels = [
        [reference.human_normalised(game, score) for score in frame.score[frame.game == game]]
        for game in reference.games()
    ]
    drawn = [[rng.choice(game) for game in levels] for _ in range(5000)]
    found = single_runs.intervals(reference.games())
    for label, estimator in (("median HNS", statistics.median), ("mean HNS", statistics.fmean)):
        values = sorted(map(estimator, drawn))
        expected = [values[125], values[-126]]
        assert found[label] == pytest.approx(expected, abs=0.005)
    assert np.round(found["median HNS"], 3) == pytest.approx([0.053, 0.153], abs=0.002)
    assert np.round(found["mean HNS"], 2) == pytest.approx([0.18, 0.35], abs=0.01)


def test_they_stand_beside_columns_with_a_single_run_of_a_game_alone(tmp_path):
    for game in reference.games():
        write_run(tmp_path, "curl", game, 0, hns(game, 0.1))
        for seed in range(2):
            write_run(tmp_path, "erainbow", game, seed, hns(game, 0.1 + 0.1 * seed))
    shown = scores.table1(runs.read(tmp_path).frame)
    own = cells(shown, "curl", "ours")
    low, high = single_runs.intervals(reference.games())["median HNS"]
    label = "median HNS, one run of CURL"
    assert own[label].value == f"{100 * low:.1f} to {100 * high:.1f} %"
    assert cells(shown, "erainbow", "ours")[label].value is None
    assert cells(shown, "CURL", "published")[label].value is None
    labels = [row.label for row in shown.rows]
    assert labels.index(label) == labels.index("median HNS") + 1
    assert labels.count("mean HNS, one run of CURL") == 1
    assert sum("cannot be ranked" in note for note in shown.notes) == 1


def test_they_are_absent_where_every_game_has_several_runs(tmp_path):
    for game in reference.games():
        for seed in range(2):
            write_run(tmp_path, "curl", game, seed, hns(game, 0.1 + 0.1 * seed))
    shown = scores.table1(runs.read(tmp_path).frame)
    assert not [row.label for row in shown.rows if "one run" in row.label]
