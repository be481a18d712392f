"""The replay of a fleet: transitions with segments, priorities and frames.

When a transition may be used (see ring.py for indices, slots and stacks):

    as the start of a window (prioritised)  once its window is complete: n later slots are
                                            filled, or its episode has ended
    as positive, negative, uniform anchor   at once
    no longer at all                        when it, or a frame its stack may need, is overwritten:
                                            the frame_stack - 1 slots after the head count as lost
"""

from typing import NamedTuple

import jax
import numpy as np

from rcrl_jax import counter_random, types
from rcrl_jax.observations import ObservationFormat
from rcrl_jax.replay.frames import DeviceFrameStore, HostFrameStore
from rcrl_jax.replay.ring import TransitionRing
from rcrl_jax.replay.sequences import SequenceSampler
from rcrl_jax.replay.settings import ReplaySettings
from rcrl_jax.replay.sum_tree import SumTree
from rcrl_jax.return_contrast.sampling import ContrastSampler

_TRANSITIONS = 0  # stream of random numbers; return_contrast/sampling.py has more
# A cross-entropy may underflow to 0, as in a game without rewards. But priority 0 marks a lost
# transition.
_LEAST_LOSS = 1e-8


class Sample(NamedTuple):
    """A sampled batch and what belongs to it."""

    batch: types.Batch  # leading axis R on every array
    index: np.ndarray  # [R, B] int64, for `update_priorities`
    positive_is_anchor: np.ndarray  # [R] float64, share of positives that are their anchor


class ReplayState(NamedTuple):
    """What the log of actions cannot rebuild."""

    priorities: np.ndarray  # [R, capacity] float64
    max_priority: np.ndarray  # [R] float64
    draws: np.ndarray  # [R] int64


