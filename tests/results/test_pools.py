"""Runs are pooled only under equal conditions; scores are arranged by arm, game and seed."""

import numpy as np
import pytest

from rcrl_jax import reference, statistics
from rcrl_jax.results import pools, store
from tests.results.synthetic import write_run


def read(root, **options):
    reading = store.read_runs(root, **options)
    assert reading.problems == ()
    return reading.runs


def test_equal_conditions_are_one_pool_whatever_arm_game_and_seed(tmp_path):
    for preset in ("rcrl", "erainbow"):
        for game in ("Pong", "Hero"):
            write_run(tmp_path, preset, game, 0)
    write_run(tmp_path, seed=1)
    runs = read(tmp_path)
    assert pools.of_one_protocol(runs) == (runs, ())


def test_the_largest_set_is_kept_and_each_other_set_is_one_line(tmp_path):
    for seed in range(3):
        write_run(tmp_path, seed=seed)
    old = write_run(tmp_path / "old", seed=0, algorithm=1)
    write_run(tmp_path / "old", seed=1, algorithm=1)
    long = write_run(tmp_path / "long", steps=2000)
    runs = read(tmp_path)
    pool = pools.of_one_protocol(runs)
    assert {run.directory.parents[2] for run in pool.runs} == {tmp_path}
    assert pool.left_out == (
        f"2 runs left out: algorithm is 1, not 2 as in the 3 runs kept (for example {old})",
        f"1 run left out: env_steps is 2000, not 1000 as in the 3 runs kept (for example {long})",
    )
    assert pools.of_one_protocol(runs, mixed=True) == (runs, ())


def test_of_sets_of_one_size_longer_runs_then_the_newer_algorithm_are_kept(tmp_path):
    write_run(tmp_path / "short", algorithm=3)
    write_run(tmp_path / "long", steps=2000, algorithm=1)
    write_run(tmp_path / "newer", steps=2000, algorithm=2)
    (run,) = pools.of_one_protocol(read(tmp_path)).runs
    assert run.directory.parents[2].name == "newer"


def test_a_condition_that_a_manifest_lacks_counts_as_different(tmp_path):
    write_run(tmp_path, seed=0)
    write_run(tmp_path, seed=1)
    write_run(tmp_path / "other", backend=None)
    (line,) = pools.of_one_protocol(read(tmp_path)).left_out
    assert "backend is not stated, not envpool as in the 2 runs kept" in line


def test_each_family_keeps_a_set_of_its_own(tmp_path):
    write_run(tmp_path, "rcrl", "Pong")
    write_run(tmp_path, "rcrl", "Hero")
    write_run(tmp_path, "rcrl_sac", "cheetah_run")
    write_run(tmp_path, "rcrl_sac", "cartpole_swingup", steps=500)  # the same 4,000 steps
    pool = pools.of_one_protocol(read(tmp_path))
    assert [run.game for run in pool.runs] == ["Hero", "Pong", "cartpole_swingup", "cheetah_run"]
    assert pool.left_out == ()


def test_no_runs_are_an_empty_pool():
    assert pools.of_one_protocol([]) == ((), ())


def grid(root):
    """rcrl scores 100 on Pong and 200 on Hero, plus the seed; seeds of erainbow come later."""
    for game, level in (("Pong", 100.0), ("Hero", 200.0)):
        for seed in (10, 2, 0):
            write_run(root, "rcrl", game, seed, level + seed)
    for seed in (2, 10, 11):
        write_run(root, "erainbow", "Pong", seed, -1.0 * seed)
    return root


def test_scores_by_arm_and_game_are_in_the_order_of_seeds(tmp_path):
    runs = read(grid(tmp_path))
    scores = pools.scores(runs, ["erainbow", "rcrl"], ["Hero", "Pong", "Alien"])
    assert list(scores) == ["erainbow", "rcrl"]
    found = {arm: [game.tolist() for game in games] for arm, games in scores.items()}
    assert found["rcrl"] == [[200.0, 202.0, 210.0], [100.0, 102.0, 110.0], []]
    assert found["erainbow"] == [[], [-2.0, -10.0, -11.0], []]
    assert all(game.dtype == np.float64 for games in scores.values() for game in games)


def test_pairs_are_the_common_seeds_in_equal_order(tmp_path):
    runs = read(grid(tmp_path))
    first, second = pools.paired_scores(runs, "rcrl", "erainbow", ["Hero", "Pong"])
    assert [game.tolist() for game in first] == [[], [102.0, 110.0]]
    assert [game.tolist() for game in second] == [[], [-2.0, -10.0]]


def test_runs_of_different_conditions_are_no_pair(tmp_path):
    for algorithm, score in ((1, 10.0), (2, 20.0)):
        write_run(tmp_path / str(algorithm), "rcrl", score=score, algorithm=algorithm)
    write_run(tmp_path / "2", "erainbow", score=21.0, algorithm=2)
    write_run(tmp_path / "1", "erainbow", seed=1, score=11.0, algorithm=1)
    first, second = pools.paired_scores(read(tmp_path), "rcrl", "erainbow", ["Pong"])
    assert (first[0].tolist(), second[0].tolist()) == ([20.0], [21.0])


def test_unfinished_runs_have_no_score_and_diverged_ones_that_of_random_play(tmp_path):
    write_run(tmp_path, seed=0, score=None)
    (write_run(tmp_path, seed=1, score=None) / "diverged.json").write_text('{"attempts": 2}')
    runs = read(tmp_path, unfinished=True)
    assert pools.scores(runs, ["rcrl"], ["Pong"])["rcrl"][0].tolist() == [-20.7]
    first, _ = pools.paired_scores(runs, "rcrl", "rcrl", ["Pong"])
    assert first[0].tolist() == [-20.7]


def test_a_scale_is_applied_game_by_game(tmp_path):
    write_run(tmp_path, game="Pong", score=reference.published("Pong", "Human"))
    write_run(tmp_path, game="Hero", score=reference.published("Hero", "Random"))
    runs, games = read(tmp_path), ["Pong", "Hero", "Alien"]
    scale = reference.human_normalised
    expected = [[1.0], [0.0], []]
    scores = pools.scores(runs, ["rcrl"], games, scale=scale)["rcrl"]
    assert [game.tolist() for game in scores] == expected
    first, _ = pools.paired_scores(runs, "rcrl", "rcrl", games, scale=scale)
    assert [game.tolist() for game in first] == expected


def test_statistics_take_the_scores_as_they_are(tmp_path):
    for preset, level in (("rcrl", 100.0), ("erainbow", 50.0)):
        for seed in range(4):
            write_run(tmp_path, preset, seed=seed, score=level + seed)
    scores = pools.scores(read(tmp_path), ["rcrl", "erainbow"], ["Pong"])
    assert statistics.interquartile_mean(scores["rcrl"]) == pytest.approx(101.5)
    assert statistics.probability_of_improvement(scores["rcrl"], scores["erainbow"]) == 1.0
