"""The table of segments."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rcrl_jax.replay.segments import SegmentTable, closes_above, closes_at_reward


def fill(table: SegmentTable, rewards, ends) -> np.ndarray:
    """Adds `[R, T]` transitions; returns the numbers `[R, T]`."""
    rewards, ends = np.array(rewards, np.float32), np.array(ends, bool)
    columns = zip(rewards.T, ends.T, strict=True)
    return np.stack(
        [table.add(np.full(len(r), t), r, e) for t, (r, e) in enumerate(columns)], axis=1
    )


def test_a_reward_of_either_sign_closes_its_own_segment_and_an_end_does_too():
    numbers = fill(
        SegmentTable(2, 10, closes_at_reward),
        [[0, 0, 1, 0, -0.5, 0, 0], [1, 1, 0, 0, 0, 0, 0]],
        [[0, 0, 0, 0, 0, 1, 0], [0, 1, 0, 0, 0, 0, 0]],
    )
    assert numbers.tolist() == [[0, 0, 0, 1, 1, 2, 3], [0, 1, 2, 2, 2, 2, 2]]


def test_bounds_include_both_ends_and_the_open_segment():
    table = SegmentTable(2, 10, closes_at_reward)
    fill(table, [[0, 0, 1, 0], [1, 0, 0, 0]], [[0, 0, 0, 0]] * 2)
    first, last = table.bounds(np.array([[0, 1], [0, 1]]))
    assert first.tolist() == [[0, 3], [0, 1]]
    assert last.tolist() == [[2, 3], [0, 3]]


def test_a_rule_may_read_the_reward_accumulated_since_the_segment_opened():
    """As on DMControl: closed once the segment's reward exceeds 1."""
    table = SegmentTable(1, 10, closes_above(1.0))
    numbers = fill(table, [[0.5, 0.5, 0.5, 0.75, 0.5, 0.25]], [[0, 0, 0, 0, 0, 0]])
    assert numbers.tolist() == [[0, 0, 0, 1, 1, 2]]


def test_the_accumulated_reward_starts_over_with_the_episode():
    table = SegmentTable(1, 10, closes_above(1.0))
    numbers = fill(table, [[0.75, 0.75, 0.75, 0.75]], [[1, 0, 0, 0]])
    assert numbers.tolist() == [[0, 1, 1, 2]]


def test_entries_are_used_again_by_later_segments():
    table = SegmentTable(1, 4, closes_at_reward)
    fill(table, [[1] * 11], [[0] * 11])
    first, last = table.bounds(np.array([[7, 8, 9, 10]]))
    assert first.tolist() == last.tolist() == [[7, 8, 9, 10]]


# Rewards that float64 adds exactly, so that a sum is above a threshold or is not.
EIGHTHS = st.integers(0, 16).map(lambda eighths: eighths / 8)
STEPS = st.lists(st.tuples(EIGHTHS, st.booleans()), min_size=1, max_size=40)


@given(steps=STEPS, threshold=st.integers(0, 40).map(lambda eighths: eighths / 8 + 0.0625))
def test_segments_at_a_threshold(steps, threshold):
    """Every segment but the last ends where its reward first exceeds the threshold, or its episode.

    So the returns of two pairs of a segment differ by at most the threshold: before its last
    reward a segment has gained no more than that.
    """
    table = SegmentTable(1, len(steps), closes_above(threshold))
    rewards, ends = zip(*steps, strict=True)
    numbers = fill(table, [rewards], [ends])[0]
    assert numbers[0] == 0 and set(np.diff(numbers)) <= {0, 1}
    for number in range(numbers[-1] + 1):
        own = np.nonzero(numbers == number)[0]
        first, last = (int(bound[0, 0]) for bound in table.bounds(np.array([[number]])))
        assert own.tolist() == list(range(first, last + 1))
        gained = np.cumsum([rewards[i] for i in own])
        assert np.all(gained[:-1] <= threshold) and not any(ends[i] for i in own[:-1])
        if last < len(steps) - 1:
            assert gained[-1] > threshold or ends[last]


@given(steps=STEPS, repeat=st.sampled_from([2, 4, 8]))
def test_a_threshold_on_the_mean_reward_is_one_on_as_many_times_the_sum(steps, repeat):
    """What `segment_reward='mean'` does at each action repeat."""
    rewards, ends = zip(*steps, strict=True)
    means = [reward / repeat for reward in rewards]
    by_mean = fill(SegmentTable(1, len(steps), closes_above(1.0625)), [means], [ends])
    by_sum = fill(SegmentTable(1, len(steps), closes_above(1.0625 * repeat)), [rewards], [ends])
    np.testing.assert_array_equal(by_mean, by_sum)
