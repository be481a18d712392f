"""The studies at a small scale: the results behind the verdicts of docs/theory.md."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.theory import abstractions, problems
from experiments.theory import z_learning as zl
from experiments.theory.studies import abstraction, approximation, failures, learning

TINY = problems.Scale(seeds=2, mdps=2, restarts=5)


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
    assert abstractions.size(abstractions.group_rows(law.pmf)) == 4


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
    sizes = table["policy_outside_bisimulation"]
    assert sizes == {"different_means": 10, "bisimulation_times_actions": 2}
    assert table["cover"]["points"] > table["cover"]["claimed_at_most"]


def test_proposition_b_1_fails_until_samples_show_the_imbalance():
    rows = failures.unrealisable(problems.Scale(seeds=10, mdps=1))
    fixed = {row["samples"]: row for row in rows if row["imbalance"] == "1e-6"}
    assert fixed[1e6]["outside"] > problems.DELTA > fixed[1e14]["outside"]
    falling = [row["outside"] for row in rows if row["imbalance"] != "1e-6"]
    assert len(falling) == 5 and min(falling) > problems.DELTA


def test_identity_is_the_only_minimiser_for_random_returns_alone():
    rows = learning.identity_encoder(TINY)
    assert {row["returns"]: row["only"] for row in rows} == {"random": 4, "deterministic": 0}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=9, max_size=9))
def test_free_merges_are_those_of_all_encoders(cells):
    zeros, ones = (np.array(counts).reshape(3, 3) for counts in zip(*cells, strict=True))

    def gain(labels):
        found = Fraction(0)
        for i, j in itertools.product(set(labels), repeat=2):
            block = np.ix_(np.array(labels) == i, np.array(labels) == j)
            total, signed = (
                zeros[block].sum() + ones[block].sum(),
                ones[block].sum() - zeros[block].sum(),
            )
            found += Fraction(int(signed) ** 2, int(total)) if total else 0
        return found

    merging = [e for e in zl.partitions(3, 3).tolist() if len(set(e)) < 3]
    free = any(gain(e) == gain([0, 1, 2]) for e in merging)
    assert learning.has_free_merge(zeros + ones, (ones - zeros) / 2) == free


def test_proved_left_side_exceeds_the_bound_from_1e17_samples():
    rows = {row["samples"]: row for row in learning.theorem_rare_probe(TINY)["proof"]}
    assert rows[1e16]["left_at_least"] < rows[1e16]["bound"]
    for n in (1e17, 1e18, 1e20):
        assert rows[n]["left_at_least"] > rows[n]["bound"]
        assert rows[n]["probability_at_least"] > 0.87


def test_slope_by_hand():
    rows = [{"samples": 10**k, "error": error} for k, error in enumerate((1.0, 0.1, 0.01, 0.0))]
    assert learning._slope(rows, "error") == pytest.approx(-1.0)
