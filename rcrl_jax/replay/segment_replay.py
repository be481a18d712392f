"""The replay of a fleet: a ring of transitions with segments, priorities and frames.

One slot of the ring holds one frame together with the action taken on it:

    slot      ...  t-1          t              t+1             t+2 (only after a truncation)
    frame          o_{t-1}      o_t            o_{t+1}         o_{t+2}, nothing but a frame
    action         a_{t-1}      a_t            a_{t+1}, last   -
    n = 3 window of t-1:  [r(t-1) + g r(t) + g^2 r(t+1)], bootstraps from o_{t+2}

An episode that terminates needs no frame after its last action; one that is truncated does,
because its windows bootstrap from there. That frame takes a slot of its own, which is neither
sampled nor counted as a step. An observation's stack is made of its slot and those before it,
with zeros before the episode's start.

What a transition may be used for:

    as the start of a window (prioritised)  once its window is complete: n later slots are
                                            filled, or its episode has ended
    as positive or negative                 at once
    neither                                 when it, or a frame its stack may need, is overwritten:
                                            the stack - 1 slots after the head count as lost

Indices count the slots ever written by a run; index modulo capacity is the slot.
"""

from typing import NamedTuple

import numpy as np

from rcrl_jax import observations, types
from rcrl_jax.replay import counter_random, frames, returns, segments, sum_tree

_TRANSITIONS, _ANCHORS, _POSITIVES, _NEGATIVES = range(4)  # streams of random numbers
# Redrawing takes the streams after its own, so nothing else may lie there.
_UNIFORM_ANCHORS = 1 << 16
_EQUAL_RETURNS = 1 << 17
_MEASURING = 1 << 20  # added to the streams of pairs that nothing learns from
_DRAWS_FOR_ANOTHER_RETURN = 16
# 32 draws for each of 64 anchors take 0.1 ms a run. A return that 1/10 of the live transitions
# have is found with probability 0.97, one that 1/100 have with 0.28.
_DRAWS_FOR_AN_EQUAL_RETURN = 32

# A cross-entropy that underflows to 0, as in a game without rewards, must not take its transition
# out of the replay for good.
_LEAST_LOSS = 1e-8


class Sample(NamedTuple):
    """A sampled batch and what belongs to it."""

    batch: types.Batch  # leading axis R on every array
    index: np.ndarray  # [R, B] int64, for `update_priorities`
    positive_is_anchor: np.ndarray  # [R] float64, share of positives that are their anchor


class ContrastRule(NamedTuple):
    """How contrastive samples are drawn, where the paper leaves it open."""

    anchors: str = "as_transitions"  # or 'uniform', or 'rl_batch': the transitions themselves
    equal_return_positives: bool = False  # from anywhere, if 32 draws find one
    excludes_anchor: bool = False  # from the positives, wherever its segment has another pair
    differs_in_return: bool = False  # a negative from its anchor, if 16 draws find one
    tolerance: float = 0.0  # two returns that differ by no more than this count as equal


class ReplayState(NamedTuple):
    """What the log of actions cannot rebuild."""

    priorities: np.ndarray  # [R, capacity] float64
    max_priority: np.ndarray  # [R] float64
    draws: np.ndarray  # [R] int64


