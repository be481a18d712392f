"""Segment sampling: its law by hand, and the pairs that its Bayes predictor separates."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.theory import mdp as mdps
from experiments.theory import return_distributions, segment_sampling
from tests.experiments.theory import exact


def test_segment_ends_with_the_reward_step():
    ids = segment_sampling.segment_ids(np.array([[0.0, 1.0, 0.0, 0.0, 1.0, 0.0]]), 0.0)
    assert ids.tolist() == [[0, 0, 1, 1, 1, 2]]


def test_segment_ends_only_above_the_threshold():
    ids = segment_sampling.segment_ids(np.array([[0.6, 0.4, 0.2, 1.0, 0.2]]), 1.0)
    assert ids.tolist() == [[0, 0, 0, 1, 1]]


def two_step_mdp():
    """State 0 pays 0, then ends or leads to state 1 with probability 1/2 each; state 1 pays 1."""
    transition = np.zeros((2, 1, 2))
    transition[0, 0, 1] = 0.5
    return mdps.MDP(transition, np.eye(2)[:, None], np.array([0.0, 1.0]), np.array([1.0, 0.0]), 1.0)


def test_trajectories_and_segment_law_by_hand():
    trajectories = segment_sampling.enumerate_trajectories(two_step_mdp(), np.ones((2, 1)), 3)
    order = np.argsort(trajectories.pair[:, 1])
    assert trajectories.pair[order].tolist() == [[0, -1, -1], [0, 1, -1]]
    assert trajectories.probability.tolist() == [0.5, 0.5]
    law = segment_sampling.segment_law(trajectories, 0.0, 1.0)
    # 1.5 steps on average; in the long episode each step has either step as positive.
    np.testing.assert_allclose(law.visits, [1 / 1.5, 0.5 / 1.5])
    np.testing.assert_allclose(law.positive, np.array([[0.75, 0.25], [0.25, 0.25]]) / 1.5)
    assert law.positive_differs == 0.0
    pair_law = segment_sampling.segment_pairs(law)
    assert np.sum(pair_law.joint * pair_law.label) == pytest.approx(0.5)


def test_bayes_predictor_of_segments_is_not_that_of_independent_pairs():
    # Of the visits, 2/3 and 1/3; of the positives, 1/2 to (0, 0) and 1/6 to each other pair. So for
    # (0, 0) it is 4/9 / (4/9 + 1/2).
    predicted = {(0, 0): 8 / 17, (0, 1): 4 / 7, (1, 1): 2 / 5}
    trajectories = segment_sampling.enumerate_trajectories(two_step_mdp(), np.ones((2, 1)), 3)
    label = segment_sampling.segment_pairs(
        segment_sampling.segment_law(trajectories, 0.0, 1.0)
    ).label
    for cell, value in predicted.items():
        assert label[cell] == pytest.approx(value)
    # State 0 returns 0 or 1, state 1 returns 1: the predictor of Z-learning is 1/2, 1/2 and 0.
    law = return_distributions.return_distribution(two_step_mdp(), np.ones((2, 1)), 3).pmf[:, :2]
    assert law.tolist() == [[0.5, 0.5], [0.0, 1.0]]


@pytest.mark.parametrize("rewards, returns", [((0.0, 1.0), (1, 1)), ((0.5, 0.5), (1, 0.5))])
def test_pairs_that_share_every_segment_are_not_separated(rewards, returns):
    """With the first rewards that is right, as on Atari. A threshold of 1 allows the second."""
    trajectory = segment_sampling.Trajectories(
        np.array([[0, 1]]), np.array([rewards]), np.ones(1), 2
    )
    law = segment_sampling.segment_law(trajectory, 1.0, 1.0)
    np.testing.assert_array_equal(segment_sampling.segment_pairs(law).label, np.full((2, 2), 0.5))
    assert segment_sampling.returns_to_go(trajectory, 1.0)[0] == pytest.approx(returns)


def test_prioritised_anchors_lose_the_guarantee_of_segments():
    """A pays 1 with probability 0.1 and leads to B; B repeats with probability 1/2."""
    visits = np.arange(1, 200)  # of B in an episode
    probability = 0.5**visits
    s = 2 * np.log(2) - 1  # sum of 0.5^v / (1 + v) over v >= 1
    # Priorities of A that pays 1 or whose next step is the last, and of the last B; others have 1.
    rare, last = (0.15 - 0.9 * (s - 0.25)) / (0.325 - 0.55 / 3), (0.9 * (1 - 2 * s) - 1 / 3)
    last /= 1 / 3 - 0.9 * s
    assert (rare, last) == pytest.approx((0.19295, 8.97759), abs=1e-5)
    is_a = 1 / (1 + visits)  # that the positive is A, in the segment of A and all of B

    def positives(of_a, of_last_b):
        """Probabilities that the positive of an anchor in A, and of one in B, is A."""
        in_a, in_b = np.where(visits == 1, of_a, 1.0), visits - 1 + of_last_b
        after_a = 0.1 * of_a + 0.9 * np.sum(probability * in_a * is_a)
        after_a /= 0.1 * of_a + 0.9 * np.sum(probability * in_a)
        return after_a, 0.9 * np.sum(probability * in_b * is_a) / np.sum(probability * in_b)

    negative_is_a = 1 / (1 + np.sum(probability * visits))
    assert positives(rare, last) == pytest.approx((negative_is_a,) * 2, abs=1e-9)
    # With uniform anchors they are separated.
    after_a, after_b = positives(1.0, 1.0)
    assert after_a > after_b + 0.1


def test_segment_law_with_another_step_as_positive_by_hand():
    trajectories = segment_sampling.enumerate_trajectories(two_step_mdp(), np.ones((2, 1)), 3)
    law = segment_sampling.segment_law(trajectories, 0.0, 1.0, other_step=True)
    # Only the long episode has a segment of two steps; each is the positive of the other.
    np.testing.assert_allclose(law.positive, [[0.0, 0.5], [0.5, 0.0]])
    np.testing.assert_allclose(law.anchor, [0.5, 0.5])
    np.testing.assert_allclose(law.visits, [2 / 3, 1 / 3])


def test_discounted_returns_differ_within_a_segment():
    trajectories = segment_sampling.enumerate_trajectories(two_step_mdp(), np.ones((2, 1)), 3)
    law = segment_sampling.segment_law(trajectories, 0.0, 0.9)
    # Half of the positives of the long episode are the other step; the returns are 0.9 and 1.
    assert law.positive_differs == pytest.approx(0.5 * 2 * 0.5 / 1.5)
    assert law.return_gap == pytest.approx(0.1 * law.positive_differs)


def test_returns_of_a_segment_can_differ_by_more_than_the_threshold():
    # At discount 1 and rewards >= 0 they cannot; here one of the two conditions is missing.
    for rewards, discount, returns in (((0, 100), 0.9, (90, 100)), ((-5, -5), 1.0, (-10, -5))):
        array = np.array([rewards], float)
        assert segment_sampling.segment_ids(array, 1.0).tolist() == [[0, 0]]
        trajectory = segment_sampling.Trajectories(np.zeros((1, 2), int), array, np.ones(1), 1)
        stored = segment_sampling.returns_to_go(trajectory, discount)
        assert stored[0] == pytest.approx(returns)


@settings(max_examples=50)
@given(st.lists(st.integers(0, 8), min_size=1, max_size=8), st.integers(0, 8))
def test_undiscounted_returns_of_a_segment_differ_by_at_most_the_threshold(rewards, threshold):
    array = np.array([rewards], float)
    ids = segment_sampling.segment_ids(array, float(threshold))[0]
    returns = [sum(rewards[t:]) for t in range(len(rewards))]
    for segment in set(ids):
        within = [value for value, own in zip(returns, ids, strict=True) if own == segment]
        assert max(within) - min(within) <= threshold


def test_episode_longer_than_the_horizon_raises():
    with pytest.raises(ValueError, match="outlast"):
        segment_sampling.enumerate_trajectories(two_step_mdp(), np.ones((2, 1)), 1)


def test_trajectories_with_random_rewards_have_total_probability_one_and_mean_q():
    rng = np.random.default_rng(0)
    mdp = mdps.sparse_episodes(rng, 3, 2, 2)._replace(reward=rng.dirichlet(np.ones(2), (6, 2)))
    trajectories = segment_sampling.enumerate_trajectories(mdp, mdps.uniform_policy(mdp), 3)
    assert trajectories.probability.sum() == pytest.approx(1.0)
    first = trajectories.pair[:, 0]
    law = return_distributions.return_distribution(mdp, mdps.uniform_policy(mdp), 3)
    values = law.pmf @ (law.resolution * law.lattice)
    total = segment_sampling.returns_to_go(trajectories, 1.0)[:, 0]
    for x in np.unique(first):
        mean = np.average(total[first == x], weights=trajectories.probability[first == x])
        assert mean == pytest.approx(values[x])


def test_segments_separate_pairs_of_equal_return():
    # Two states that pay 0 and end: their returns are equal, but they share no segment.
    mdp = exact.one_step(np.ones((2, 1)), (0.0,)).mdp
    law = segment_sampling.segment_law(
        segment_sampling.enumerate_trajectories(mdp, np.ones((2, 1)), 1), 0.0, 1.0
    )
    same, other = (1 / 4) / (1 / 4 + 1 / 2), 1.0
    label = segment_sampling.segment_pairs(law).label
    np.testing.assert_allclose(label, [[same, other], [other, same]])
