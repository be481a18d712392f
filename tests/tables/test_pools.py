"""Runs are pooled only under equal conditions; scores are arranged by arm, game and seed."""

import json

import numpy as np

from rcrl_jax import reference
from rcrl_jax.tables import pools, runs
from tests.tables.synthetic import edit, write_run


def read(root, **options):
    frame, problems = runs.read(root, **options)
    assert problems == ()
    return frame


def test_the_largest_set_is_kept_and_each_other_set_is_one_line(tmp_path):
    for seed in range(3):
        write_run(tmp_path, seed=seed)
    old = write_run(tmp_path / "old", seed=0, algorithm=1)
    write_run(tmp_path / "old", seed=1, algorithm=1)
    long = write_run(tmp_path / "long", steps=2000)
    frame = read(tmp_path)
    pool = pools.largest(frame)
    assert {directory.parents[2] for directory in pool.runs.directory} == {tmp_path}
    assert pool.left_out == (
        f"2 runs left out: algorithm is 1, not 2 as in the 3 runs kept (for example {old})",
        f"1 run left out: env_steps is 2000, not 1000 as in the 3 runs kept (for example {long})",
    )
    assert [len(own) for own in pool.others] == [2, 1]


def test_of_sets_of_one_size_longer_runs_then_the_newer_algorithm_are_kept(tmp_path):
    write_run(tmp_path / "short", algorithm=3)
    write_run(tmp_path / "long", steps=2000, algorithm=1)
    write_run(tmp_path / "newer", steps=2000, algorithm=2)
    (directory,) = pools.largest(read(tmp_path)).runs.directory
    assert directory.parents[2].name == "newer"


def test_dirty_and_unknown_commits_are_named(tmp_path):
    write_run(tmp_path, seed=0)
    assert pools.unclear_commits(read(tmp_path)) == []
    for seed, commit in ((1, "abc-dirty"), (2, None)):
        path = write_run(tmp_path, seed=seed) / "manifest.json"
        edit(path, "versions", git_commit=commit)
    (line,) = pools.unclear_commits(read(tmp_path))
    assert "seed_0" not in line and "seed_1 (abc-dirty)" in line and "seed_2 (unknown)" in line


def test_a_run_that_went_on_elsewhere_is_not_pooled_and_its_commits_are_named(tmp_path):
    write_run(tmp_path, seed=0)
    path = write_run(tmp_path, seed=1) / "manifest.json"
    described = json.loads(path.read_text())
    now = {name: described[name] for name in ("environment", "protocol")}
    now |= {"device": {"platform": "gpu"}, "versions": {"git_commit": "abc-dirty"}}
    edit(path, "launch", resumed=[now])
    frame = read(tmp_path)
    assert frame.pool.nunique() == 2
    assert "seed_1 (0123456789 then abc-dirty)" in pools.unclear_commits(frame)[0]
    edit(path, "launch", resumed=[now | {"device": "gpu"}])
    _, (problem,) = runs.read(tmp_path)
    assert "launch.resumed is no list of circumstances" in problem


def test_a_published_budget_comes_before_a_larger_set(tmp_path):
    write_run(tmp_path / "whole", steps=100_000)
    for seed in range(3):
        write_run(tmp_path / "short", seed=seed)
    frame = read(tmp_path)
    assert [*pools.largest(frame).runs.env_steps] == [100_000]
    assert pools.budget(frame, "atari") == 100_000


def grid(root):
    """rcrl scores 100 on Pong and 200 on Hero, plus the seed; seeds of erainbow come later."""
    for game, level in (("Pong", 100.0), ("Hero", 200.0)):
        for seed in (10, 2, 0):
            write_run(root, "rcrl", game, seed, level + seed)
    for seed in (2, 10, 11):
        write_run(root, "erainbow", "Pong", seed, -1.0 * seed)
    return read(root)


def test_scores_by_game_are_in_the_order_of_seeds(tmp_path):
    frame = grid(tmp_path)
    found = {
        arm: [game.tolist() for game in pools.scores(frame, arm, ["Hero", "Pong", "Alien"])]
        for arm in ("rcrl", "erainbow")
    }
    assert found["rcrl"] == [[200.0, 202.0, 210.0], [100.0, 102.0, 110.0], []]
    assert found["erainbow"] == [[], [-2.0, -10.0, -11.0], []]


def test_pairs_are_the_common_seeds_in_equal_order(tmp_path):
    first, second = pools.paired_scores(grid(tmp_path), "rcrl", "erainbow", ["Hero", "Pong"])
    assert [game.tolist() for game in first] == [[], [102.0, 110.0]]
    assert [game.tolist() for game in second] == [[], [-2.0, -10.0]]


def test_runs_of_different_conditions_are_no_pair(tmp_path):
    for algorithm, score in ((1, 10.0), (2, 20.0)):
        write_run(tmp_path / str(algorithm), "rcrl", score=score, algorithm=algorithm)
    write_run(tmp_path / "2", "erainbow", score=21.0, algorithm=2)
    write_run(tmp_path / "1", "erainbow", seed=1, score=11.0, algorithm=1)
    first, second = pools.paired_scores(read(tmp_path), "rcrl", "erainbow", ["Pong"])
    assert (first[0].tolist(), second[0].tolist()) == ([20.0], [21.0])


def test_normalised_scores_are_those_of_their_game(tmp_path):
    write_run(tmp_path, game="Pong", score=reference.published("Pong", "Human"))
    write_run(tmp_path, game="Hero", score=reference.published("Hero", "Random"))
    games = ["Pong", "Hero", "Alien"]
    scores = pools.scores(read(tmp_path), "rcrl", games, normalised=True)
    assert [game.tolist() for game in scores] == [[1.0], [0.0], []]
    assert all(game.dtype == np.float64 for game in scores)
