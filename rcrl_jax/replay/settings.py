"""What a replay keeps and how it draws."""

import dataclasses
from typing import NamedTuple

from rcrl_jax.replay.segment_table import SegmentRule


class ContrastRule(NamedTuple):
    """How contrastive samples are drawn, where the paper leaves it open."""

    anchors: str = "as_transitions"  # or 'uniform', or 'rl_batch': the transitions themselves
    equal_return_positives: bool = False  # drawn from the whole replay, if 32 draws find one
    excludes_anchor: bool = False  # from its own positives, where another pair qualifies
    differs_in_return: bool = False  # negatives differ from their anchor, if 16 draws find one
    tolerance: float = 0.0  # returns that differ by at most this count as equal [reward]


@dataclasses.dataclass(frozen=True)
class ReplaySettings:
    """Sizes and rules of a `SegmentReplay`.

    Attributes:
      capacity: slots of the ring of each run; a slot holds one frame.
      n_step: length of the multi-step window [agent steps].
      discount: gamma of one agent step.
      priority_exponent: priority = loss ** exponent; 0 samples uniformly.
      closes_segment: the rule that ends a segment.
      contrast: how contrastive samples are drawn.
      batch_size: B, transitions drawn for each run.
      num_anchors: N, anchors drawn for each run; 0 draws no contrastive samples.
      importance_exponent: beta of the importance weights at the first update; the training loop
        raises it to 1.

    Raises:
      ValueError: the anchors are the RL batch, and N is neither B nor 0.
    """

    capacity: int
    n_step: int
    discount: float
    priority_exponent: float
    closes_segment: SegmentRule
    contrast: ContrastRule
    batch_size: int
    num_anchors: int
    importance_exponent: float

    def __post_init__(self) -> None:
        """Checks that the sizes agree with the contrast rule."""
        if self.contrast.anchors == "rl_batch" and self.num_anchors not in (0, self.batch_size):
            raise ValueError(
                f"num_anchors: {self.num_anchors} anchors cannot be the {self.batch_size} "
                "transitions of the RL batch"
            )
