"""The table of segments."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rcrl_jax.return_contrast.segments import SegmentTable


def fill(table: SegmentTable, rewards, ends) -> np.ndarray:
    """Adds `[R, T]` transitions; returns the numbers `[R, T]`."""
    rewards, ends = np.array(rewards, np.float32), np.array(ends, bool)
    columns = zip(rewards.T, ends.T, strict=True)
    return np.stack(
        [table.add(np.full(len(r), t), r, e) for t, (r, e) in enumerate(columns)], axis=1
    )


def test_rewards_of_either_sign_and_episode_ends_close_a_segment():
    numbers = fill(
        SegmentTable(2, 10, tolerance=0.0),
        [[0, 0, 1, 0, -0.5, 0, 0], [1, 1, 0, 0, 0, 0, 0]],
        [[0, 0, 0, 0, 0, 1, 0], [0, 1, 0, 0, 0, 0, 0]],
    )
    assert numbers.tolist() == [[0, 0, 0, 1, 1, 2, 3], [0, 1, 2, 2, 2, 2, 2]]


def test_later_segments_reuse_entries():
    table = SegmentTable(1, 4, tolerance=0.0)
    numbers = fill(table, [[1] * 11], [[0] * 11])[:, 7:]
    assert numbers.tolist() == [[7, 8, 9, 10]]
    first, last = table.bounds(numbers % 4)
    assert first.tolist() == last.tolist() == [[7, 8, 9, 10]]


# Rewards that float64 adds exactly, so that no comparison with a threshold depends on rounding.
EIGHTHS = st.integers(0, 16).map(lambda eighths: eighths / 8)
STEPS = st.lists(st.tuples(EIGHTHS, st.booleans()), min_size=1, max_size=40)


@given(steps=STEPS, threshold=st.integers(0, 40).map(lambda eighths: eighths / 8))
def test_segments_end_where_their_reward_first_exceeds_the_threshold(steps, threshold):
    """Each segment but the last ends there, or at the end of its episode.

    So the returns of two pairs of a segment differ by at most the threshold: the rewards before
    the last one of a segment sum to no more than that.
    """
    table = SegmentTable(1, len(steps), threshold)
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