class SegmentReplay:
    """Replay of R runs; only SimPLe's windows need a Python loop over runs.

    Attributes:
      settings: sizes and rules.
    """

    def __init__(
        self,
        frame_store: HostFrameStore | DeviceFrameStore,
        seeds: np.ndarray,
        settings: ReplaySettings,
        observations: ObservationFormat,
        action: jax.ShapeDtypeStruct,
    ) -> None:
        """Makes an empty replay.

        Args:
          frame_store: stores the frames; made for R runs and `settings.capacity` slots, with the
            layout `observations.stored`.
          seeds: `[R]`, one a run; a run's samples are independent of the seeds of other runs.
          settings: sizes and rules.
          observations: how frames are stored and stacked.
          action: shape and type of one action: `()` int32 for discrete actions.
        """
        self.settings = settings
        self._frames = frame_store
        self._observations = observations
        runs = len(seeds)
        self._streams = counter_random.Streams(seeds)
        self._ring = TransitionRing(
            runs, settings, observations.frame_stack, frame_store.zero_slot, action
        )
        self._sampler = ContrastSampler(settings.contrast_rule, self._ring, self._streams)
        self._sequences = [
            SequenceSampler(rule, self._ring, self._streams) for rule in settings.sequences
        ]
        self._priorities = SumTree(runs, settings.capacity)
        self._max_priority = np.ones(runs)
        self._first_unready = np.zeros(runs, np.int64)  # first transition without a full window

    # --- adding -----------------------------------------------------------------------------

    def add(
        self,
        frame: np.ndarray,
        action: np.ndarray,
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        next_frame: np.ndarray,
    ) -> None:
        """Appends one transition to every run; invalidates the frame references of `sample`.

        Args:
          frame: `[R, *frame_shape]`, the newest frame of the observation acted on.
          action: `[R, *act]`.
          reward: `[R] float32`, as the loss reads it.
          terminated: `[R] bool`, the episode ended and nothing follows.
          truncated: `[R] bool`, the episode was cut and its value continues.
          next_frame: `[R, *frame_shape]`, the frame that followed; kept only if it is a final frame
            that the settings ask for.
        """
        index = self._ring.count.copy()
        slot, final_runs, final_slot = self._ring.add(action, reward, terminated, truncated)
        self._write(self._ring.rows, slot, frame)
        if final_runs.size:
            self._write(final_runs, final_slot, next_frame[final_runs])
        ended = terminated | truncated
        complete = np.maximum(index - self.settings.n_step + 1, 0)
        self._make_ready(np.where(ended, index + 1, complete))
        self._first_unready = np.where(ended, self._ring.count, self._first_unready)

    def _write(self, rows: np.ndarray, slot: np.ndarray, frame: np.ndarray) -> None:
        """Writes frames of `rows [n]` to `slot [n]`; slots with broken stacks are lost."""
        self._frames.write(rows, slot, frame)
        # The slots in between were lost when earlier frames were written.
        lost = (slot + self._observations.frame_stack - 1) % self.settings.capacity
        self._priorities.set(rows, lost, 0.0)

    def _make_ready(self, end: np.ndarray) -> None:
        """Gives transitions up to `end [R]`, exclusive, the largest priority seen so far."""
        index = self._first_unready[:, None] + np.arange(self.settings.n_step + 1)  # [R, n+1]
        ready = index < end[:, None]
        rows, index = np.nonzero(ready)[0], index[ready]
        if rows.size:
            self._ring.compute_windows(rows, index)
            self._priorities.set(rows, index % self.settings.capacity, self._max_priority[rows])
        self._first_unready = np.maximum(self._first_unready, end)

    # --- sampling ---------------------------------------------------------------------------

    def sample(self, beta: float, kind: int = 0) -> Sample:
        """Draws a batch for every run; the settings give its sizes.

        The observations of the batch stay valid for a limited time:

        * frames on the host: arrays in one of two alternating buffers. The second call from now
          overwrites them, so the update that reads this batch may still run during the next call.
        * frames on the device: references into the store's array. The next `add` donates that
          array, so the update must be dispatched before the `add`, and may still run during it.

        Args:
          beta: exponent of the importance weights.
          kind: the kind of update that reads the batch.

        Returns:
          The batch with leading axis R, and the indices for `update_priorities`.
        """
        if not self._sequences:
            index = self._prioritised(_TRANSITIONS, self.settings.batch_size)
            transitions = self._transitions(index, beta)
        else:
            index = self._sequences[kind].draw(self.settings.size(kind))
            transitions = self._sequence_batch(index, kind)
        contrast, positive_is_anchor = None, np.zeros(len(index))
        rule = self.settings.contrast_rule
        if rule.number:
            anchor = index
            if rule.anchors != "rl_batch":
                anchor = self._sampler.anchors(self._prioritised, rule.number)
            positive, negative = self._sampler.contrast(anchor)
            contrast = self._contrast_batch(anchor, positive, negative)
            positive_is_anchor = np.mean(positive == anchor, axis=1)
        self._streams.counters += 1
        return Sample(types.Batch(transitions, contrast), index, positive_is_anchor)

    def sample_to_measure(self, size: int) -> types.ContrastBatch:
        """Contrastive samples `[R, size]` that nothing learns from.

        They come from separate random streams, so measuring does not change training. They stay
        valid as long as those of `sample`.
        """
        anchor = self._sampler.anchors(self._prioritised, size, measuring=True)
        positive, negative = self._sampler.contrast(anchor, measuring=True)
        return self._contrast_batch(anchor, positive, negative, prefix="measured_")

    def example_batch(self, kind: int = 0) -> types.Batch:
        """A batch with the shapes and types of a sampled batch, and arbitrary contents.

        Used to compile and time an update of a kind, even while the replay is empty.
        """
        runs, num_anchors = len(self._ring.rows), self.settings.contrast_rule.number
        index = np.zeros((runs, self.settings.size(kind)), np.int64)
        if not self._sequences:
            with np.errstate(invalid="ignore"):  # an empty replay has no priorities
                transitions = self._transitions(index, beta=0.0)
        else:
            transitions = self._sequence_batch(index, kind)
        anchor = np.zeros((runs, num_anchors), np.int64)
        contrast = self._contrast_batch(anchor, anchor, anchor) if num_anchors else None
        return types.Batch(transitions, contrast)

    def _prioritised(self, stream: int, size: int) -> np.ndarray:
        """Indices `[R, size]`, one from each of `size` strata of equal priority mass."""
        strata = (np.arange(size) + self._streams.uniform(stream, size)) / size
        return self._ring.index_of(self._priorities.find(strata * self._priorities.total[:, None]))

    def _transitions(self, index: np.ndarray, beta: float) -> types.TransitionBatch:
        """The n-step transitions that start at `index [R, B]`."""
        window = self._ring.window(index)
        slot = index % self.settings.capacity
        priority = self._priorities.get(self._ring.rows[:, None], slot)
        # (N p)^-beta over its largest value: N and the sum of the priorities cancel.
        weight = (priority / priority.min(axis=1, keepdims=True)) ** -beta
        stacks, action = self._ring.pairs(index)
        return types.TransitionBatch(
            observation=self._frames.gather("observation", stacks, self._observations.observation),
            action=action,
            reward=window.reward,
            discount=window.discount,
            next_observation=self._frames.gather(
                "next_observation",
                self._ring.bootstrap_stacks(window),
                self._observations.next_observation,
            ),
            weight=weight.astype(np.float32),
        )

    def _sequence_batch(self, index: np.ndarray, kind: int) -> types.SequenceBatch:
        """The windows of consecutive frames that start at `index [R, B]`."""
        slots, *others = self._sequences[kind].read(index)
        layout = self._observations.observation
        return types.SequenceBatch(self._frames.gather("observation", slots, layout), *others)

    def _contrast_batch(
        self, anchor: np.ndarray, positive: np.ndarray, negative: np.ndarray, prefix: str = ""
    ) -> types.ContrastBatch:
        """The pairs at three arrays of indices `[R, N]`; `prefix` names their buffers."""

        def pairs(name: str, index: np.ndarray) -> types.Pairs:
            stacks, action = self._ring.pairs(index)
            observation = self._frames.gather(prefix + name, stacks, self._observations.network)
            if self._observations.with_actions:
                led_by = self._ring.context(index, self._observations.frame_stack)
                observation = types.Context(observation, *led_by)
            return types.Pairs(observation, action)

        return types.ContrastBatch(
            pairs("anchor", anchor), pairs("positive", positive), pairs("negative", negative)
        )

    # --- priorities, state, statistics --------------------------------------------------------

    def update_priorities(self, index: np.ndarray, transition_loss: np.ndarray) -> None:
        """Sets the priorities of sampled transitions that are still live.

        Args:
          index: `[R, B]`, from `sample`.
          transition_loss: `[R, B]`, their losses.
        """
        if not self.settings.priority_exponent:  # all priorities are 1
            return
        loss = np.maximum(transition_loss.astype(np.float64), _LEAST_LOSS)
        priority = loss**self.settings.priority_exponent
        slot = index % self.settings.capacity
        rows = np.broadcast_to(self._ring.rows[:, None], slot.shape)
        live = self._ring.holds(index) & (self._priorities.get(rows, slot) > 0)
        self._priorities.set(rows[live], slot[live], priority[live])
        self._max_priority = np.maximum(self._max_priority, priority.max(axis=1))

    @property
    def state(self) -> ReplayState:
        """What a checkpoint keeps beside the log of actions; a copy."""
        return ReplayState(
            self._priorities.leaves, self._max_priority.copy(), self._streams.counters.copy()
        )

    def restore(self, state: ReplayState) -> None:
        """Sets priorities and random counters, after the transitions were added again.

        A resumed run may cut open episodes at the checkpoint. Then more windows are complete than
        when `state` was saved, and final frames take slots. Otherwise the same windows have a
        priority.
        """
        ready = self._priorities.leaves > 0
        priorities = np.where(state.priorities > 0, state.priorities, state.max_priority[:, None])
        self._priorities.leaves = np.where(ready, priorities, 0.0)
        self._max_priority = state.max_priority.copy()
        self._streams.counters = state.draws.copy()

    def segment_lengths(self, run: int) -> np.ndarray:
        """Lengths of one run's live segments, the open one included [live transitions]."""
        return self._ring.segment_lengths(run)
