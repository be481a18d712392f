"""The studies at a small scale: the results behind the verdicts of docs/theory.md."""

import numpy as np
import pytest

from experiments.theory import mdp as mdps
from experiments.theory import problems
from experiments.theory.studies import abstraction, learning, segments

TINY = problems.Scale(seeds=2, mdps=2, restarts=5)


def test_proposition_4_1_holds_and_fails_for_wrong_values():
    rows = abstraction.proposition_representation(TINY)
    assert sum(row["violations"] for row in rows) == 0
    problem = problems.deterministic(np.random.default_rng(0))
    law = problem.returns()
    values = law.pmf @ (law.resolution * law.lattice)
    spread, _ = abstraction.class_spread(law, values[::-1], 16)  # Q of other pairs
    assert spread > 1


def test_sizes_are_ordered_and_distractors_keep_them():
    rows = abstraction.coarseness(TINY)
    assert all(row["ordered"] == row["mdps"] for row in rows)
    grids = {row["family"]: row for row in rows}
    few, many = grids["grid, 0 distractor bits"], grids["grid, 4 distractor bits"]
    assert many["pairs"] == 16 * few["pairs"]
    assert many["N_inf"] == few["N_inf"]


def test_pi_bisimulation_fails_in_expectation_but_not_jointly():
    rows = abstraction.pi_bisimulation(problems.Scale(seeds=1, mdps=3))
    fails = {row["rewards equal in"]: row["proposition fails"] for row in rows}
    assert fails["expectation"] > fails["joint"] == 0


def test_theorem_4_1_holds_for_every_dataset_and_its_left_side_falls():
    result = learning.theorem_fixed(TINY)
    for row in result["rows"]:
        assert row["inside"] == row["inside_lemma"] == 1
        assert row["average_mean"] <= row["left_mean"] <= row["left_quantile"]
    assert result["slope_left"] < 0 and result["slope_error"] < 0


def test_minimiser_is_an_irrelevance_with_enough_blocks_and_the_coarsest_with_just_enough():
    for row in learning.corollary(TINY):
        assert row["irrelevance"] == (row["extra_blocks"] >= 0)
        assert row["coarsest"] == 1 or row["extra_blocks"] != 0


def test_segments_need_at_least_as_many_blocks_as_independent_pairs():
    result = segments.segment_sampling(TINY)
    sizes = {row["pairs"]: row for row in result["sizes"]}
    for name in ("independent", "segment"):
        assert sizes[name]["mdps_where_irrelevance"] == sizes[name]["mdps"]
    needed = [sizes[name]["blocks_needed"] for name in ("independent", "segment")]
    assert needed[0] <= needed[1] <= result["visited_pairs"]
    assert sizes["segment, another step"]["blocks_needed"] < needed[1]
    exact = {row["pairs"]: row for row in result["rows"] if row["samples"] is None}
    assert exact["independent"]["value_error"] < exact["segment"]["value_error"]


def test_positives_have_equal_returns_only_undiscounted_and_sparse():
    rows = {row["setting"]: row for row in segments.segment_returns(TINY)}
    assert rows["sparse, discount 1"]["differs"] == 0.0
    assert rows["sparse, discount 0.99"]["differs"] > 0.0
    assert rows["dense, threshold 1"]["differs"] > 0.0


def test_slope_by_hand():
    rows = [{"samples": 10**k, "error": error} for k, error in enumerate((1.0, 0.1, 0.01, 0.0))]
    assert learning._slope(rows, "error") == pytest.approx(-1.0)


def test_an_encoder_that_merges_everything_splits_nothing():
    problem = problems.episodic(np.random.default_rng(0), 0, mdps.sparse_episodes, 0.0)
    size = problem.visited.size
    labels = np.stack([np.zeros(size, int), np.arange(size)])
    merged, apart = segments._encoder_errors(labels, problem)
    assert merged["split"] == 0 < merged["merged"]
    assert merged["value_error"] == pytest.approx(1.0)
    assert apart["merged"] == apart["left_average"] == 0
    assert apart["value_error"] == pytest.approx(0.0, abs=1e-9)
