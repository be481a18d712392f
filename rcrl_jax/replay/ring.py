"""The ring of transitions of a fleet: what each slot holds and which slots are live.

One slot of the ring holds one frame together with the action taken on it:

    slot      ...  t-1          t              t+1             t+2 (only after a truncation)
    frame          o_{t-1}      o_t            o_{t+1}         o_{t+2}, a frame without an action
    action         a_{t-1}      a_t            a_{t+1}, last   -
    n = 3 window of t-1:  [r(t-1) + g r(t) + g^2 r(t+1)], bootstraps from o_{t+2}

A terminated episode needs no frame after its last action. A truncated one does, because its
windows bootstrap from there. That frame takes a slot of its own, which is neither sampled nor
counted as a step. The stack of an observation is its slot and those before it, with zeros before
the start of the episode. The frame stores keep the frames; the ring keeps everything else.

A slot is live until it, or a frame that its stack may need, is overwritten. So the
`frame_stack - 1` slots after the head count as lost.

Indices count all slots that a run has ever written. The index modulo the capacity is the slot.
"""

from typing import NamedTuple

import jax
import numpy as np

from rcrl_jax.replay.return_table import ReturnTable
from rcrl_jax.replay.segment_table import SegmentTable
from rcrl_jax.replay.settings import ReplaySettings


class WrittenSlots(NamedTuple):
    """The slots that one step of all runs fills."""

    slot: np.ndarray  # [R] int64, of the transitions
    cut_runs: np.ndarray  # [n] int64, runs whose episode was truncated in this step
    cut_slot: np.ndarray  # [n] int64, the slots of their final frames


class Window(NamedTuple):
    """What an n-step window yields for the RL loss."""

    reward: np.ndarray  # [R, B] float64, discounted sum
    discount: np.ndarray  # [R, B] float64, gamma^k of a window of k steps; 0 if it terminated
    end: np.ndarray  # [R, B] int64, index of the state to bootstrap from
    terminated: np.ndarray  # [R, B] bool


