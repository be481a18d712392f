"""The precision of matrix products and convolutions."""

import functools
from collections.abc import Callable

import jax

# JAX's name for each setting. All accumulate in float32. On a TPU they take six, three and one
# passes of bfloat16; three passes keep more bits of the inputs than TF32.
_MATMUL_PRECISION = {
    "float32": "highest",
    "tf32": "tensorfloat32",
    "bfloat16": "BF16_BF16_F32",
}
# On an NVIDIA GPU, XLA's own kernels compute "tensorfloat32" in float32, without the matrix units.
# There, the name below selects TF32. Other devices lack it.
_TF32_ON_CUDA = "TF32_TF32_F32"


def at_precision(function: Callable, precision: str) -> Callable:
    """Wraps `function` so that all matrix products traced in it have the given precision.

    With 'tf32' the function is traced twice, because its products differ on NVIDIA's GPUs.

    Args:
      function: takes and returns pytrees.
      precision: 'float32', 'tf32' or 'bfloat16'.
    """

    @functools.wraps(function)
    def at_its_precision(*arguments, **settings):
        def call(name):
            with jax.default_matmul_precision(name):
                return function(*arguments, **settings)

        anywhere = functools.partial(call, _MATMUL_PRECISION[precision])
        if precision != "tf32":
            return anywhere()
        on_cuda = functools.partial(call, _TF32_ON_CUDA)
        return jax.lax.platform_dependent(cuda=on_cuda, default=anywhere)

    return at_its_precision


def is_tf32() -> bool:
    """Whether products traced now round their inputs to TF32, ten bits of mantissa (on CUDA)."""
    return jax.config.jax_default_matmul_precision == _TF32_ON_CUDA


def is_bfloat16() -> bool:
    """Whether matrix products that are traced now have the precision 'bfloat16'."""
    return jax.config.jax_default_matmul_precision == _MATMUL_PRECISION["bfloat16"]
