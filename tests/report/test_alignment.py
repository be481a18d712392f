"""Curves at their common steps, by hand."""

import numpy as np

from rcrl_jax.report.alignment import align


def test_only_common_steps_count_in_ascending_order():
    steps, values = align([{20: 2.0, 10: 1.0, 30: 3.0}, {10: 5.0, 20: 6.0}])
    assert steps == [10, 20]
    np.testing.assert_array_equal(values, [[1.0, 2.0], [5.0, 6.0]])


def test_without_a_curve_or_a_common_step_there_is_nothing():
    assert align([])[0] == []
    steps, values = align([{1: 1.0}, {2: 2.0}])
    assert steps == [] and values.shape == (2, 0)
