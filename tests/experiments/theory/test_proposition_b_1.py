"""Proposition B.1 (docs/theory.md), in integers and fractions."""

from fractions import Fraction

import pytest

from experiments.theory import bounds
from experiments.theory import z_learning as zl
from tests.experiments.theory import exact

HALF = Fraction(1, 2)


UNIFORM = [[Fraction(1, 9)] * 3] * 3
ENCODERS = zl.partitions(3, 2).tolist()
WITH_FIRST, WITH_LAST = [0, 0, 1], [0, 1, 1]  # what the middle pair is merged with


def best_of_two_blocks(imbalance):
    """The losses of all encoders, and the best predictor, for chances 0, 1/2 + imbalance and 1."""
    f_star = exact.bayes_predictor([Fraction(0), HALF + imbalance, Fraction(1)])
    losses = [exact.excess_loss(UNIFORM, f_star, e) for e in ENCODERS]
    best = ENCODERS[losses.index(min(losses))]
    return losses, best, exact.best_predictor(UNIFORM, f_star, best)


@pytest.mark.parametrize("imbalance", [Fraction(1, 10), Fraction(1, 10**6), Fraction(1, 10**9)])
def test_best_predictor_jumps_with_the_sign_of_the_imbalance(imbalance):
    losses, best, above = best_of_two_blocks(imbalance)
    opposite_losses, opposite, below = best_of_two_blocks(-imbalance)
    assert (best, opposite) == (WITH_LAST, WITH_FIRST)
    assert sorted(losses)[0] < sorted(losses)[1] and sorted(losses) == sorted(opposite_losses)
    # Any predictor is at least half of this distance away from one of the two.
    outer, inner = (
        (3 - 4 * imbalance - 4 * imbalance**2) / 8,
        (3 + 8 * imbalance + 4 * imbalance**2) / 8,
    )
    distance = exact.squared_distance(UNIFORM, above, below)
    assert distance == (2 * outer**2 + 4 * inner**2) / 9 > Fraction(3, 32)


def test_loss_of_two_blocks_is_the_polynomial_of_the_page():
    def polynomial(t):
        return (3 * t**2 - 4 * t**3 + 3 * t**4) / 9

    for imbalance in (Fraction(k, 20) for k in range(-9, 10)):
        chance = HALF + imbalance
        losses = dict(zip(map(tuple, ENCODERS), best_of_two_blocks(imbalance)[0], strict=True))
        assert losses[tuple(WITH_FIRST)] == polynomial(chance)
        assert losses[tuple(WITH_LAST)] == polynomial(1 - chance)
        assert losses[0, 1, 0] == (1 + (2 * chance - 1) ** 2) / 9
        assert losses[0, 0, 0] >= losses[0, 1, 0]
    assert polynomial(HALF) == Fraction(7, 144)


def test_signs_of_the_imbalance_cannot_be_told_apart():
    # Four of nine cells have labels 1/2 + e against 1/2 - e: KL <= 2e * 4e / (1 - 4 e^2) each.
    n = 10**6
    imbalance = Fraction(1, 100 * 1000)  # 0.01 / sqrt(n)
    variation_squared = Fraction(n, 2) * Fraction(4, 9) * 8 * imbalance**2 / (1 - 4 * imbalance**2)
    assert variation_squared < Fraction(14, 1000) ** 2
    above, below = (
        exact.bayes_predictor([Fraction(0), HALF + s * imbalance, Fraction(1)]) for s in (1, -1)
    )
    differing = [(i, j) for i in range(3) for j in range(3) if above[i][j] != below[i][j]]
    assert differing == [(0, 1), (1, 0), (1, 2), (2, 1)]
    assert {above[i][j] + below[i][j] for i, j in differing} == {Fraction(1)}
    assert {abs(above[i][j] - HALF) for i, j in differing} == {imbalance}


@pytest.mark.parametrize("n", [2 * 10**4, 10**6, 10**14])
def test_bound_of_proposition_b_1_is_below_half_the_jump(n):
    assert bounds.regression_bound(float(n), 2, 3, 0.05) < 3 / 128
