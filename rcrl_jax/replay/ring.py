"""The ring of transitions of a fleet: what each slot holds and which slots are live.

One slot of the ring holds one frame together with the action taken on it:

    slot      ...  t-1          t              t+1             t+2, the final frame's
    frame          o_{t-1}      o_t            o_{t+1}         o_{t+2}, a frame without an action
    action         a_{t-1}      a_t            a_{t+1}, last   -
    n = 3 window of t-1:  [r(t-1) + g r(t) + g^2 r(t+1)], bootstraps from o_{t+2}

The final frame, after the last action of an episode, has a separate slot. That slot counts as no
step, starts no window of the RL loss and is no contrastive sample. A truncated episode keeps its
final frame, because windows bootstrap from it. A terminated episode keeps its final frame only if
the settings have `all_final_frames`.

The stack of an observation is its slot and the slots before, with zeros before the start of the
episode. The frame stores keep the frames; the ring keeps everything else.

A slot is live until it, or a frame that its stack may need, is overwritten. So the
`frame_stack - 1` slots after the head count as lost.

Indices count all slots that a run has ever written. The index modulo the capacity is the slot.
"""

from typing import NamedTuple

import jax
import numpy as np

from rcrl_jax.observations import stack_places
from rcrl_jax.replay import aligned
from rcrl_jax.replay.settings import ReplaySettings
from rcrl_jax.return_contrast.returns import ReturnTable
from rcrl_jax.return_contrast.segments import SegmentTable


class WrittenSlots(NamedTuple):
    """The slots that one step of all runs fills."""

    slot: np.ndarray  # [R] int64, of the transitions
    final_runs: np.ndarray  # [n] int64, runs whose final frame is kept
    final_slot: np.ndarray  # [n] int64, the slots of these frames


class Window(NamedTuple):
    """What an n-step window yields for the RL loss."""

    reward: np.ndarray  # [R, B] float32, discounted sum
    discount: np.ndarray  # [R, B] float32, gamma^k of a window of k steps; 0 if it terminated
    end: np.ndarray  # [R, B] int64, index of the state to bootstrap from
    terminated: np.ndarray  # [R, B] bool


class StepOf(NamedTuple):
    """The steps of some slots, meaningless for slots that hold no action."""

    action: np.ndarray  # [R, N, *act]
    reward: np.ndarray  # [R, N] float32
    terminated: np.ndarray  # [R, N] bool