class SegmentReplay:
    """Replay of R runs; no method loops over runs or batch elements in Python."""

    def __init__(
        self,
        frame_store: frames.HostFrameStore | frames.DeviceFrameStore,
        seeds: np.ndarray,
        *,
        capacity: int,
        closes_segment: segments.SegmentRule,
        frame_stack: int,
        n_step: int,
        discount: float,
        priority_exponent: float,
        action_shape: tuple[int, ...] = (),
        action_dtype: type[np.generic] = np.int32,
        contrast: ContrastRule = ContrastRule(),  # noqa: B008 - immutable
        layouts: observations.Layouts | None = None,
    ) -> None:
        """Makes an empty replay.

        Args:
          frame_store: where frames live, for as many runs and slots.
          seeds: `[R]`, one a run; a run's samples depend on its own seed alone.
          capacity: slots a run.
          closes_segment: the rule that ends a segment.
          frame_stack: frames in an observation.
          n_step: length of the multi-step window [agent steps].
          discount: gamma, of one agent step.
          priority_exponent: priority = cross-entropy ** exponent; 0 samples uniformly.
          action_shape: of one action: nothing for a number out of a set.
          action_dtype: of an action.
          contrast: how contrastive samples are drawn.
          layouts: how observations are laid out; None leaves them as frames are stored.
        """
        self._frames = frame_store
        self._seeds = np.asarray(seeds)
        self._capacity = capacity
        self._stack = frame_stack
        self._n_step = n_step
        self._gammas = discount ** np.arange(n_step + 1)
        self._exponent = priority_exponent
        self._contrast_rule = contrast
        self._layouts = layouts or observations.Layouts(None, None, None, None)

        runs = len(self._seeds)
        self._rows = np.arange(runs)
        self._action = np.zeros((runs, capacity, *action_shape), action_dtype)
        self._reward = np.zeros((runs, capacity), np.float32)
        self._terminated = np.zeros((runs, capacity), bool)
        self._is_last = np.zeros((runs, capacity), bool)  # of its episode, either way
        self._is_pair = np.zeros((runs, capacity), bool)  # not just the frame of a truncation
        self._age = np.zeros((runs, capacity), np.int64)  # steps since the start, at most stack-1
        self._segment = np.zeros((runs, capacity), np.int64)

        self._segments = segments.SegmentTable(runs, capacity, closes_segment)
        compares_returns = contrast.equal_return_positives or contrast.differs_in_return
        self._returns = returns.ReturnTable(runs, capacity) if compares_returns else None
        self._priorities = sum_tree.SumTree(runs, capacity)
        self._max_priority = np.ones(runs)
        self._count = np.zeros(runs, np.int64)  # slots ever written
        self._next_age = np.zeros(runs, np.int64)
        self._first_unready = np.zeros(runs, np.int64)  # first transition without a full window
        self._draws = np.zeros(runs, np.int64)

    @property
    def frames_on_device(self):
        """What an update needs beside a batch: stored frames on the device, or None."""
        return self._frames.on_device

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
        """Appends one transition to every run.

        Args:
          frame: `[R, *frame_shape]`, the newest frame of the observation acted on.
          action: `[R, *act]`.
          reward: `[R] float32`, as the loss shall see it.
          terminated: `[R] bool`, the episode ended and nothing follows.
          truncated: `[R] bool`, the episode was cut and its value continues.
          next_frame: `[R, *frame_shape]`, the frame that followed; kept where truncated.
        """
        index = self._count.copy()
        ended = terminated | truncated
        slot = self._append(self._rows, frame)
        self._action[self._rows, slot] = action
        self._reward[self._rows, slot] = reward
        self._terminated[self._rows, slot] = terminated
        self._is_last[self._rows, slot] = ended
        self._is_pair[self._rows, slot] = True
        self._segment[self._rows, slot] = self._segments.add(index, reward, ended)
        if self._returns is not None:
            self._returns.add(slot, reward, ended)

        cut = np.nonzero(truncated & ~terminated)[0]
        if cut.size:
            slot = self._append(cut, next_frame[cut])
            self._is_last[cut, slot] = True
            self._is_pair[cut, slot] = False
        self._next_age[ended] = 0
        self._make_ready(np.where(ended, index + 1, np.maximum(index - self._n_step + 1, 0)))
        self._first_unready = np.where(ended, self._count, self._first_unready)

    def _append(self, rows: np.ndarray, frame: np.ndarray) -> np.ndarray:
        """Writes one frame to the next slot of `rows [n]`; returns the slots `[n]`."""
        slot = self._count[rows] % self._capacity
        self._frames.write(rows, slot, frame)
        self._age[rows, slot] = np.minimum(self._next_age[rows], self._stack - 1)
        # The ring's head takes this slot and breaks the stacks of those that follow it.
        lost = (slot[:, None] + np.arange(self._stack)) % self._capacity
        self._priorities.set(rows[:, None], lost, 0.0)
        self._count[rows] += 1
        self._next_age[rows] += 1
        return slot

    def _make_ready(self, end: np.ndarray) -> None:
        """Gives transitions up to `end [R]`, exclusive, the largest priority seen so far."""
        index = self._first_unready[:, None] + np.arange(self._n_step + 1)  # [R, n+1]
        rows, column = np.nonzero(index < end[:, None])
        slots = index[rows, column] % self._capacity
        self._priorities.set(rows, slots, self._max_priority[rows])
        self._first_unready = np.maximum(self._first_unready, end)

    # --- sampling ---------------------------------------------------------------------------

    def sample(self, batch_size: int, contrast_batch_size: int, beta: float) -> Sample:
        """Draws a batch for every run.

        Args:
          batch_size: B, transitions a run, prioritised.
          contrast_batch_size: N, anchors a run; 0 for none. Where the anchors are the RL batch,
            B or 0.
          beta: exponent of the importance weights.

        Returns:
          The batch with leading axis R, and the indices for `update_priorities`.

        Raises:
          ValueError: the anchors are the RL batch, and N is neither B nor 0.
        """
        index = self._prioritised(_TRANSITIONS, batch_size)
        transitions = self._windows(index, beta)
        contrast, is_anchor = None, np.zeros(len(self._rows))
        if contrast_batch_size:
            anchor = index
            if self._contrast_rule.anchors != "rl_batch":
                anchor = self._draw_anchors(0, contrast_batch_size)
            elif contrast_batch_size != batch_size:
                raise ValueError(
                    f"contrast_batch_size: {contrast_batch_size} anchors cannot be the "
                    f"{batch_size} transitions of the RL batch"
                )
            contrast, is_anchor = self._contrast(anchor)
        self._draws += 1
        return Sample(types.Batch(transitions, contrast), index, is_anchor)

    def sample_to_measure(self, size: int) -> types.ContrastBatch:
        """Contrastive samples `[R, size]` for a look at the representation.

        Drawn as those to learn from, from random streams of their own: what is learned does not
        depend on whether somebody looks. Where the anchors to learn from are the RL batch, these
        are drawn as an RL batch is.
        """
        return self._contrast(self._draw_anchors(_MEASURING, size), _MEASURING, "measured_")[0]

    def _draw_anchors(self, first_stream: int, size: int) -> np.ndarray:
        """Indices `[R, size]` of anchors."""
        if self._contrast_rule.anchors == "uniform":
            return self._anywhere(first_stream + _UNIFORM_ANCHORS, size)
        return self._prioritised(first_stream + _ANCHORS, size)

    def _contrast(
        self, anchor: np.ndarray, first_stream: int = 0, prefix: str = ""
    ) -> tuple[types.ContrastBatch, np.ndarray]:
        """Contrastive samples of anchors `[R, N]`.

        Returns:
          The samples, and the share `[R]` of positives that are their anchor.
        """
        positive = self._same_segment(first_stream + _POSITIVES, anchor)
        if self._contrast_rule.equal_return_positives:
            positive = self._of_equal_return(first_stream + _EQUAL_RETURNS, anchor, positive)
        negative = self._anywhere(first_stream + _NEGATIVES, anchor.shape[1])
        if self._contrast_rule.differs_in_return:
            negative = self._of_another_return(first_stream + _NEGATIVES, anchor, negative)
        batch = types.ContrastBatch(
            self._pairs(prefix + "anchor", anchor),
            self._pairs(prefix + "positive", positive),
            self._pairs(prefix + "negative", negative),
        )
        return batch, np.mean(positive == anchor, axis=1)

    def _uniform(self, stream: int, size: int) -> np.ndarray:
        return counter_random.uniform(self._seeds, stream, self._draws, size)

    def _prioritised(self, stream: int, size: int) -> np.ndarray:
        """Indices `[R, size]`, one from each of `size` strata of equal priority mass."""
        strata = (np.arange(size) + self._uniform(stream, size)) / size
        return self._index_of(self._priorities.find(strata * self._priorities.total[:, None]))

    def _index_of(self, slot: np.ndarray) -> np.ndarray:
        """The newest index that each slot `[R, N]` holds."""
        newest = self._count[:, None] - 1
        return newest - (newest - slot) % self._capacity

    def _windows(self, index: np.ndarray, beta: float) -> types.TransitionBatch:
        rows = self._rows[:, None]
        slot = index % self._capacity
        window = (index[..., None] + np.arange(self._n_step)) % self._capacity  # [R, B, n]
        is_last = self._is_last[rows[..., None], window]
        # Reward k counts if no transition before it was the last of the episode.
        counts = np.cumsum(is_last, axis=-1) - is_last == 0
        steps = counts.sum(axis=-1)  # [R, B], the window's true length
        reward = np.sum(self._reward[rows[..., None], window] * counts * self._gammas[:-1], axis=-1)
        end = index + steps
        terminated = self._terminated[rows, (end - 1) % self._capacity]
        discount = np.where(terminated, 0.0, self._gammas[steps])
        priority = self._priorities.get(rows, slot)
        # (N p)^-beta over its largest value: N and the sum of the priorities cancel.
        weight = (priority / priority.min(axis=1, keepdims=True)) ** -beta
        return types.TransitionBatch(
            observation=self._frames.gather(
                "observation", self._stack_slots(index), self._layouts.observation
            ),
            action=self._action[rows, slot],
            reward=reward.astype(np.float32),
            discount=discount.astype(np.float32),
            next_observation=self._frames.gather(
                "next_observation",
                self._stack_slots(end, blank=terminated),
                self._layouts.next_observation,
            ),
            weight=weight.astype(np.float32),
        )

    def _same_segment(self, stream: int, anchor: np.ndarray) -> np.ndarray:
        """Uniform over the live transitions of each anchor's segment, itself included or not."""
        number = self._segment[self._rows[:, None], anchor % self._capacity]
        first, last = self._segments.bounds(number)
        first = np.maximum(first, self._oldest[:, None])
        draw = self._uniform(stream, anchor.shape[1])
        if not self._contrast_rule.excludes_anchor:
            return first + (draw * (last - first + 1)).astype(np.int64)
        others = last - first
        positive = first + (draw * others).astype(np.int64)
        return np.where(others > 0, positive + (positive >= anchor), anchor)

    def _anywhere(self, stream: int, size: int) -> np.ndarray:
        """Uniform over the live transitions of each run; redraws on the streams that follow."""
        oldest = self._oldest[:, None]
        span = self._count[:, None] - oldest
        index = np.zeros((len(self._rows), size), np.int64)
        redraw = np.ones(index.shape, bool)
        attempt = 0
        while redraw.any():  # once in nearly all cases: frames of truncations are rare
            draw = oldest + (self._uniform(stream + attempt, size) * span).astype(np.int64)
            index = np.where(redraw, draw, index)
            redraw = ~self._is_pair[self._rows[:, None], index % self._capacity]
            attempt += 1
        return index

    def _of_equal_return(self, stream: int, anchor: np.ndarray, fallback: np.ndarray) -> np.ndarray:
        """Uniform over the live transitions whose return is their anchor's, where one is found.

        Of a bounded number of draws from anywhere, the first that fits; where none does, the pair
        `fallback [R, N]` of the anchor's segment. So an anchor whose return is rare mostly keeps a
        positive of its own segment: a return that a share q of the live transitions have is missed
        with probability (1 - q) ** 32.
        """
        runs, size = anchor.shape
        draws = _DRAWS_FOR_AN_EQUAL_RETURN
        candidate = self._anywhere(stream, size * draws)
        wanted = self._returns.returns(anchor % self._capacity)
        fits = self._has_return(candidate, np.repeat(wanted, draws, axis=1))
        if self._contrast_rule.excludes_anchor:
            fits &= candidate != np.repeat(anchor, draws, axis=1)
        fits = fits.reshape(runs, size, draws)
        first = np.argmax(fits, axis=-1)[..., None]
        found = np.take_along_axis(candidate.reshape(runs, size, draws), first, axis=-1)[..., 0]
        return np.where(fits.any(axis=-1), found, fallback)

    def _has_return(self, index: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """Whether the returns of transitions `index [R, N]` count as equal to `wanted [R, N]`."""
        difference = self._returns.returns(index % self._capacity) - wanted
        return np.abs(difference) <= self._contrast_rule.tolerance

    def _of_another_return(
        self, stream: int, anchor: np.ndarray, negative: np.ndarray
    ) -> np.ndarray:
        """Redraws negatives whose return is their anchor's, a bounded number of times.

        Where all returns are equal, as before the first reward of a game, the last draw stays.
        """
        wanted = self._returns.returns(anchor % self._capacity)
        for attempt in range(1, _DRAWS_FOR_ANOTHER_RETURN):
            same = self._has_return(negative, wanted)
            if not same.any():
                break
            # Each attempt leaves room for the redraws of `_anywhere` on its own streams.
            draw = self._anywhere(stream + (attempt << 8), anchor.shape[1])
            negative = np.where(same, draw, negative)
        return negative

    @property
    def _oldest(self) -> np.ndarray:
        """`[R]`: the first index that the ring's head, one stack ahead of itself, leaves alone."""
        return np.maximum(self._count - self._capacity + self._stack - 1, 0)

    def _pairs(self, name: str, index: np.ndarray) -> types.Pairs:
        action = self._action[self._rows[:, None], index % self._capacity]
        stacks = self._frames.gather(name, self._stack_slots(index), self._layouts.network)
        return types.Pairs(stacks, action)

    def _stack_slots(self, index: np.ndarray, blank: np.ndarray | None = None) -> np.ndarray:
        """Frame slots of the stacks at `index [R, N]`, newest last: `[R, N, C]`.

        Frames before the episode's start, and all of a stack where `blank`, are the zero slot.
        """
        back = np.arange(self._stack)[::-1]
        age = self._age[self._rows[:, None], index % self._capacity]
        if blank is not None:
            age = np.where(blank, -1, age)
        slots = (index[..., None] - back) % self._capacity
        return np.where(back <= age[..., None], slots, self._frames.zero_slot)

    # --- priorities, state, statistics --------------------------------------------------------

    def update_priorities(self, index: np.ndarray, transition_loss: np.ndarray) -> None:
        """Sets the priorities of sampled transitions that are still there.

        Args:
          index: `[R, B]`, from `sample`.
          transition_loss: `[R, B]`, their losses.
        """
        priority = np.maximum(transition_loss.astype(np.float64), _LEAST_LOSS) ** self._exponent
        slot = index % self._capacity
        rows = np.broadcast_to(self._rows[:, None], slot.shape)
        live = (self._index_of(slot) == index) & (self._priorities.get(rows, slot) > 0)
        self._priorities.set(rows[live], slot[live], priority[live])
        self._max_priority = np.maximum(self._max_priority, priority.max(axis=1))

    @property
    def state(self) -> ReplayState:
        """What a checkpoint keeps beside the log of actions."""
        return ReplayState(self._priorities.leaves, self._max_priority.copy(), self._draws.copy())

    def restore(self, state: ReplayState) -> None:
        """Sets priorities and random counters, after the transitions were added again."""
        self._priorities.leaves = state.priorities
        self._max_priority = state.max_priority.copy()
        self._draws = state.draws.copy()

    def segment_lengths(self, run: int) -> np.ndarray:
        """Lengths of one run's live segments, the open one included [live transitions]."""
        index = np.arange(self._oldest[run], self._count[run])
        pairs = index[self._is_pair[run, index % self._capacity]]
        return np.unique(self._segment[run, pairs % self._capacity], return_counts=True)[1]
