"""Draws windows of consecutive frames from the ring, for agents that learn from sequences.

The ring keeps an episode's frames in consecutive slots, the final frame included if the settings
keep it. So a window is a range of indices. Each frame comes with the action and the reward that led
to it, or with those that followed it:

    frames                         o0     o1     o2     o3 | o'0    o'1
    what led to it                 0, 0   a0, r0 a1, r1 a2, r2 | 0, 0   a'0, r'0
    what followed it               a0, r0 a1, r1 a2, r2 0, 0   | a'0, r'0
    is_first                       yes    no     no     no | yes    no

Agents name the windows that they learn from:

    'leads'     with what led to a frame; windows of one episode that has ended (Dreamer, PlaNet)
    'follows'   with what followed a frame; windows may cross ends of episodes, but not with their
                last step (SLAC)

Three more are for an agent that learns in rounds of data (SimPLe), with what followed a frame:

    'within'    windows of one episode, from any round; uniform over all such windows
    'starts'    windows of one episode of the newest round: an episode is drawn uniformly, then a
                window in it. The first window drawn starts the round's first episode.
    'newest'    one window of the newest steps, across episodes, without final frames

The windows of 'within' and 'starts' lie within the first ten elevenths of a round; the rest is held
out.
"""

from typing import NamedTuple

import numpy as np

from rcrl_jax.counter_random import Streams
from rcrl_jax.replay.ring import TransitionRing
from rcrl_jax.replay.settings import SequenceRule

_STARTS = 1 << 21  # stream of random numbers; redraws take the streams that follow
_MOST_DRAWS = 10_000
_PARTS, _LEARNED = 11, 10  # SimPLe's code learns from 10 of 11 (tensor2tensor's `gym_env.py`)
_EPISODES = 1 << 22  # stream of the episodes in which windows start


class Sequences(NamedTuple):
    """Windows, with slots in place of the frames."""

    slots: np.ndarray  # [R, B, L] int64
    action: np.ndarray  # [R, B, L, *act]
    reward: np.ndarray  # [R, B, L] float32
    discount: np.ndarray  # [R, B, L] float32
    is_first: np.ndarray  # [R, B, L] bool


