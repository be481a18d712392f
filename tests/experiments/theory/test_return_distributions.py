"""Return distributions against numbers by hand and enumerated trajectories."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.theory import mdp as mdps
from experiments.theory import return_distributions

seeds = st.integers(0, 2**31 - 1)


def enumerated(mdp, policy, horizon):
    """For each pair, `{return: probability}` from all of its trajectories."""
    states, actions, _ = mdp.reward.shape

    def follow(state, action, steps):
        law = {}
        outcomes = list(enumerate(mdp.transition[state, action]))
        outcomes.append((None, 1 - mdp.transition[state, action].sum()))
        for value, chance in zip(mdp.reward_values, mdp.reward[state, action], strict=True):
            for successor, probability in outcomes:
                if chance * probability <= 1e-15:
                    continue
                later = {0.0: 1.0}
                if successor is not None and steps > 1:
                    later = {}
                    for following in range(actions):
                        for total, p in follow(successor, following, steps - 1).items():
                            weight = policy[successor, following] * p
                            later[total] = later.get(total, 0.0) + weight
                for total, p in later.items():
                    key = round(value + mdp.discount * total, 10)
                    law[key] = law.get(key, 0.0) + chance * probability * p
        return law

    return [follow(s, a, horizon) for s in range(states) for a in range(actions)]


@settings(max_examples=10, deadline=None)
@given(seeds)
def test_undiscounted_distribution_equals_enumeration(seed):
    rng = np.random.default_rng(seed)
    mdp = mdps.garnet(rng, 3, 2, 2, (-1.0, 0.0, 2.0))
    mdp = mdp._replace(transition=mdp.transition * rng.uniform(0.5, 1.0, (3, 2, 1)))
    policy = mdps.random_policy(rng, 3, 2)
    law = return_distributions.return_distribution(mdp, policy, 3)
    assert (law.below, law.above) == (0.0, 0.0)
    for pair, expected in enumerate(enumerated(mdp, policy, 3)):
        got = dict(zip(np.round(law.support, 10), law.pmf[pair], strict=True))
        for value, probability in expected.items():
            assert got.pop(value) == pytest.approx(probability, abs=1e-12)
        assert max(got.values(), default=0.0) < 1e-12


@settings(max_examples=5, deadline=None)
@given(seeds)
def test_discounted_returns_are_within_the_stated_error(seed):
    rng = np.random.default_rng(seed)
    mdp = mdps.garnet(rng, 2, 2, 2, (-1.0, 2.0), discount=0.6)
    policy = mdps.random_policy(rng, 2, 2)
    law = return_distributions.return_distribution(mdp, policy, 4, resolution=0.05)
    rounding = 0.05 * (1 + 0.6 + 0.36 + 0.216)
    assert law.above == pytest.approx(rounding + 2 * 0.6**4 / 0.4)
    assert law.below == pytest.approx(0.6**4 / 0.4)
    # The exact sum of four rewards is between the stored return and `rounding` above it.
    for pair, exact in enumerate(enumerated(mdp, policy, 4)):
        values = np.array(sorted(exact))
        chances = np.array([exact[v] for v in values])
        for z in law.support:
            below = law.pmf[pair, law.support <= z + 1e-9].sum()
            assert chances[values <= z + rounding + 1e-9].sum() >= below - 1e-12
            assert chances[values <= z - 1e-9].sum() <= below + 1e-12
    mean = return_distributions.action_values(mdp, policy, 200)
    assert np.all(mean >= law.mean - law.below - 1e-9)
    assert np.all(mean <= law.mean + law.above + 1e-9)


def test_truncation_and_rounding_errors_by_hand():
    mdp = mdps.one_step(np.ones((1, 1)), (1.0,))._replace(
        transition=np.ones((1, 1, 1)), discount=0.5
    )
    law = return_distributions.return_distribution(mdp, np.ones((1, 1)), 2, resolution=0.25)
    # 1 + 1/2 is on the lattice. Truncation: 1/4 / (1 - 1/2). Rounding: 0.25 (1 + 1/2).
    assert law.support[np.argmax(law.pmf[0])] == 1.5
    assert law.below == 0.0
    assert law.above == pytest.approx(0.5 + 0.375)


@settings(max_examples=10, deadline=None)
@given(seeds, st.integers(1, 9))
def test_bins_sum_to_one_and_means_are_action_values(seed, bins):
    rng = np.random.default_rng(seed)
    mdp = mdps.garnet(rng, 3, 2, 2, (-1.0, 0.5, 2.0))
    policy = mdps.random_policy(rng, 3, 2)
    law = return_distributions.return_distribution(mdp, policy, 4)
    binned = return_distributions.bin_returns(law, bins)
    np.testing.assert_allclose(binned.probability.sum(1), 1.0)
    np.testing.assert_allclose(
        law.mean, return_distributions.action_values(mdp, policy, 4), atol=1e-12
    )


def test_return_on_an_edge_is_in_the_lower_bin_and_the_lowest_in_the_first():
    law = return_distributions.return_distribution(
        mdps.one_step(np.eye(4), (0.0, 0.1, 0.2, 0.3)), np.ones((4, 1)), 1
    )
    # In floating point 3 * 0.1 / 0.3 > 1; as integers, 0.1 is in bin 1 and 0.2 in bin 2.
    assert np.argmax(return_distributions.bin_returns(law, 3).probability, axis=1).tolist() == [
        0,
        0,
        1,
        2,
    ]
    assert return_distributions.bin_returns(law, 3).width == pytest.approx(0.1)


def test_single_possible_return_is_in_the_first_bin():
    law = return_distributions.return_distribution(
        mdps.one_step(np.ones((2, 1)), (5.0,)), np.ones((2, 1)), 1
    )
    assert return_distributions.bin_returns(law, 4).probability.tolist() == [[1, 0, 0, 0]] * 2


def test_state_returns_average_over_the_policy():
    pairs = np.array([[1.0, 0.0], [0.0, 1.0]])
    assert return_distributions.state_returns(pairs, np.array([[0.25, 0.75]])).tolist() == [
        [0.25, 0.75]
    ]
