"""The rank test and the intervals against hand computation, SciPy, slow loops and simulation."""

import itertools

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from rcrl_jax import statistics


def rank_test(first, second, permutations=999, seed=0):
    rng = np.random.default_rng(seed)
    return statistics.stratified_rank_test(first, second, rng, permutations=permutations)


def interval(estimator, first, second, resamples=1000, seed=0):
    rng = np.random.default_rng(seed)
    return statistics.bootstrap_interval(estimator, first, second, rng, resamples=resamples)


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
    # n m / (N (N - 1)) times squared deviations of ranks: 6/20 * 10 = 3 and 2/6 * 1.5 = 0.5.
    assert test.z == pytest.approx((3 / 6 - 0.5 / 4) / np.sqrt(3 / 36 + 0.5 / 16))


def test_exact_p_value_by_hand():
    # One of the 20 ways to choose three of six ranks is the observed one, and one is its mirror.
    p = rank_test([[4, 5, 6]], [[1, 2, 3]], permutations=100_000).p_value
    assert p == pytest.approx(2 / 20, abs=0.004)


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


@pytest.mark.parametrize("ties", [False, True])
def test_one_game_equals_scipy(ties):
    rng = np.random.default_rng(1)
    x, y = rng.normal(0.4, 1, 12), rng.normal(0, 1, 9)
    if ties:
        x, y = np.round(x), np.round(y)
    test = rank_test([x], [y], permutations=100_000)
    mann_whitney = scipy.stats.mannwhitneyu(x, y, use_continuity=False, method="asymptotic")
    assert test.p_normal == pytest.approx(mann_whitney.pvalue, rel=1e-12)
    assert test.p_value == pytest.approx(mann_whitney.pvalue, abs=0.03)
    if not ties:  # ranksums does not correct its variance, and mannwhitneyu is exact
        assert test.z == pytest.approx(scipy.stats.ranksums(x, y).statistic, rel=1e-12)
        exact = scipy.stats.mannwhitneyu(x, y, method="exact").pvalue
        assert test.p_value == pytest.approx(exact, abs=0.006)