class SequenceSampler:
    """Draws the starts of windows for all runs; reads the ring and changes nothing."""

    def __init__(self, rule: SequenceRule, ring: TransitionRing, streams: Streams) -> None:
        """Keeps what the draws need.

        Args:
          rule: length and placement of the windows.
          ring: the transitions; it must keep ages.
          streams: random numbers of the runs.
        """
        self._rule = rule
        self._ring = ring
        self._uniform = streams.uniform

    def draw(self, size: int) -> np.ndarray:
        """First indices `[R, size]` of windows.

        Uniform over all valid ones, except for 'starts' and 'newest'.

        Raises:
          ValueError: a run has no valid window. With 'newest', the run's index is negative instead.
        """
        if self._rule.placement == "newest":
            return self._newest()
        if self._rule.placement == "starts":
            return self._starts(size)
        propose = self._in_rounds if self._rule.placement == "within" else self._anywhere
        index = np.zeros((len(self._ring.rows), size), np.int64)
        redraw = np.ones(index.shape, bool)
        for attempt in range(_MOST_DRAWS):
            index = np.where(redraw, propose(self._uniform(_STARTS + attempt, size)), index)
            redraw = ~self.is_valid(index)
            if not redraw.any():
                return index
        raise self._no_window()

    def _no_window(self) -> ValueError:
        return ValueError(f"the replay holds no window of {self._rule.length} frames")

    def _anywhere(self, uniform: np.ndarray) -> np.ndarray:
        """Indices in the ring from uniform numbers `[R, size]`."""
        ring, length = self._ring, self._rule.length
        oldest = ring.oldest_slot[:, None]
        end = ring.open_episode if self._rule.placement == "leads" else ring.count
        span = np.maximum(end[:, None] - length + 1 - oldest, 0)
        return oldest + (uniform * span).astype(np.int64)

    def _in_rounds(self, uniform: np.ndarray) -> np.ndarray:
        """Indices in the learned part of all rounds from uniform numbers `[R, size]`."""
        rounds = self._ring.rounds
        windows = np.maximum(_learned(rounds) - self._rule.length + 1, 0)  # [R, K]
        if not windows.any(axis=1).all():
            raise self._no_window()
        ends = np.cumsum(windows, axis=1)
        place = (uniform * ends[:, -1:]).astype(np.int64)
        number = np.sum(place[..., None] >= ends[:, None], axis=-1)  # of the round, [R, size]
        before = np.take_along_axis(ends - windows, number, axis=1)
        return np.take_along_axis(rounds, number, axis=1) + place - before

    def _newest(self) -> np.ndarray:
        """The first of the newest steps: `[R, 1]`, negative if there are too few."""
        # Each final frame follows a step, so at most every second index is a final frame.
        steps = self._first_steps(self._ring.count[:, None] - 1 - np.arange(2 * self._rule.length))
        return steps[:, -1:]

    def _first_steps(self, at: np.ndarray) -> np.ndarray:
        """The first `length` of the indices `[R, N]` that hold no final frame."""
        is_final = (at >= 0) & ~self._ring.is_pair(at)
        order = np.argsort(is_final, axis=1, kind="stable")
        return np.take_along_axis(at, order[:, : self._rule.length], axis=1)

    def _starts(self, size: int) -> np.ndarray:
        """First indices `[R, size]` of windows of the newest round, for rollouts in a model."""
        length, rounds = self._rule.length, self._ring.rounds
        if rounds.shape[1] < 2:  # none is complete
            raise self._no_window()
        begin, learned = rounds[:, -2], _learned(rounds[:, -2:])[:, 0]
        age = self._ring.age(begin[:, None] + np.arange(learned.max()))
        episode, offset = self._uniform(_EPISODES, size), self._uniform(_STARTS, size)
        episode[:, 0] = offset[:, 0] = 0.0  # the first window of the round
        index = np.zeros(episode.shape, np.int64)
        for run, frames in enumerate(learned):
            starts = np.union1d(0, np.flatnonzero(age[run, :frames] == 0))
            windows = np.diff(starts, append=frames) - length + 1  # of each episode
            starts, windows = starts[windows > 0], windows[windows > 0]
            if not starts.size:
                raise ValueError(f"the newest round holds no window of {length} frames")
            chosen = (episode[run] * len(starts)).astype(np.int64)
            place = starts[chosen] + (offset[run] * windows[chosen]).astype(np.int64)
            index[run] = begin[run] + place
        return index

    def is_valid(self, index: np.ndarray) -> np.ndarray:
        """Whether windows may start at `index [R, N]`: `[R, N] bool`."""
        ring, last = self._ring, index + self._rule.length - 1
        # With 'leads', the whole stack of the window's first frame must survive, too.
        oldest = ring.oldest if self._rule.placement == "leads" else ring.oldest_slot
        held = index >= oldest[:, None]
        age, last_age = ring.age(index), ring.age(last)
        if self._rule.placement == "follows":
            return held & (last < ring.count[:, None]) & (last_age > 0)
        if self._rule.placement == "within":
            return held & (last_age == age + self._rule.length - 1)
        # What led to the first frame must be held, too.
        led = (age == 0) | (index > ring.oldest_slot[:, None])
        over = last < ring.open_episode[:, None]
        return held & led & over & (last_age == age + self._rule.length - 1)

    def read(self, index: np.ndarray) -> Sequences:
        """The windows that start at `index [R, B]`."""
        if self._rule.placement == "newest":
            at = self._first_steps(index + np.arange(2 * self._rule.length))[:, None]
        else:
            at = index[..., None] + np.arange(self._rule.length)
        flat = at.reshape(len(at), -1)
        is_first = self._ring.age(flat) == 0
        if self._rule.placement == "leads":
            step, counts = self._ring.step(flat - 1), ~is_first
            ended = np.zeros(flat.shape, bool)
        else:
            step, counts = self._ring.step(flat), self._ring.is_pair(flat)
            ended = step.terminated & counts
        padded = counts.reshape(*counts.shape, *[1] * (step.action.ndim - 2))

        def by_window(x: np.ndarray) -> np.ndarray:
            return x.reshape(*at.shape, *x.shape[2:])

        return Sequences(
            self._ring.slot(at),
            by_window(np.where(padded, step.action, np.zeros((), step.action.dtype))),
            by_window(np.where(counts, step.reward, np.float32(0.0))),
            by_window(np.where(ended, np.float32(0.0), np.float32(1.0))),
            by_window(is_first),
        )


def _learned(rounds: np.ndarray) -> np.ndarray:
    """Frames of each round that are learned from: `[R, K + 1] -> [R, K]`."""
    return np.diff(rounds, axis=1) // _PARTS * _LEARNED
