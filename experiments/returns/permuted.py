"""The study's control: samples are labelled by returns permuted among similar segments.

Segments are similar if they are of the same third by length and lie in the same tenth of their
episodes, so a permuted return tells as much about length and place as a true one, and nothing else.
A cell of fewer than 30 segments is joined to its neighbours. All transitions of a segment share its
permuted return, as they share its own.

    first indices of a cell's segments      3    8   12   20
    their returns                           5    2    5    0
    their keys, a hash of the index        .7   .1   .4   .9
    permuted returns                        5    0    2    5   sorted, in the order of the keys

The labels are a function of the ring, so a resumed run goes on with the same ones. A key stays
while the run goes on and its cell grows, so a segment keeps nearly the same place among the returns
of its cell: the labels are wrong, but as steady as true ones.
"""

import numpy as np

from rcrl_jax import counter_random
from rcrl_jax.replay.ring import TransitionRing
from rcrl_jax.return_contrast.sampling import Contrast, ContrastSampler

SMALLEST_CELL = 30  # segments
_THIRDS, _TENTHS = 3, 10


class PermutedReturns(ContrastSampler):
    """Draws as `ContrastSampler` does, by permuted returns."""

    def contrast(self, anchor: np.ndarray, measuring: bool = False) -> Contrast:
        """See `ContrastSampler.contrast`."""
        self._permuted = permuted_returns(self.ring)
        return super().contrast(anchor, measuring)

    def returns(self, index: np.ndarray) -> np.ndarray:
        """The permuted returns at the time of the last draw."""
        return np.take_along_axis(self._permuted, index - self.ring.oldest[:, None], axis=1)

    def metrics(self, run: int) -> dict[str, float]:
        """`changed_labels`: share of live transitions whose permuted return is not their own."""
        index, is_pair = live_transitions(self.ring)
        changed = permuted_returns(self.ring) != self.ring.returns(index)
        return {"changed_labels": float(np.mean(changed[run, is_pair[run]]))}


def live_transitions(ring: TransitionRing) -> tuple[np.ndarray, np.ndarray]:
    """Live indices `[R, L]`, a shorter run repeats its last one; and which of them are pairs."""
    index = ring.oldest[:, None] + np.arange(np.max(ring.count - ring.oldest))
    exists = index < ring.count[:, None]
    index = np.minimum(index, ring.count[:, None] - 1)
    return index, exists & ring.is_pair(index)


def permuted_returns(ring: TransitionRing) -> np.ndarray:
    """`[R, L]`: the permuted return of each of `live_transitions` that is a pair."""
    index, is_pair = live_transitions(ring)
    returns, episodes = ring.returns(index), ring.episodes(index)
    first, last = ring.segment_bounds(index)
    result = returns.copy()
    for run in range(len(index)):
        own = np.flatnonzero(is_pair[run])
        head, segment = np.unique(first[run, own], return_inverse=True)
        at = head - ring.oldest[run]  # places of the heads among the live transitions
        _, opens, of, size = np.unique(
            episodes[run, own], return_index=True, return_inverse=True, return_counts=True
        )
        episode = of[np.searchsorted(own, at)]
        start = index[run, own[opens[episode]]]
        cell = cells((last[run, at] - head) + 1, (head - start) / size[episode])
        key = counter_random.mix(head.astype(np.uint64))
        result[run, own] = permute(returns[run, at], cell, key)[segment]
    return result


def cells(length: np.ndarray, position: np.ndarray, smallest: int = SMALLEST_CELL) -> np.ndarray:
    """`[n]`: the cell of each segment.

    Thirds of length and tenths of position are gone through along a line on which neighbours lie
    side by side, there and back; a cell ends once it has `smallest` segments, and what remains at
    the end belongs to the last cell.

    Args:
      length: `[n]` transitions.
      position: `[n]`, of the first transition, as a share of the episode; in [0, 1).
      smallest: the fewest segments of a cell, if there are so many.
    """
    thirds = np.quantile(length, [1 / 3, 2 / 3])
    third = np.searchsorted(thirds, length)  # the number of thirds that end below the length
    tenth = (position * _TENTHS).astype(np.int64)
    place = third * _TENTHS + np.where(third == 1, _TENTHS - 1 - tenth, tenth)
    cell_of_place, cell, held = np.zeros(_THIRDS * _TENTHS, np.int64), 0, 0
    for at, count in enumerate(np.bincount(place, minlength=_THIRDS * _TENTHS)):
        if held >= smallest:
            cell, held = cell + 1, 0
        cell_of_place[at] = cell
        held += count
    if held < smallest and cell:  # the last one is too small
        cell_of_place[cell_of_place == cell] = cell - 1
    return cell_of_place[place]


def permute(returns: np.ndarray, cell: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Within each cell, the sorted returns in the order of the keys: `[n], [n], [n] -> [n]`."""
    result = np.empty_like(returns)
    result[np.lexsort((key, cell))] = returns[np.lexsort((returns, cell))]
    return result