class TransitionRing:
    """Transitions of R runs without their frames; no method loops over runs in Python."""

    def __init__(
        self,
        num_runs: int,
        settings: ReplaySettings,
        frame_stack: int,
        zero_slot: int,
        action: jax.ShapeDtypeStruct,
    ) -> None:
        """Makes an empty ring.

        Args:
          num_runs: R.
          settings: sizes and rules.
          frame_stack: frames in an observation.
          zero_slot: slot of the frame of zeros, for frames before the start of an episode.
          action: shape and type of one action.
        """
        capacity = settings.capacity
        self.rows = np.arange(num_runs)
        self.count = np.zeros(num_runs, np.int64)  # slots ever written, the next index
        self._capacity = capacity
        self._frame_stack = frame_stack
        self._n_step = settings.n_step
        self._discounts = settings.discount ** np.arange(settings.n_step + 1)  # gamma^0..gamma^n
        self._next_age = np.zeros(num_runs, np.int64)  # steps since the start of the episode
        self._starts = self.rows * capacity  # where each run starts in the arrays below
        self._zero_slot = zero_slot
        # Everything that sampling reads of a slot lies together: one cache miss instead of four.
        slot = [
            ("stack", np.int32, (frame_stack,)),  # slots of its stack's frames, newest last
            ("action", action.dtype, action.shape),
            ("segment", np.int32),  # the segment's entry in the table of segments
            ("is_pair", bool),  # False for a final frame
        ]
        # `steps` is negative if the window terminated.
        window = [("reward", np.float32), ("steps", np.int32)]
        size = num_runs * capacity
        self._slots = aligned.zeros([size], _padded(np.dtype(slot, align=True)))
        self._windows = np.zeros(size, window)
        self._reward = np.zeros(size, np.float32)
        self._terminated = np.zeros(size, bool)
        self._is_last = np.zeros(size, bool)  # of its episode, terminated or truncated
        # Steps since the start of a slot's episode; kept only where sequences are drawn.
        self._age = np.zeros(size, np.int32) if settings.sequences else None
        self._segments = SegmentTable(num_runs, capacity, settings.contrast_rule.tolerance)
        rule = settings.contrast_rule
        compares_returns = rule.equal_return_positives or rule.differs_in_return
        self._returns = ReturnTable(num_runs, capacity) if compares_returns else None
        self._keeps_all_final_frames = settings.all_final_frames
        self._round_steps = settings.round_steps
        self._steps = 0
        self._rounds = [np.zeros(num_runs, np.int64)]  # the first index of each

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
        at = self._starts + slot
        self._slots["action"][at] = action
        self._slots["is_pair"][at] = True
        self._slots["segment"][at] = self._segments.add(index, reward, ended) % self._capacity
        self._reward[at] = reward
        self._terminated[at] = terminated
        self._is_last[at] = ended
        if self._returns is not None:
            self._returns.add(slot, reward, ended)

        has_final = ended if self._keeps_all_final_frames else truncated & ~terminated
        final_runs = np.flatnonzero(has_final)
        final_slot = self._append(final_runs)
        at = self._starts[final_runs] + final_slot
        self._is_last[at] = True
        self._slots["is_pair"][at] = False
        self._next_age[ended] = 0
        self._steps += 1
        if self._round_steps and self._steps % self._round_steps == 0:
            self._rounds.append(self.count.copy())
        return WrittenSlots(slot, final_runs, final_slot)

    def _append(self, rows: np.ndarray) -> np.ndarray:
        """Moves the head of `rows [n]` by one slot; returns the slots `[n]`."""
        slot = self.count[rows] % self._capacity
        back, exists = stack_places(self._next_age[rows], self._frame_stack)
        stack = np.where(exists, (slot[:, None] - back) % self._capacity, self._zero_slot)
        self._slots["stack"][self._starts[rows] + slot] = stack
        if self._age is not None:
            self._age[self._starts[rows] + slot] = self._next_age[rows]
        self.count[rows] += 1
        self._next_age[rows] += 1
        return slot

    def compute_windows(self, rows: np.ndarray, index: np.ndarray) -> None:
        """Computes the n-step windows of `rows [n]` that start at `index [n]`; all are complete."""
        starts = self._starts[rows]
        window = (index[:, None] + np.arange(self._n_step)) % self._capacity  # [n, n_step]
        window += starts[:, None]
        is_last = self._is_last.take(window)
        # A reward counts if no transition before it was the last of the episode.
        counts = np.cumsum(is_last, axis=-1) - is_last == 0
        steps = counts.sum(axis=-1)  # [n], the window's true length
        reward = np.sum(self._reward.take(window) * counts * self._discounts[:-1], axis=-1)
        terminated = self._terminated[starts + (index + steps - 1) % self._capacity]
        at = window[:, 0]
        self._windows["reward"][at] = reward
        self._windows["steps"][at] = np.where(terminated, -steps, steps)

    @property
    def oldest(self) -> np.ndarray:
        """`[R]`: the oldest index whose full stack survives."""
        return np.maximum(self.count - self._capacity + self._frame_stack - 1, 0)

    @property
    def oldest_slot(self) -> np.ndarray:
        """`[R]`: the oldest index whose slot survives, even if its stack is incomplete."""
        return np.maximum(self.count - self._capacity, 0)

    @property
    def open_episode(self) -> np.ndarray:
        """`[R]`: the first index of the episode that has not ended."""
        return self.count - self._next_age

    @property
    def rounds(self) -> np.ndarray:
        """`[R, K + 1]`: the first index of each of K complete rounds, and the one after them."""
        return np.stack(self._rounds, axis=1)

    def slot(self, index: np.ndarray) -> np.ndarray:
        """Where indices of any shape lie in the ring."""
        return index % self._capacity

    def age(self, index: np.ndarray) -> np.ndarray:
        """Steps since the start of the episode `[R, N]`; only where sequences are drawn."""
        return self._at(self._age, index)

    def step(self, index: np.ndarray) -> StepOf:
        """The steps at `index [R, N]`."""
        return StepOf(
            np.ascontiguousarray(self._at(self._slots, index)["action"]),
            self._at(self._reward, index),
            self._at(self._terminated, index),
        )

    def index_of(self, slot: np.ndarray) -> np.ndarray:
        """The newest index that each slot `[R, N]` holds."""
        newest = self.count[:, None] - 1
        return newest - (newest - slot) % self._capacity

    def holds(self, index: np.ndarray) -> np.ndarray:
        """Whether the steps of `index [R, N]` are still stored: `[R, N] bool`."""
        return index >= self.count[:, None] - self._capacity

    def pairs(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """State-action pairs: slots of the stacks `[R, N, C] int32`, actions `[R, N, *act]`."""
        slots = self._at(self._slots, index)
        return np.ascontiguousarray(slots["stack"]), np.ascontiguousarray(slots["action"])

    def context(self, index: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Actions that led to the newest `length` frames at `index [R, N]`, and which frames exist.

        Only where sequences are drawn. See `types.Context`.

        Returns:
          The actions that led to the frames `[R, N, C, *act]`, zero where the ring holds none; and
          whether the frames belong to the episode `[R, N, C] bool`.
        """
        back, exists = stack_places(self.age(index).reshape(-1), length)
        at = index[..., None] - back  # [R, N, C]
        flat = at.reshape(len(at), -1)
        exists = exists.reshape(flat.shape)
        led = exists & (self.age(flat) > 0) & self.holds(flat - 1)
        action = self.step(flat - 1).action
        action[~led] = 0
        return action.reshape(*at.shape, *action.shape[2:]), exists.reshape(at.shape)

    def bootstrap_stacks(self, window: Window) -> np.ndarray:
        """Slots of the stacks `[R, B, C] int32` to bootstrap from; the zero slot if terminated."""
        stacks, _ = self.pairs(window.end)
        stacks[window.terminated] = self._zero_slot
        return stacks

    def is_pair(self, index: np.ndarray) -> np.ndarray:
        """Whether the slots at `index [R, N]` hold an action: `[R, N] bool`."""
        return self._at(self._slots, index)["is_pair"]

    def returns(self, index: np.ndarray) -> np.ndarray:
        """Returns `[R, N]` so far; only where the contrast rule compares returns."""
        return self._returns.returns(index % self._capacity)

    def segment_bounds(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """First and last live transition of the segments of `index [R, N]`, both inclusive."""
        first, last = self._segments.bounds(self._at(self._slots, index)["segment"])
        return np.maximum(first, self.oldest[:, None]), last

    def segment_lengths(self, run: int) -> np.ndarray:
        """Lengths of one run's live segments, the open one included [live transitions]."""
        return self._segments.lengths(run, self.oldest[run])

    def window(self, index: np.ndarray) -> Window:
        """The n-step windows that start at `index [R, B]`; they must be complete."""
        window = self._at(self._windows, index)
        terminated, steps = window["steps"] < 0, np.abs(window["steps"])
        discount = np.where(terminated, 0.0, self._discounts[steps]).astype(np.float32)
        return Window(np.ascontiguousarray(window["reward"]), discount, index + steps, terminated)

    def _at(self, values: np.ndarray, index: np.ndarray) -> np.ndarray:
        return values.take(index % self._capacity + self._starts[:, None])


def _padded(record: np.dtype) -> np.dtype:
    """Pads a small record to a power of two, so that none lies across two cache lines."""
    if record.itemsize > aligned.LINE // 2:
        return record
    names, places = zip(*record.fields.items(), strict=True)
    formats, offsets = zip(*(place[:2] for place in places), strict=True)
    size = 1 << (record.itemsize - 1).bit_length()
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size})
