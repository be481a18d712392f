"""The fixed pairs by hand and by their rule, scripted discriminators, and the rule on tables."""

import numpy as np
import pytest

from experiments.returns import arms, measure
from rcrl_jax.return_contrast.instruments import Played
from tests.replay.test_segment_replay import chi_square, counts


def played(*returns) -> Played:
    """Games with the given returns of their steps."""
    lengths = [len(own) for own in returns]
    zeros = np.zeros(sum(lengths), np.int64)
    return Played(
        np.repeat(np.arange(len(returns)), lengths),
        np.concatenate([np.arange(n) for n in lengths]),
        zeros,
        zeros,
        np.concatenate(returns).astype(float),
    )


# steps               0  1  2  3    4  5  6    7  8    9
BY_HAND = played([2, 1, 1, 0], [2, 2, 0], [3, 1], [2])
# At time 0 the returns are 2 2 3 2: steps 0, 4 and 9 have partners of both labels, 7 of one.
# At time 1 they are 1 2 1: steps 1 and 8 have. At time 2 they are 1 0. Step 3 is alone.
PARTNERS = {0: ({4, 9}, {7}), 4: ({0, 9}, {7}), 9: ({0, 4}, {7}), 1: ({8}, {5}), 8: ({1}, {5})}


def draw(of: Played, size: int = 4000, tolerance: float = 0.0) -> measure.Drawn:
    return measure.draw(of, size, tolerance, np.random.default_rng(0))


def test_pairs_by_hand():
    drawn = draw(BY_HAND)
    for anchor, (same, different) in PARTNERS.items():
        own = drawn.anchor == anchor
        assert (set(drawn.same[own]), set(drawn.different[own])) == (same, different)
    assert set(drawn.anchor) == set(PARTNERS)
    assert chi_square(counts(drawn.anchor, list(PARTNERS)), np.ones(5)) > 1e-3
    assert chi_square(counts(drawn.same[drawn.anchor == 0], [4, 9]), np.ones(2)) > 1e-3


def test_returns_within_the_tolerance_have_the_same_label():
    drawn = draw(played([0.0], [0.4], [1.0]), tolerance=0.5)
    assert set(zip(*drawn, strict=True)) == {(0, 1, 2), (1, 0, 2)}


def test_without_partners_of_both_labels_nothing_is_drawn():
    drawn = draw(played([1, 0], [1, 0]))
    assert [len(x) for x in drawn] == [0, 0, 0]
    assert measure.auc(drawn.same, drawn.different) == 0.5


def random_games(rng) -> Played:
    """Games whose returns fall with time: at a step, time alone tells much of the return."""
    lengths = rng.integers(60, 200, 20)
    return played(*(np.cumsum((rng.random(n) < 0.05)[::-1])[::-1] for n in lengths))


def test_a_perfect_discriminator_has_1_a_clock_one_half_and_a_random_one_about_one_half():
    rng = np.random.default_rng(1)
    games = random_games(rng)
    drawn = draw(games)
    time, returns = games.time, games.returns
    assert np.all(games.game[drawn.anchor] != games.game[drawn.same])
    assert np.all(games.game[drawn.anchor] != games.game[drawn.different])

    def auc_of(logit) -> float:
        partners = (drawn.same, drawn.different)
        return measure.auc(*(logit(drawn.anchor, x).astype(float) for x in partners))

    assert auc_of(lambda a, b: returns[a] != returns[b]) == 1.0
    assert auc_of(lambda a, b: returns[a] == returns[b]) == 0.0
    noise = rng.random(len(time))
    for clock in (
        lambda a, b: np.abs(time[a] - time[b]),
        lambda a, b: time[a] + time[b],
        lambda a, b: noise[time[a]] * noise[time[b]],
    ):
        assert auc_of(clock) == 0.5
    # The standard error of 4,000 pairs of each label is 0.006.
    assert auc_of(lambda a, b: rng.random(len(a))) == pytest.approx(0.5, abs=0.03)


def test_what_cannot_be_computed_counts_as_one_half():
    enough, few = np.arange(20.0), np.arange(19.0)
    assert measure.auc(enough, enough + 100) == 1.0
    assert measure.auc(few, few + 100) == 0.5
    assert measure.auc(np.r_[enough, np.nan], enough + 100) == 0.5


# --- the rule ----------------------------------------------------------------------------------

TITLES = ("Alien", "Qbert", "RoadRunner", "Seaquest")


def means(*values: float) -> dict[str, float]:
    return dict(zip(TITLES, values, strict=True))


TODAY, CONTROL = means(0.55, 0.5, 0.5, 0.6), means(0.5, 0.5, 0.6, 0.5)


@pytest.mark.parametrize(
    "values, titles",
    [
        ((0.65, 0.6, 0.7, 0.7), 4),  # exactly 0.1 above the largest of the three
        ((0.649, 0.6, 0.7, 0.7), 3),
        ((0.649, 0.599, 0.7, 0.7), 2),
        ((0.9, 0.9, 0.69, 0.69), 2),  # below the control in one, below today's in the other
        ((0.4, 0.4, 0.4, 0.4), 0),
    ],
)
def test_an_arm_must_exceed_chance_today_s_and_the_control_in_the_same_titles(values, titles):
    arm = means(*values)
    assert len(measure.exceeded(arm, TODAY, CONTROL)) == titles
    chosen = measure.decide({"arm": arm}, TODAY, CONTROL)
    assert chosen == ("arm" if titles >= 3 else None)


def test_chance_is_exceeded_even_where_the_others_are_below_it():
    below = means(0.2, 0.2, 0.2, 0.2)
    assert measure.exceeded(means(0.59, 0.6, 0.61, 0.4), below, below) == ["Qbert", "RoadRunner"]


def test_of_the_arms_that_qualify_the_largest_mean_counts():
    barely = means(0.65, 0.6, 0.7, 0.0)
    best = means(0.7, 0.7, 0.8, 0.5)
    not_qualified = means(1.0, 1.0, 0.69, 0.69)
    candidates = {"a": barely, "b": best, "c": not_qualified, "d": best}
    assert measure.decide(candidates, TODAY, CONTROL) == "b"  # the first of equal means
    assert measure.decide({"c": not_qualified}, TODAY, CONTROL) is None
    assert arms.CANDIDATES == ("equal_return", "another_episode", "concatenation")
