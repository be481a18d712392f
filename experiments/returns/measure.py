"""The study's measure and rule; docs/preregistration.md states both.

A discriminator is judged on pairs of two episodes of one policy, both steps at the same step number
of their games: an anchor, a partner of the same return and one of another return. So whatever a
clock says of the one pair it says of the other, and its area under the ROC curve is 0.5.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from rcrl_jax.return_contrast import instruments
from rcrl_jax.return_contrast.instruments import Played

INCOMPUTABLE = 0.5
"""What a value counts that cannot be computed."""
MARGIN = 0.1
"""By how much an arm must exceed chance, today's reading and the control."""
_WANTED_TITLES = 3  # in which it must exceed all three
_ROUNDING = 1e-9


class Drawn(NamedTuple):
    """Numbers of steps: anchors, and one partner of each label."""

    anchor: np.ndarray  # [n] int64
    same: np.ndarray  # [n] int64
    different: np.ndarray  # [n] int64


def draw(played: Played, size: int, tolerance: float, rng: np.random.Generator) -> Drawn:
    """Draws `size` anchors that have partners of both labels, or none if no step is one.

    Anchors are uniform over such steps, partners over those of the label at the anchor's time.

    Args:
      played: the games of one policy.
      size: n.
      tolerance: returns that differ by at most this count as equal [reward].
      rng: chooses.
    """
    order = np.argsort(played.time, kind="stable")
    at_time = np.split(order, np.flatnonzero(np.diff(played.time[order])) + 1)
    candidates = []  # of each anchor: the steps of other games at its time, by label
    for steps in at_time:
        returns = played.returns[steps]
        equal = np.abs(returns[:, None] - returns) <= tolerance
        for anchor, own in zip(steps, equal, strict=True):
            same, different = steps[own & (steps != anchor)], steps[~own]
            if same.size and different.size:
                candidates.append((anchor, same, different))
    chosen = rng.integers(0, len(candidates), size) if candidates else []
    drawn = [
        (anchor, rng.choice(same), rng.choice(different))
        for anchor, same, different in (candidates[i] for i in chosen)
    ]
    return Drawn(*np.array(drawn, np.int64).reshape(-1, 3).T)


def auc(same: np.ndarray, different: np.ndarray) -> float:
    """Area under the ROC curve of two samples of logits; 0.5 if it cannot be computed."""
    if not (np.isfinite(same).all() and np.isfinite(different).all()):
        return INCOMPUTABLE
    area = instruments.area_under_roc(same, different)
    return INCOMPUTABLE if np.isnan(area) else area


def exceeded(arm: Mapping[str, float], *others: Mapping[str, float]) -> list[str]:
    """The titles in which an arm exceeds chance and all other arms by the margin.

    Args:
      arm: title -> mean over seeds.
      *others: likewise.
    """
    return [
        title
        for title, value in arm.items()
        if value - max(0.5, *(other[title] for other in others)) >= MARGIN - _ROUNDING
    ]


def decide(
    candidates: Mapping[str, Mapping[str, float]],
    today: Mapping[str, float],
    control: Mapping[str, float],
) -> str | None:
    """The candidate that becomes the preset `rcrl_returns`; None if none qualifies.

    A candidate qualifies by exceeding 0.5, today's reading and the control, each by 0.1, in the
    same three titles. Of those that qualify, the largest mean over all titles counts; of equal
    means the first.

    Args:
      candidates: arm -> title -> mean over seeds.
      today: title -> mean over seeds, of today's reading.
      control: likewise.
    """
    qualified = [
        arm
        for arm, own in candidates.items()
        if len(exceeded(own, today, control)) >= _WANTED_TITLES
    ]
    return max(qualified, key=lambda arm: np.mean(list(candidates[arm].values())), default=None)
