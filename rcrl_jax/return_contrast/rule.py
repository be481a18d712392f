"""Where the samples of the return-contrastive task come from."""

from typing import NamedTuple

from rcrl_jax.config.base import ReturnContrastConfig


class ContrastRule(NamedTuple):
    """How many contrastive samples an update has, and how they are drawn."""

    number: int = 0  # N, anchors of an update; each has one positive and one negative
    anchors: str = "as_transitions"  # or 'uniform', or 'rl_batch': the transitions themselves
    equal_return_positives: bool = False  # drawn from the whole replay, if 32 draws find one
    excludes_anchor: bool = False  # from its own positives, where another pair qualifies
    differs_in_return: bool = False  # negatives differ in return, if 16 draws find one
    # Returns that differ by at most this count as equal [reward]; segments end beyond it.
    tolerance: float = 0.0
    times: bool = False  # samples hold `Pairs.time`


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
