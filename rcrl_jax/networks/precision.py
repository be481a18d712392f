"""The arithmetic of matrix products."""

import functools
from collections.abc import Callable

import jax

# What each choice is to the compiler. Sums are float32 in all of them.
_MATMUL_PRECISION = {
    "float32": "highest",
    "tf32": "tensorfloat32",
    "bfloat16": "BF16_BF16_F32",
}


def at_precision(function: Callable, precision: str) -> Callable:
    """`function`, with the matrix products of everything it traces at the given precision.

    Args:
      function: takes and returns pytrees.
      precision: 'float32', 'tf32' or 'bfloat16'.
    """

    @functools.wraps(function)
    def at_its_precision(*arguments):
        with jax.default_matmul_precision(_MATMUL_PRECISION[precision]):
            return function(*arguments)

    return at_its_precision
