"""Windows of consecutive frames: what stands beside a frame, where windows may lie, how often."""

import collections

import numpy as np
import pytest
from scipy import stats

from rcrl_jax.observations import ObservationFormat
from rcrl_jax.replay import frames
from rcrl_jax.replay.segment_replay import SegmentReplay
from rcrl_jax.replay.settings import SequenceRule
from tests.replay.driver import DISCRETE, TINY, make_settings

LENGTH = 4


class Counting:
    """Plays episodes whose frames, actions and rewards tell where they are from.

    Frame t of episode e is [[e, t], [e, t]]; the action taken on it is 10 e + t + 1 and the reward
    that follows is 100 e + t + 0.5.
    """

    def __init__(self, capacity, placement, seeds=(0,), length=LENGTH, batch_size=200, stack=1):
        rule = SequenceRule(length, placement)
        settings = make_settings(
            capacity=capacity, n_step=1, priority_exponent=0.0, batch_size=batch_size,
            sequences=(rule,),
        )  # fmt: skip
        store = frames.HostFrameStore(len(seeds), capacity, TINY)
        formats = ObservationFormat.uniform(stack, TINY)
        self.replay = SegmentReplay(store, np.array(seeds), settings, formats, DISCRETE)
        self.runs = len(seeds)
        self.time, self.episode = 0, 1
        self.log = []  # (episode, time) of each index

    @staticmethod
    def frame(episode, time):
        return np.array([[episode, time]] * 2, np.uint8)

    def step(self, end=None):
        each = np.ones(self.runs)
        e, t = self.episode, self.time
        self.replay.add(
            np.stack([self.frame(e, t)] * self.runs),
            (each * (10 * e + t + 1)).astype(np.int32),
            (each * (100 * e + t + 0.5)).astype(np.float32),
            each == (end == "terminated"),
            each == (end == "truncated"),
            np.stack([self.frame(e, t + 1)] * self.runs),
        )
        self.log.append((e, t))
        self.time += 1
        if end == "truncated":
            self.log.append((e, t + 1))
        if end is not None:
            self.episode, self.time = e + 1, 0

    def play(self, *lengths, end="truncated"):
        for length in lengths:
            for t in range(length):
                self.step(end if t == length - 1 else None)

    def windows(self):
        """A batch of one run, and where each of its frames is from, `[B, L, 2]`."""
        sample = self.replay.sample(1.0)
        batch = [np.asarray(x[0]) for x in sample.batch.transitions]
        return sample.index[0], batch, batch[0][:, :, 0].astype(int)


@pytest.mark.parametrize("placement", ["leads", "follows"])
def test_actions_and_rewards_stand_beside_the_frames_that_they_belong_to(placement):
    counting = Counting(60, placement)
    counting.play(7, 9)
    _, (_, action, reward, discount, is_first), origin = counting.windows()
    episode, time = origin[..., 0], origin[..., 1]
    np.testing.assert_array_equal(is_first, time == 0)
    assert np.all(discount == 1.0)
    if placement == "leads":
        # Frame t was led to by action and reward t - 1; nothing led to the first.
        np.testing.assert_array_equal(action, np.where(time == 0, 0, 10 * episode + time))
        expected = np.where(time == 0, 0, 100 * episode + time - 0.5)
    else:
        last = time == np.where(episode == 1, 7, 9)  # the final frame has no action
        assert last.any() and (time == 0).any()
        np.testing.assert_array_equal(action, np.where(last, 0, 10 * episode + time + 1))
        expected = np.where(last, 0, 100 * episode + time + 0.5)
    np.testing.assert_array_equal(reward, expected)


def valid_starts(counting, placement, length=LENGTH, stack=1):
    """By walking through the log of what each index holds."""
    log, capacity = counting.log, counting.replay.settings.capacity
    starts = []
    for i in range(max(len(log) - capacity, 0), len(log) - length + 1):
        window = log[i : i + length]
        if placement == "follows":
            if window[-1][1] > 0:
                starts.append(i)
            continue
        within = len({episode for episode, _ in window}) == 1
        over = window[0][0] < counting.episode
        # What led to it is held, and where it may be an anchor, all of a stack of frames.
        led = window[0][1] == 0 or i - 1 >= len(log) - capacity
        led &= i >= len(log) - capacity + stack - 1 or len(log) <= capacity
        if within and over and led:
            starts.append(i)
    return starts


