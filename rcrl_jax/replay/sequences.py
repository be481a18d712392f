"""Draws windows of consecutive frames from the ring, for agents that learn from sequences.

The ring keeps an episode's frames in consecutive slots, the final frame of a truncation included.
So a window is a range of indices. There are two kinds, which differ in what stands beside a frame:

    frames                         o0     o1     o2     o3 | o'0    o'1
    'leads': action, reward        0, 0   a0, r0 a1, r1 a2, r2 | 0, 0   a'0, r'0
    'follows': action, reward      a0, r0 a1, r1 a2, r2 0, 0   | a'0, r'0
    is_first                       yes    no     no     no | yes    no

Windows of the first kind lie within one episode that has ended; Dreamer and PlaNet learn from such.
Windows of the second kind may cross ends of episodes, but not with their last step; SLAC's do.
A terminated episode has no final frame, so what led there is in no window of the first kind.
"""

from typing import NamedTuple

import numpy as np

from rcrl_jax.replay.counter_random import Streams
from rcrl_jax.replay.ring import TransitionRing
from rcrl_jax.replay.settings import SequenceRule

_STARTS = 1 << 21  # stream of random numbers; redraws take the streams that follow
_MOST_DRAWS = 10_000


class Sequences(NamedTuple):
    """What belongs to the frames of windows, without the frames."""

    slots: np.ndarray  # [R, B, L] int64
    action: np.ndarray  # [R, B, L, *act]
    reward: np.ndarray  # [R, B, L] float32
    discount: np.ndarray  # [R, B, L] float32
    is_first: np.ndarray  # [R, B, L] bool


class SequenceSampler:
    """Draws the starts of windows for all runs at once; reads the ring and changes nothing."""

    def __init__(self, rule: SequenceRule, ring: TransitionRing, streams: Streams) -> None:
        """Keeps what the draws need.

        Args:
          rule: length and kind of the windows.
          ring: the transitions; it must keep ages.
          streams: random numbers of the runs.
        """
        self._rule = rule
        self._ring = ring
        self._uniform = streams.uniform

    def draw(self, size: int) -> np.ndarray:
        """First indices `[R, size]` of windows, uniform over all valid ones of each run.

        Raises:
          ValueError: a run has no valid window.
        """
        ring, length = self._ring, self._rule.length
        oldest = ring.oldest_slot[:, None]
        end = ring.open_episode if self._rule.kind == "leads" else ring.count
        span = np.maximum(end[:, None] - length + 1 - oldest, 0)
        index = np.zeros((len(oldest), size), np.int64)
        redraw = np.ones(index.shape, bool)
        for attempt in range(_MOST_DRAWS):
            drawn = oldest + (self._uniform(_STARTS + attempt, size) * span).astype(np.int64)
            index = np.where(redraw, drawn, index)
            redraw = ~self.is_valid(index)
            if not redraw.any():
                return index
        raise ValueError(f"the replay holds no window of {length} frames")

    def is_valid(self, index: np.ndarray) -> np.ndarray:
        """Whether windows may start at `index [R, N]`: `[R, N] bool`."""
        ring, last = self._ring, index + self._rule.length - 1
        held = index >= ring.oldest_slot[:, None]
        age, last_age = ring.age(index), ring.age(last)
        if self._rule.kind == "follows":
            return held & (last < ring.count[:, None]) & (last_age > 0)
        # What led to the first frame must be held, too.
        led = (age == 0) | (index > ring.oldest_slot[:, None])
        over = last < ring.open_episode[:, None]
        return held & led & over & (last_age == age + self._rule.length - 1)

    def read(self, index: np.ndarray) -> Sequences:
        """The windows that start at `index [R, B]`."""
        at = index[..., None] + np.arange(self._rule.length)
        flat = at.reshape(len(at), -1)
        is_first = self._ring.age(flat) == 0
        if self._rule.kind == "leads":
            step, counts = self._ring.step(flat - 1), ~is_first
            ended = np.zeros(flat.shape, bool)
        else:
            step, counts = self._ring.step(flat), self._ring.is_pair(flat)
            ended = step.terminated & counts
        padded = counts.reshape(*counts.shape, *[1] * (step.action.ndim - 2))

        def windows(x: np.ndarray) -> np.ndarray:
            return x.reshape(*at.shape, *x.shape[2:])

        return Sequences(
            self._ring.slot(at),
            windows(np.where(padded, step.action, np.zeros((), step.action.dtype))),
            windows(np.where(counts, step.reward, np.float32(0.0))),
            windows(np.where(ended, np.float32(0.0), np.float32(1.0))),
            windows(is_first),
        )
