"""What a replay keeps and how it draws."""

import dataclasses
from typing import NamedTuple

from rcrl_jax.config.base import ReturnContrastConfig


class ContrastRule(NamedTuple):
    """How many contrastive samples an update has, and how they are drawn."""

    number: int = 0  # N, anchors of an update; each has one positive and one negative
    anchors: str = "as_transitions"  # like an RL batch; 'uniform'; 'rl_batch', that batch itself
    equal_return_positives: bool = False  # drawn from the whole replay, if 32 draws find one
    excludes_anchor: bool = False  # an anchor is its own positive only if no other pair qualifies
    differs_in_return: bool = False  # negatives differ in return, if 16 draws find one
    # Returns that differ by at most this count as equal [reward]; segments end beyond it.
    tolerance: float = 0.0


def make_rule(config: ReturnContrastConfig, tolerance: float) -> ContrastRule:
    """The rule of a configuration.

    Args:
      config: where anchors, positives and negatives come from.
      tolerance: returns that differ by at most this count as equal [reward].
    """
    return ContrastRule(
        number=config.batch_size,
        anchors=config.anchors,
        equal_return_positives=config.positives == "equal_return",
        excludes_anchor=config.positive_excludes_anchor,
        differs_in_return=config.negative_differs_in_return,
        tolerance=tolerance,
    )


class SequenceRule(NamedTuple):
    """Which windows of consecutive frames are drawn; `sequences.py` shows the placements."""

    length: int  # L, frames of a window
    placement: str  # 'leads', 'follows', 'within', 'starts' or 'newest'
    number: int | None = None  # windows of a draw; None: `ReplaySettings.batch_size`


@dataclasses.dataclass(frozen=True)
class ReplaySettings:
    """Sizes and rules of a `SegmentReplay`.

    Attributes:
      capacity: slots of the ring of each run; a slot holds one frame.
      discount: gamma of one agent step.
      contrast_rule: how many contrastive samples are drawn for each run, and how; its tolerance
        says where segments end.
      batch_size: B, transitions drawn for each run.
      n_step: length of the multi-step window [agent steps].
      priority_exponent: priority = loss ** exponent; 0 samples uniformly.
      importance_exponent: beta of the importance weights at the first update; the training loop
        raises it to 1.
      sequences: the windows that each kind of update reads instead of transitions, by the number of
        the kind; empty for agents that learn from transitions.
      round_steps: agent steps of a round of data; 0 for agents without rounds.
      all_final_frames: whether every episode keeps the frame after its last action; if not, only
        truncated episodes do.
    """

    capacity: int
    discount: float
    contrast_rule: ContrastRule
    batch_size: int
    n_step: int = 1
    priority_exponent: float = 0.0
    importance_exponent: float = 1.0
    sequences: tuple[SequenceRule, ...] = ()
    round_steps: int = 0
    all_final_frames: bool = False

    @property
    def kinds(self) -> range:
        """The numbers of the kinds of updates."""
        return range(max(len(self.sequences), 1))

    def size(self, kind: int) -> int:
        """Transitions or windows that an update of a kind reads."""
        number = self.sequences[kind].number if self.sequences else None
        return self.batch_size if number is None else number
