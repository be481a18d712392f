"""The precision of matrix products."""

import functools
from collections.abc import Callable

import jax

# JAX's name for each setting. All of them accumulate in float32.
_MATMUL_PRECISION = {
    "float32": "highest",
    "tf32": "tensorfloat32",
    "bfloat16": "BF16_BF16_F32",
}


def at_precision(function: Callable, precision: str) -> Callable:
    """Wraps `function` so that all matrix products traced in it have the given precision.

    Args:
      function: takes and returns pytrees.
      precision: 'float32', 'tf32' or 'bfloat16'.
    """

    @functools.wraps(function)
    def at_its_precision(*arguments):
        with jax.default_matmul_precision(_MATMUL_PRECISION[precision]):
            return function(*arguments)

    return at_its_precision


def is_tf32() -> bool:
    """Whether matrix products that are traced now have the precision 'tf32'."""
    return jax.config.jax_default_matmul_precision == _MATMUL_PRECISION["tf32"]


def is_bfloat16() -> bool:
    """Whether matrix products that are traced now have the precision 'bfloat16'."""
    return jax.config.jax_default_matmul_precision == _MATMUL_PRECISION["bfloat16"]
