"""Return distributions against numbers by hand and returns in fractions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.theory import mdp as mdps
from experiments.theory import problems, return_distributions
from tests.experiments.theory import exact

seeds = st.integers(0, 2**31 - 1)


@settings(max_examples=10)
@given(seeds, st.integers(1, 9))
def test_undiscounted_distribution_equals_enumeration(seed, bins):
    rng = np.random.default_rng(seed)
    mdp = mdps.garnet(rng, 3, 2, 2, (-1.0, 0.0, 2.0))
    mdp = mdp._replace(transition=mdp.transition * rng.uniform(0.5, 1.0, (3, 2, 1)))
    case = problems.Problem(mdp, mdps.random_policy(rng, 3, 2), 3)
    law, expected = case.returns(), exact.laws(case)
    assert (law.below, law.above) == (0.0, 0.0)
    support = law.resolution * law.lattice
    for pair, own in enumerate(expected):
        stored = dict(zip(np.round(support).astype(int), law.pmf[pair], strict=True))
        for value, probability in own.items():
            assert stored.pop(value) == pytest.approx(float(probability), abs=1e-12)
        assert max(stored.values(), default=0.0) < 1e-12
    probability = return_distributions.bin_returns(law, bins).probability
    np.testing.assert_allclose(
        probability, np.array(exact.binned(expected, bins), float), atol=1e-9
    )
    values = return_distributions.action_values(mdp, case.policy, 3)
    np.testing.assert_allclose(law.pmf @ support, values, atol=1e-12)


@settings(max_examples=5)
@given(seeds)
def test_discounted_returns_are_within_the_stated_error(seed):
    rng = np.random.default_rng(seed)
    mdp = mdps.garnet(rng, 2, 2, 2, (-1.0, 2.0), discount=0.6)
    case = problems.Problem(mdp, mdps.random_policy(rng, 2, 2), 4, 0.05)
    law = case.returns()
    support = law.resolution * law.lattice
    rounding = 0.05 * (1 + 0.6 + 0.36 + 0.216)
    assert law.above == pytest.approx(rounding + 2 * 0.6**4 / 0.4)
    assert law.below == pytest.approx(0.6**4 / 0.4)
    # The exact sum of four rewards is between the stored return and `rounding` above it.
    for pair, own in enumerate(exact.laws(case)):
        values, chances = np.array(list(own), float), np.array(list(own.values()), float)
        for z in support:
            below = law.pmf[pair, support <= z + 1e-9].sum()
            assert chances[values <= z + rounding + 1e-9].sum() >= below - 1e-12
            assert chances[values <= z - 1e-9].sum() <= below + 1e-12
    mean, stored = return_distributions.action_values(mdp, case.policy, 200), law.pmf @ support
    assert np.all(mean >= stored - law.below - 1e-9)
    assert np.all(mean <= stored + law.above + 1e-9)


def test_return_on_an_edge_is_in_the_lower_bin_and_the_lowest_in_the_first():
    # In floating point 3 * 0.1 / 0.3 > 1; as integers, 0.1 is in bin 1 and 0.2 in bin 2.
    binned = return_distributions.bin_returns(
        exact.one_step(np.eye(4), (0.0, 0.1, 0.2, 0.3)).returns(), 3
    )
    assert np.argmax(binned.probability, axis=1).tolist() == [0, 0, 1, 2]
    assert binned.width == pytest.approx(0.1)


def test_single_possible_return_is_in_the_first_bin():
    law = exact.one_step([[1.0], [1.0]], (5.0,)).returns()
    assert return_distributions.bin_returns(law, 4).probability.tolist() == [[1, 0, 0, 0]] * 2