class TransitionRing:
    """Transitions of R runs without their frames; no method loops over runs in Python."""

    def __init__(
        self,
        num_runs: int,
        settings: ReplaySettings,
        frame_stack: int,
        action: jax.ShapeDtypeStruct,
    ) -> None:
        """Makes an empty ring.

        Args:
          num_runs: R.
          settings: sizes and rules.
          frame_stack: frames in an observation.
          action: shape and type of one action.
        """
        capacity = settings.capacity
        self.rows = np.arange(num_runs)
        self.count = np.zeros(num_runs, np.int64)  # slots ever written, the next index
        self._capacity = capacity
        self._frame_stack = frame_stack
        self._n_step = settings.n_step
        self._discounts = settings.discount ** np.arange(settings.n_step + 1)  # gamma^0..gamma^n
        self._next_age = np.zeros(num_runs, np.int64)

        shape = (num_runs, capacity)
        self._action = np.zeros((*shape, *action.shape), action.dtype)
        self._reward = np.zeros(shape, np.float32)
        self._terminated = np.zeros(shape, bool)
        self._is_last = np.zeros(shape, bool)  # of its episode, terminated or truncated
        self._is_pair = np.zeros(shape, bool)  # False for the final frame of a truncation
        self._age = np.zeros(shape, np.int64)  # steps since the start, at most frame_stack - 1
        self._segment = np.zeros(shape, np.int64)
        self._segments = SegmentTable(num_runs, capacity, settings.closes_segment)
        rule = settings.contrast
        compares_returns = rule.equal_return_positives or rule.differs_in_return
        self._returns = ReturnTable(num_runs, capacity) if compares_returns else None

    def add(
        self,
        action: np.ndarray,
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
    ) -> WrittenSlots:
        """Appends one transition to every run; see `SegmentReplay.add`."""
        index = self.count.copy()
        ended = terminated | truncated
        slot = self._append(self.rows)
        self._action[self.rows, slot] = action
        self._reward[self.rows, slot] = reward
        self._terminated[self.rows, slot] = terminated
        self._is_last[self.rows, slot] = ended
        self._is_pair[self.rows, slot] = True
        self._segment[self.rows, slot] = self._segments.add(index, reward, ended)
        if self._returns is not None:
            self._returns.add(slot, reward, ended)

        cut_runs = np.nonzero(truncated & ~terminated)[0]
        cut_slot = self._append(cut_runs)
        self._is_last[cut_runs, cut_slot] = True
        self._is_pair[cut_runs, cut_slot] = False
        self._next_age[ended] = 0
        return WrittenSlots(slot, cut_runs, cut_slot)

    def _append(self, rows: np.ndarray) -> np.ndarray:
        """Moves the head of `rows [n]` by one slot; returns the slots `[n]`."""
        slot = self.count[rows] % self._capacity
        self._age[rows, slot] = np.minimum(self._next_age[rows], self._frame_stack - 1)
        self.count[rows] += 1
        self._next_age[rows] += 1
        return slot

    @property
    def oldest(self) -> np.ndarray:
        """`[R]`: the oldest index whose full stack survives."""
        return np.maximum(self.count - self._capacity + self._frame_stack - 1, 0)

    def index_of(self, slot: np.ndarray) -> np.ndarray:
        """The newest index that each slot `[R, N]` holds."""
        newest = self.count[:, None] - 1
        return newest - (newest - slot) % self._capacity

    def action(self, index: np.ndarray) -> np.ndarray:
        """Actions `[R, N, *act]` at `index [R, N]`."""
        return self._at(self._action, index)

    def is_pair(self, index: np.ndarray) -> np.ndarray:
        """Whether the slots at `index [R, N]` hold an action: `[R, N] bool`."""
        return self._at(self._is_pair, index)

    def returns(self, index: np.ndarray) -> np.ndarray:
        """Returns `[R, N]` so far; only where the contrast rule compares returns."""
        return self._returns.returns(index % self._capacity)

    def segment_bounds(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """First and last live transition of the segments of `index [R, N]`, both inclusive."""
        first, last = self._segments.bounds(self._at(self._segment, index))
        return np.maximum(first, self.oldest[:, None]), last

    def segment_lengths(self, run: int) -> np.ndarray:
        """Lengths of one run's live segments, the open one included [live transitions]."""
        slots = np.arange(self.oldest[run], self.count[run]) % self._capacity
        pairs = slots[self._is_pair[run, slots]]
        return np.unique(self._segment[run, pairs], return_counts=True)[1]

    def window(self, index: np.ndarray) -> Window:
        """The n-step windows that start at `index [R, B]`."""
        rows = self.rows[:, None]
        window = (index[..., None] + np.arange(self._n_step)) % self._capacity  # [R, B, n]
        is_last = self._is_last[rows[..., None], window]
        # A reward counts if no transition before it was the last of the episode.
        counts = np.cumsum(is_last, axis=-1) - is_last == 0
        steps = counts.sum(axis=-1)  # [R, B], the window's true length
        reward = np.sum(
            self._reward[rows[..., None], window] * counts * self._discounts[:-1], axis=-1
        )
        end = index + steps
        terminated = self._at(self._terminated, end - 1)
        return Window(reward, np.where(terminated, 0.0, self._discounts[steps]), end, terminated)

    def stack_slots(
        self, index: np.ndarray, zero_slot: int, blank: np.ndarray | None = None
    ) -> np.ndarray:
        """Frame slots of the stacks at `index [R, N]`, newest last: `[R, N, C]`.

        Args:
          index: of the newest frames.
          zero_slot: stands for frames before the start of the episode.
          blank: `[R, N] bool`, where all of a stack is the zero slot.
        """
        back = np.arange(self._frame_stack)[::-1]
        age = self._at(self._age, index)
        if blank is not None:
            age = np.where(blank, -1, age)
        slots = (index[..., None] - back) % self._capacity
        return np.where(back <= age[..., None], slots, zero_slot)

    def _at(self, values: np.ndarray, index: np.ndarray) -> np.ndarray:
        return values[self.rows[:, None], index % self._capacity]
