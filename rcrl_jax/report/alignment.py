"""Curves of several runs at the steps that all of them have."""

from collections.abc import Mapping, Sequence

import numpy as np


def align(curves: Sequence[Mapping[int, float]]) -> tuple[list[int], np.ndarray]:
    """The common steps of N curves, ascending, and the curves' values there.

    Args:
        curves: step -> value, one mapping a run.

    Returns:
        T steps, and `[N, T]` values; T is 0 if there is no curve or no common step.
    """
    steps = sorted(set.intersection(*map(set, curves))) if curves else []
    return steps, np.array([[curve[step] for step in steps] for curve in curves])