@pytest.mark.parametrize("placement", ["leads", "follows"])
@pytest.mark.parametrize("end", ["truncated", "terminated"])
@pytest.mark.parametrize(
    "capacity, lengths, more",
    [(100, (7, 3, 9), 4), (25, (7, 3, 9, 8, 6), 2), (25, (7, 12, 11), 0), (12, (5, 5, 5), 6)],
    ids=["not full", "wrapped", "between episodes", "small"],
)
def test_windows_are_uniform_over_the_valid_starts(placement, end, capacity, lengths, more):
    counting = Counting(capacity, placement)
    counting.play(*lengths, end=end)
    for _ in range(more):
        counting.step()
    starts = valid_starts(counting, placement)
    drawn = collections.Counter()
    for _ in range(20):
        index, batch, origin = counting.windows()
        drawn.update(index.tolist())
        for i, window in zip(index, origin, strict=True):
            assert window.tolist() == [list(at) for at in counting.log[i : i + LENGTH]]
        if placement == "leads":
            assert np.all(origin[:, :1, 0] == origin[:, :, 0])  # never across an end
    assert set(drawn) == set(starts)
    if len(starts) > 1:
        assert stats.chisquare([drawn[i] for i in starts]).pvalue > 1e-4


def test_windows_that_lead_start_where_a_whole_stack_is_held():
    counting = Counting(25, "leads", stack=4)
    counting.play(7, 12, 11)
    index, _, _ = counting.windows()
    starts = valid_starts(counting, "leads", stack=4)
    assert set(index) == set(starts) != set(valid_starts(counting, "leads"))


def test_a_terminated_step_has_no_discount():
    counting = Counting(60, "follows")
    counting.play(6, end="terminated")
    counting.step()
    counting.step()
    _, (*_, discount, is_first), origin = counting.windows()
    terminal = (origin[..., 0] == 1) & (origin[..., 1] == 5)
    assert terminal.any() and is_first.any()
    np.testing.assert_array_equal(discount, np.where(terminal, 0.0, 1.0))


def test_a_run_draws_the_same_windows_beside_others():
    alone, beside = Counting(40, "leads", seeds=(7,)), Counting(40, "leads", seeds=(3, 7))
    for counting in (alone, beside):
        counting.play(7, 9)
    first, second = alone.replay.sample(1.0), beside.replay.sample(1.0)
    np.testing.assert_array_equal(first.index[0], second.index[1])
    for mine, theirs in zip(first.batch.transitions, second.batch.transitions, strict=True):
        np.testing.assert_array_equal(mine[0], theirs[1])
    assert set(map(tuple, second.index)) != {tuple(second.index[0])}


@pytest.mark.parametrize("placement", ["leads", "follows"])
def test_a_replay_without_a_window_says_so(placement):
    counting = Counting(40, placement)
    counting.play(2)
    with pytest.raises(ValueError, match="holds no window of 4 frames"):
        counting.replay.sample(1.0)


@pytest.mark.parametrize("capacity", [60, 14])
def test_a_context_holds_the_newest_frames_and_the_actions_that_led_to_them(capacity):
    counting = Counting(capacity, "leads")
    counting.play(7, 9)
    ring, length = counting.replay._ring, 3
    held = range(max(len(counting.log) - capacity, 0), len(counting.log))
    action, exists = (x[0] for x in ring.context(np.array([held]), length))
    for i, index in enumerate(held):
        episode, time = counting.log[index]
        assert exists[i].tolist() == [time >= 2, time >= 1, True]
        for place, back in enumerate((2, 1, 0)):
            known = time - back >= 1 and index - back - 1 >= held[0]
            assert action[i, place] == (10 * episode + time - back if known else 0)
