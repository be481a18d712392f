"""The log of actions, and a checksum that detects different frames."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rcrl_jax.training.history import History

RUNS, STEPS = 2, 6


def _log(actions: np.ndarray, frames: np.ndarray) -> History:
    """Logs `actions [T, R]` and `frames [T, R, 84, 84]`."""
    history = History(actions.shape[1], STEPS)
    for step_actions, step_frames in zip(actions, frames, strict=True):
        history.add(step_actions, step_frames)
    return history


def _episode(seed=0):
    rng = np.random.default_rng(seed)
    actions = rng.integers(0, 18, (STEPS, RUNS))
    return actions, rng.integers(0, 256, (STEPS, RUNS, 84, 84), np.uint8)


@settings(max_examples=50)
@given(
    step=st.integers(0, STEPS - 1),
    row=st.integers(0, 83),
    column=st.integers(0, 83),
    change=st.integers(1, 255),
    noise=st.booleans(),
)
def test_one_changed_byte_changes_only_its_run_s_checksum(step, row, column, change, noise):
    actions, frames = _episode()
    if not noise:
        frames[:] = 0  # a black screen, the hardest case for sums of products
    changed = frames.copy()
    changed[step, 1, row, column] ^= np.uint8(change)
    before, after = _log(actions, frames).checksum, _log(actions, changed).checksum
    assert before[0] == after[0]
    assert before[1] != after[1]


def test_order_of_frames_changes_the_checksum():
    actions, frames = _episode()
    checksums = {int(_log(actions, frames).checksum[0])}
    for first in range(STEPS):
        for second in range(first):
            swapped = frames.copy()
            swapped[[first, second]] = frames[[second, first]]
            checksums.add(int(_log(actions, swapped).checksum[0]))
    assert len(checksums) == 1 + STEPS * (STEPS - 1) // 2


def test_vector_actions_are_kept_exactly_and_float_frames_are_checked():
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (STEPS, RUNS, 3)).astype(np.float32)
    states = rng.normal(size=(STEPS, RUNS, 4)).astype(np.float32)
    history = History(RUNS, STEPS, action_shape=(3,))
    for step_actions, step_states in zip(actions[:4], states, strict=False):
        history.add(step_actions, step_states)
    kept = history.state.actions
    assert kept.dtype == np.float32
    np.testing.assert_array_equal(kept[:, :4], actions[:4].swapaxes(0, 1))
    assert not kept[:, 4:].any()
    other = History(RUNS, STEPS, action_shape=(3,))
    for step_states in (*states[:3], np.nextafter(states[3], 9.0)):
        other.add(actions[0], step_states)
    assert not np.any(other.checksum == history.checksum)


def test_the_last_byte_of_a_frame_of_odd_size_changes_the_checksum():
    frames = np.zeros((1, 5, 5, 3), np.uint8)  # 75 bytes
    checksums = []
    for last in (0, 1):
        frames[0, 4, 4, 2] = last
        history = History(1, 1)
        history.add(np.zeros(1, np.uint8), frames)
        checksums.append(history.checksum[0])
    assert checksums[0] != checksums[1]