@settings(max_examples=60, deadline=None)
@given(arms)
def test_rank_test_equals_a_slow_loop(scores):
    first, second = scores
    statistic = variance = 0.0
    for x, y in zip(first, second, strict=True):
        pooled, n, m = x + y, len(x), len(y)
        ranks = [sum(o < v for o in pooled) + (pooled.count(v) + 1) / 2 for v in pooled]
        mean = sum(ranks) / (n + m)
        statistic += (sum(ranks[:n]) - n * mean) / (n + m + 1)
        spread = sum((rank - mean) ** 2 for rank in ranks)
        variance += n * m * spread / (n + m) / (n + m - 1) / (n + m + 1) ** 2
    test = rank_test(first, second, permutations=1)
    assert test.statistic == pytest.approx(statistic, abs=1e-12)
    assert test.z == pytest.approx(statistic / variance**0.5 if variance else 0.0, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(arms)
def test_monotone_transforms_within_a_game_change_nothing(scores):
    first, second = scores
    moved = [
        [np.exp(np.asarray(x) / (3 + number)) - 10 * number for number, x in enumerate(arm)]
        for arm in scores
    ]
    before, after = rank_test(first, second), rank_test(*moved)
    np.testing.assert_array_equal(before, after)
    assert statistics.probability_of_improvement(
        *[[np.asarray(x) for x in arm] for arm in scores]
    ) == statistics.probability_of_improvement(*moved)


@settings(max_examples=40, deadline=None)
@given(arms)
def test_exchanging_the_arms_changes_only_the_sign(scores):
    first, second = [[np.asarray(x) for x in arm] for arm in scores]
    forth, back = rank_test(first, second), rank_test(second, first)
    assert forth.z == pytest.approx(-back.z, abs=1e-9)
    assert forth.p_normal == pytest.approx(back.p_normal)
    assert forth.p_value == pytest.approx(back.p_value, abs=0.08)  # other permutations
    assert statistics.iqm_difference(first, second) == pytest.approx(
        -statistics.iqm_difference(second, first)
    )
    assert statistics.probability_of_improvement(first, second) == pytest.approx(
        1 - statistics.probability_of_improvement(second, first)
    )


@settings(max_examples=40, deadline=None)
@given(arms, st.randoms(use_true_random=False))
def test_the_order_of_runs_and_of_games_does_not_matter(scores, random):
    order = random.sample(range(len(scores[0])), len(scores[0]))
    shuffled = [[np.asarray(random.sample(arm[g], len(arm[g]))) for g in order] for arm in scores]
    first, second = [[np.asarray(x) for x in arm] for arm in scores]
    one, other = rank_test(first, second), rank_test(*shuffled)
    assert one.z == pytest.approx(other.z, abs=1e-9)
    assert one.p_value == pytest.approx(other.p_value, abs=0.08)  # other permutations
    for estimator in (statistics.iqm_difference, statistics.probability_of_improvement):
        assert estimator(first, second) == pytest.approx(estimator(*shuffled))


def test_equal_scores_are_no_evidence():
    test = rank_test([[0.0, 0.0]], [[0.0, 0.0, 0.0]])
    assert (test.statistic, test.z, test.p_normal, test.p_value) == (0, 0, 1, 1)


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


def test_probability_of_improvement_of_one_game_is_mann_whitney_s_u():
    rng = np.random.default_rng(4)
    x, y = rng.integers(5, size=8), rng.integers(5, size=11)
    u = scipy.stats.mannwhitneyu(x, y).statistic
    assert statistics.probability_of_improvement([x], [y]) == pytest.approx(u / 88)


@pytest.mark.parametrize(
    "estimator", [statistics.iqm_difference, statistics.probability_of_improvement]
)
def test_interval_equals_a_slow_loop(estimator):
    rng = np.random.default_rng(5)
    first = [rng.normal(size=n) for n in (4, 3)]
    second = [rng.normal(size=n) for n in (2, 6)]
    drawn = interval(estimator, first, second, resamples=50)
    rng = np.random.default_rng(0)
    indices = [[rng.integers(len(x), size=(50, len(x))) for x in arm] for arm in (first, second)]
    estimates = [
        estimator(
            [x[i[b]] for x, i in zip(first, indices[0], strict=True)],
            [y[i[b]] for y, i in zip(second, indices[1], strict=True)],
        )
        for b in range(50)
    ]
    assert drawn.estimate == estimator(first, second)
    assert drawn[1:] == pytest.approx(tuple(np.quantile(estimates, [0.025, 0.975])))


def test_equal_generators_give_equal_results():
    rng = np.random.default_rng(6)
    first, second = [rng.normal(size=9)], [rng.normal(size=9)]
    assert rank_test(first, second, seed=1) == rank_test(first, second, seed=1)
    one, again, other = (
        interval(statistics.iqm_difference, first, second, seed=seed) for seed in (1, 1, 2)
    )
    assert one == again != other
    assert one.estimate == other.estimate


@pytest.mark.parametrize("runs", [9, 20])
def test_intervals_cover_the_truth(runs):
    rng = np.random.default_rng(7)
    shift, games, simulations = 0.6, 4, 500
    truth = {
        statistics.iqm_difference: shift,
        statistics.probability_of_improvement: scipy.stats.norm.cdf(shift / np.sqrt(2)),
    }
    covered = dict.fromkeys(truth, 0)
    for _ in range(simulations):
        first, second = rng.normal(shift, 1, (games, runs)), rng.normal(0, 1, (games, runs))
        for estimator, value in truth.items():
            found = statistics.bootstrap_interval(
                estimator, list(first), list(second), rng, resamples=500
            )
            covered[estimator] += found.low <= value <= found.high
    for count in covered.values():
        assert 0.92 <= count / simulations <= 0.98


@pytest.mark.parametrize(
    "first, second, says",
    [
        ([[1.0]], [[1.0], [2.0]], "1 and 2 games"),
        ([], [], "0 and 0 games"),
        ([[1.0], []], [[1.0], [2.0]], "game 1 has no run"),
        ([[1.0, np.nan]], [[1.0]], "game 0 has a score that is not finite"),
    ],
)
def test_arms_that_cannot_be_compared_are_refused(first, second, says):
    with pytest.raises(ValueError, match=says):
        rank_test(first, second)
    with pytest.raises(ValueError, match=says):
        interval(statistics.iqm_difference, first, second)
