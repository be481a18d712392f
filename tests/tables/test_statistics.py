"""Statistics against hand computation, SciPy, rliable's own figures, slow loops and simulation."""

import itertools
import json

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from rcrl_jax.tables import statistics
from tests.golden import make_rliable_figures

RLIABLE = json.loads(make_rliable_figures.FILE.read_text())
AGGREGATES = {
    "mean": statistics.mean_of_game_means,
    "median": statistics.median_of_game_means,
    "iqm": statistics.interquartile_mean,
    "iqm_of_game_means": statistics.interquartile_mean_of_game_means,
}
COMPARISONS = {name: statistics.difference(estimator) for name, estimator in AGGREGATES.items()} | {
    "improvement": statistics.probability_of_improvement
}


def rank_test(first, second, permutations=999, seed=0):
    rng = np.random.default_rng(seed)
    return statistics.stratified_rank_test(first, second, rng, permutations=permutations)


def intervals(estimators, arms, resamples=1000, seed=0, **options):
    rng = np.random.default_rng(seed)
    return statistics.bootstrap_intervals(estimators, arms, rng, resamples=resamples, **options)


# Few distinct values, so that ties are common.
game = st.lists(st.integers(0, 6).map(float), min_size=1, max_size=5)
arms = st.integers(1, 3).flatmap(
    lambda games: st.tuples(*[st.lists(game, min_size=games, max_size=games) for _ in range(2)])
)


def test_rank_test_by_hand():
    # Game 1: 1 2 | 3 4 5. Ranks of the second arm 1 and 2; the first's sum 3 + 4 + 5 = 12, 9 by
    # chance; weight 1/6. Game 2: 7 = 7 | 3: mid-ranks 2.5 and 2.5, sum of the first 2.5 + 1 = 3.5,
    # 4 by chance; weight 1/4.
    test = rank_test([[3, 4, 5], [7, 3]], [[1, 2], [7]])
    assert test.statistic == pytest.approx(3 / 6 - 0.5 / 4)


def test_p_value_equals_enumeration_of_all_permutations():
    first, second = [[5.0, 5.0, 9.0], [2.0, 1.0]], [[3.0, 5.0], [1.0, 0.0, 1.0]]
    observed = abs(rank_test(first, second).statistic)
    as_far = total = 0
    for chosen in itertools.product(*[itertools.combinations(range(5), len(x)) for x in first]):
        relabelled = [[], []]
        for x, y, members in zip(first, second, chosen, strict=True):
            pooled = x + y
            relabelled[0].append([pooled[i] for i in members])
            relabelled[1].append([pooled[i] for i in range(5) if i not in members])
        as_far += abs(rank_test(*relabelled, permutations=1).statistic) >= observed - 1e-9
        total += 1
    assert total == 100
    p = rank_test(first, second, permutations=100_000).p_value
    assert p == pytest.approx(as_far / total, abs=0.006)


def test_p_value_counts_the_observed_labels_as_one_permutation():
    many = np.arange(40.0)
    assert rank_test([many + 100], [many], permutations=99).p_value == 1 / 100


@settings(max_examples=60)
@given(arms)
def test_rank_test_equals_a_slow_loop(scores):
    first, second = scores
    statistic = 0.0
    for x, y in zip(first, second, strict=True):
        pooled, n, m = x + y, len(x), len(y)
        ranks = [sum(o < v for o in pooled) + (pooled.count(v) + 1) / 2 for v in pooled]
        mean = sum(ranks) / (n + m)
        statistic += (sum(ranks[:n]) - n * mean) / (n + m + 1)
    test = rank_test(first, second, permutations=1)
    assert test.statistic == pytest.approx(statistic, abs=1e-12)


def test_equal_scores_are_no_evidence():
    test = rank_test([[0.0, 0.0]], [[0.0, 0.0, 0.0]])
    assert (test.statistic, test.p_value) == (0, 1)


def test_data_sets_of_leading_axes_are_tested_independently():
    rng = np.random.default_rng(2)
    first = [rng.normal(size=(3, 2, n)) for n in (4, 6)]
    second = [rng.normal(size=(3, 2, n)) for n in (5, 3)]
    together = rank_test(first, second)
    assert together.p_value.shape == (3, 2)
    alone = rank_test([x[1, 1] for x in first], [y[1, 1] for y in second])
    np.testing.assert_allclose([field[1, 1] for field in together], alone, rtol=1e-12)


def test_type_one_error_of_the_test():
    rng = np.random.default_rng(3)
    shape = (3000, 9)
    # Ties, a heavy tail, other scales and lengths: the level must hold for all of them.
    games = [
        lambda shape: rng.normal(size=shape),
        lambda shape: 1e3 * rng.standard_cauchy(shape),
        lambda shape: rng.integers(3, size=shape),
    ]
    first = [draw(shape) for draw in games]
    second = [draw((3000, runs)) for draw, runs in zip(games, (9, 7, 5), strict=True)]
    rejected = rank_test(first, second).p_value <= 0.05
    assert 0.04 <= rejected.mean() <= 0.06


