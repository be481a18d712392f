"""The studies at a small scale: the results behind the verdicts of docs/theory.md."""

import numpy as np
import pytest

from rcrl_jax.theory import abstractions
from rcrl_jax.theory.studies import abstraction, approximation, failures, learning, problems

TINY = problems.Scale(seeds=2, mdps=2, restarts=5, deep_seeds=1, deep_steps=20)


def test_proposition_4_1_holds_and_fails_for_wrong_values():
    rows = abstraction.proposition_representation(TINY)
    assert sum(row["violations"] for row in rows) == 0
    problem = problems.deterministic(np.random.default_rng(0))
    law = problem.returns()
    spread, _, _ = abstraction.class_spread(law, law.mean[::-1], 16)  # Q of other pairs
    assert spread > 1


def test_sizes_are_ordered_and_distractors_keep_them():
    rows = abstraction.coarseness(TINY)
    assert all(row["ordered"] == row["mdps"] for row in rows)
    grids = {row["family"]: row for row in rows}
    few, many = grids["grid, 0 distractor bits"], grids["grid, 4 distractor bits"]
    assert many["pairs"] == 16 * few["pairs"]
    assert many["N_inf"] == few["N_inf"]


def test_pi_bisimulation_fails_in_expectation_but_not_jointly():
    result = abstraction.pi_bisimulation(problems.Scale(seeds=1, mdps=3))
    assert result["failing"]["joint"] == 0
    assert result["failing"]["expectation"] > 0


def test_four_kinds_have_four_return_distributions():
    law = problems.four_kinds(np.random.default_rng(0))
    assert abstractions.size(abstractions.coarsest_irrelevance(law.pmf)) == 4


def test_segments_need_at_least_as_many_blocks_as_independent_pairs():
    result = approximation.segment_sampling(TINY)
    sizes = {row["pairs"]: row for row in result["sizes"]}
    for name in ("independent", "segment"):
        assert sizes[name]["mdps_where_irrelevance"] == sizes[name]["mdps"]
    needed = [sizes[name]["blocks_needed"] for name in ("independent", "segment")]
    assert needed[0] <= needed[1] <= result["visited_pairs"]
    assert sizes["segment, another step"]["blocks_needed"] < needed[1]
    exact = {row["pairs"]: row for row in result["rows"] if row["samples"] is None}
    assert exact["independent"]["value_error"] < exact["segment"]["value_error"]


def test_positives_have_equal_returns_only_undiscounted_and_sparse():
    rows = {row["setting"]: row for row in approximation.segment_returns(TINY)}
    assert rows["sparse, discount 1"]["differs"] == 0.0
    assert rows["sparse, discount 0.99"]["differs"] > 0.0
    assert rows["dense, threshold 1"]["differs"] > 0.0


def test_counterexample_table():
    table = failures.counterexample_table(TINY)
    assert table["lowest_return_mass_without_bin"] == 1.0
    assert table["classes_by_bins"] == {"2": 4, "3": 3}
    assert table["tight_bin_error_over_width"] == 1.0
    assert not table["never_itself"]["wrong_is_irrelevance"]
    assert table["never_itself"]["loss_of_wrong_encoder"] == pytest.approx(
        table["never_itself"]["minimum"], abs=1e-12
    )
    assert table["cover"]["points"] > table["cover"]["claimed_at_most"]


def test_slope_by_hand():
    assert learning._slope([10, 100, 1000, 10_000], [1.0, 0.1, 0.01, 0.0]) == pytest.approx(-1.0)
