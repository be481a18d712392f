"""The table of segments."""

import numpy as np

from rcrl_jax.replay.segments import SegmentTable, closes_at_reward


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
    table = SegmentTable(1, 10, lambda accumulated, reward: accumulated > 1.0)
    numbers = fill(table, [[0.5, 0.5, 0.5, 0.75, 0.5, 0.25]], [[0, 0, 0, 0, 0, 0]])
    assert numbers.tolist() == [[0, 0, 0, 1, 1, 2]]


def test_the_accumulated_reward_starts_over_with_the_episode():
    table = SegmentTable(1, 10, lambda accumulated, reward: accumulated > 1.0)
    numbers = fill(table, [[0.75, 0.75, 0.75, 0.75]], [[1, 0, 0, 0]])
    assert numbers.tolist() == [[0, 1, 1, 2]]


def test_entries_are_used_again_by_later_segments():
    table = SegmentTable(1, 4, closes_at_reward)
    fill(table, [[1] * 11], [[0] * 11])
    first, last = table.bounds(np.array([[7, 8, 9, 10]]))
    assert first.tolist() == last.tolist() == [[7, 8, 9, 10]]