def test_interquartile_mean_by_hand():
    # Of 9 runs the two lowest and the two highest go: mean of 3, 4, 5, 6, 10.
    assert statistics.interquartile_mean([[1, 100, 3, 4, 5], [6, 10, -7, 50]]) == 28 / 5
    scores = [np.arange(20.0) ** 2, -np.arange(16.0)]
    trimmed = scipy.stats.trim_mean(np.concatenate(scores), 0.25)
    assert statistics.interquartile_mean(scores) == pytest.approx(trimmed)


def test_probability_of_improvement_by_hand():
    first = [np.array([1.0, 3.0]), np.array([5.0])]
    second = [np.array([1.0, 2.0, 0.0]), np.array([6.0, 7.0])]
    # Game 1: 1 beats 0 and ties with 1, 3 beats all: 4.5 of 6. Game 2: none of 2.
    assert statistics.probability_of_improvement(first, second) == pytest.approx((4.5 / 6 + 0) / 2)


def test_game_means_are_aggregated_by_hand():
    # Game means 2, 10, 4, 5 and 1: sum 22; sorted 1, 2, 4, 5, 10, of which one at each end goes.
    scores = [[1.0, 3.0], [10.0], [4.0, 4.0, 4.0], [0.0, 10.0], [1.0]]
    assert statistics.mean_of_game_means(scores) == pytest.approx(22 / 5)
    assert statistics.median_of_game_means(scores) == 4
    assert statistics.interquartile_mean_of_game_means(scores) == pytest.approx(11 / 3)


def rliable_table(name: str) -> list[np.ndarray]:
    arm, runs = name.split("_")
    return [np.array(game[: int(runs)]) for game in RLIABLE["scores"][f"{arm}_20"]]


def assert_as_rliable(estimators, arms, figures, resamples):
    """Estimates equal rliable's; its 95 % intervals equal ours within the noise of both bootstraps.

    The share of a bootstrap distribution below its 2.5 % quantile, found from B resamples, has a
    standard deviation of sqrt(0.025 * 0.975 / B). Ends that differ by at most 4 such deviations
    lie between those of our intervals with 2 * 4 deviations less and more than 95 %.
    """
    ours = 4000
    deviation = np.sqrt(0.025 * 0.975 * (1 / ours + 1 / resamples))
    inner, outer = (
        intervals(estimators, arms, resamples=ours, level=0.95 + change)
        for change in (-8 * deviation, 8 * deviation)
    )
    for name, found in outer.items():
        expected = figures[name]["estimate"]
        low, high = np.array(figures[name]["interval"])
        np.testing.assert_allclose(found.estimate, expected, rtol=1e-12, atol=1e-12)
        # 1e-9: where many resamples agree, sums in another order differ by rounding.
        assert (found.low - 1e-9 <= low).all() and (low <= inner[name].low + 1e-9).all(), name
        assert (inner[name].high - 1e-9 <= high).all() and (high <= found.high + 1e-9).all(), name


@pytest.mark.parametrize("table", RLIABLE["figures"])
def test_aggregates_are_those_of_rliable(table):
    figures = RLIABLE["figures"][table]
    resamples = RLIABLE["resamples"]["aggregates"]
    estimators = {name: AGGREGATES[name] for name in figures}
    assert len(estimators) == 3
    assert_as_rliable(estimators, [rliable_table(table)], figures, resamples)


@pytest.mark.parametrize("pair", RLIABLE["improvement"])
def test_probability_of_improvement_is_that_of_rliable(pair):
    arms = [rliable_table(name) for name in pair.split()]
    assert_as_rliable(
        {"improvement": statistics.probability_of_improvement},
        arms,
        {"improvement": RLIABLE["improvement"][pair]},
        RLIABLE["resamples"]["improvement"],
    )


def test_the_script_still_makes_the_frozen_tables():
    for name, table in make_rliable_figures.synthetic_scores().items():
        np.testing.assert_array_equal(table.T, rliable_table(name))


@pytest.mark.parametrize("paired", [False, True])
def test_intervals_equal_a_slow_loop(paired):
    rng = np.random.default_rng(5)
    sizes = [(4, 3), (4, 3) if paired else (2, 6)]
    first, second = [[rng.normal(size=n) for n in own] for own in sizes]
    drawn = intervals(COMPARISONS, [first, second], resamples=50, paired=paired)
    rng = np.random.default_rng(0)
    indices = [[rng.integers(len(x), size=(50, len(x))) for x in first]]
    if paired:
        indices *= 2
    else:
        indices += [[rng.integers(len(y), size=(50, len(y))) for y in second]]
    for name, estimator in COMPARISONS.items():
        estimates = [
            estimator(
                [x[i[b]] for x, i in zip(first, indices[0], strict=True)],
                [y[i[b]] for y, i in zip(second, indices[1], strict=True)],
            )
            for b in range(50)
        ]
        assert drawn[name].estimate == estimator(first, second)
        assert drawn[name][1:] == pytest.approx(tuple(np.quantile(estimates, [0.025, 0.975])))
