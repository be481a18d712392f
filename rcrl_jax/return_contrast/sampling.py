"""Draws anchors, positives and negatives of the return-contrastive task from the ring."""

from collections.abc import Callable

import numpy as np

from rcrl_jax import counter_random
from rcrl_jax.replay.ring import TransitionRing
from rcrl_jax.replay.settings import ContrastRule

# Streams of random numbers; the RL batch draws from stream 0. Redraws of negatives take the streams
# after `_NEGATIVES`, so it must be the last.
_ANCHORS, _POSITIVES, _NEGATIVES = 1, 2, 3
_UNIFORM_ANCHORS = 1 << 16
_EQUAL_RETURNS = 1 << 17
_MEASURING = 1 << 20  # added to the streams of samples that nothing learns from
_DRAWS_FOR_ANOTHER_RETURN = 16
# 32 draws for each of 64 anchors take 0.1 ms a run. They find a return with probability 0.97 if
# 1/10 of the live transitions have it, and with probability 0.28 if 1/100 have it.
_DRAWS_FOR_AN_EQUAL_RETURN = 32


class ContrastSampler:
    """Draws indices for all runs at once; reads the ring and changes nothing."""

    def __init__(
        self,
        rule: ContrastRule,
        ring: TransitionRing,
        streams: counter_random.Streams,
    ) -> None:
        """Keeps what the draws need.

        Args:
          rule: how samples are drawn.
          ring: the transitions.
          streams: random numbers of the runs.
        """
        self._rule = rule
        self._ring = ring
        self._uniform = streams.uniform

    def anchors(
        self, prioritised: Callable[[int, int], np.ndarray], size: int, measuring: bool = False
    ) -> np.ndarray:
        """Indices `[R, size]` of anchors.

        If the rule takes the RL batch as anchors, anchors for measuring are drawn like an RL batch.

        Args:
          prioritised: `(stream, size) -> [R, size]`, indices in proportion to their priorities.
          size: anchors a run.
          measuring: draws from separate streams, for samples that nothing learns from.
        """
        first_stream = _MEASURING if measuring else 0
        if self._rule.anchors == "uniform":
            return self._anywhere(first_stream + _UNIFORM_ANCHORS, size)
        return prioritised(first_stream + _ANCHORS, size)

    def contrast(
        self, anchor: np.ndarray, measuring: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Indices `[R, N]` of positives and of negatives, for anchors `[R, N]`; see `anchors`."""
        first_stream = _MEASURING if measuring else 0
        positive = self._same_segment(first_stream + _POSITIVES, anchor)
        if self._rule.equal_return_positives:
            positive = self._of_equal_return(first_stream + _EQUAL_RETURNS, anchor, positive)
        negative = self._anywhere(first_stream + _NEGATIVES, anchor.shape[1])
        if self._rule.differs_in_return:
            negative = self._of_another_return(first_stream + _NEGATIVES, anchor, negative)
        return positive, negative

    def _same_segment(self, stream: int, anchor: np.ndarray) -> np.ndarray:
        """Uniform over the live transitions of each anchor's segment.

        The anchor is one of them. If the rule excludes the anchor, it is drawn only if its segment
        has no other pair.
        """
        first, last = self._ring.segment_bounds(anchor)
        draw = self._uniform(stream, anchor.shape[1])
        if not self._rule.excludes_anchor:
            return first + (draw * (last - first + 1)).astype(np.int64)
        others = last - first
        positive = first + (draw * others).astype(np.int64)
        return np.where(others > 0, positive + (positive >= anchor), anchor)

    def _anywhere(self, stream: int, size: int) -> np.ndarray:
        """Uniform over the live transitions of each run; redraws take the streams that follow."""
        oldest = self._ring.oldest[:, None]
        span = self._ring.count[:, None] - oldest
        index = np.zeros((len(oldest), size), np.int64)
        redraw = np.ones(index.shape, bool)
        attempt = 0
        while redraw.any():  # nearly always one iteration: truncations are rare
            draw = oldest + (self._uniform(stream + attempt, size) * span).astype(np.int64)
            index = np.where(redraw, draw, index)
            redraw = ~self._ring.is_pair(index)
            attempt += 1
        return index

    def _of_equal_return(self, stream: int, anchor: np.ndarray, fallback: np.ndarray) -> np.ndarray:
        """Uniform over the live transitions with their anchor's return, where one is found.

        Takes the first of 32 draws from the whole replay that has the anchor's return. If no draw
        has it, takes the pair `fallback [R, N]` of the anchor's segment. If a share q of the live
        transitions has the return, all draws miss it with probability (1 - q) ** 32. So an anchor
        with a rare return mostly keeps a positive of its segment.
        """
        runs, size = anchor.shape
        draws = _DRAWS_FOR_AN_EQUAL_RETURN
        candidate = self._anywhere(stream, size * draws)
        anchors = np.repeat(anchor, draws, axis=1)
        fits = self._has_return(candidate, self._ring.returns(anchors))
        if self._rule.excludes_anchor:
            fits &= candidate != anchors
        fits = fits.reshape(runs, size, draws)
        first = np.argmax(fits, axis=-1)[..., None]
        found = np.take_along_axis(candidate.reshape(runs, size, draws), first, axis=-1)[..., 0]
        return np.where(fits.any(axis=-1), found, fallback)

    def _has_return(self, index: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """Whether the returns at `index [R, N]` count as equal to `wanted [R, N]`."""
        return np.abs(self._ring.returns(index) - wanted) <= self._rule.tolerance

    def _of_another_return(
        self, stream: int, anchor: np.ndarray, negative: np.ndarray
    ) -> np.ndarray:
        """Redraws negatives that have their anchor's return, up to 16 draws in all.

        Where all returns are equal, as before the first reward of a game, the last draw stays.
        """
        wanted = self._ring.returns(anchor)
        for attempt in range(1, _DRAWS_FOR_ANOTHER_RETURN):
            equal = self._has_return(negative, wanted)
            if not equal.any():
                break
            # Attempts are 256 streams apart, which leaves room for the redraws of `_anywhere`.
            draw = self._anywhere(stream + (attempt << 8), anchor.shape[1])
            negative = np.where(equal, draw, negative)
        return negative
