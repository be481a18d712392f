"""Calls the kernels of `convolution.cc`, a convolution for the CPU."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from rcrl_jax.networks import precision

try:
    from rcrl_jax.networks import _convolution

    for _name in ("convolve", "image_gradient", "kernel_gradient"):
        jax.ffi.register_ffi_target(f"rcrl_{_name}", getattr(_convolution, _name), platform="cpu")
except (ImportError, RuntimeError):  # not compiled, or for another version of JAX
    _convolution = None


def is_compiled() -> bool:
    """Whether `convolution.cc` was compiled when the package was installed."""
    return _convolution is not None


def instructions() -> str:
    """What convolves on this CPU: the kernels' instructions, such as 'Avx512', or 'XLA'.

    'Amx' is for TF32; in float32 such a processor uses its vectors.
    """
    return _convolution.instructions()[-1] if is_compiled() else "XLA"


def convolve(
    x: jax.Array, kernel: jax.Array, bias: jax.Array, *, stride: int, relu: bool
) -> jax.Array:
    """See `convolution.convolve`; the CPU alone has it, and it has no gradient of its own."""
    side, _, _, filters = kernel.shape
    height, width = ((size - side) // stride + 1 for size in x.shape[1:3])
    outputs = jax.ShapeDtypeStruct((len(x), height, width, filters), jnp.float32)
    return _call("convolve", outputs)(x, kernel, bias, stride=np.int64(stride), relu=relu)


def image_gradient(
    kernel: jax.Array, y: jax.Array, gradient: jax.Array, *, relu: bool
) -> jax.Array:
    """Gradient by the images of a convolution of stride 1.

    Args:
      kernel: `[K, K, I, O]`.
      y: `[N, H', W', O]`, what the convolution returned.
      gradient: of `y`.
      relu: as in the convolution.

    Returns:
      `[N, H' + K - 1, W' + K - 1, I]`.
    """
    n, height, width, _ = y.shape
    side, _, channels, _ = kernel.shape
    images = jax.ShapeDtypeStruct((n, height + side - 1, width + side - 1, channels), jnp.float32)
    return _call("image_gradient", images)(gradient, y, kernel, relu=relu)


def kernel_gradient(
    x: jax.Array, y: jax.Array, gradient: jax.Array, *, side: int, stride: int, relu: bool
) -> tuple[jax.Array, jax.Array]:
    """Gradients by kernel `[K, K, I, O]` and bias `[O]`.

    Args:
      x: `[N, H, W, I]`, what was convolved.
      y: `[N, H', W', O]`, what the convolution returned.
      gradient: of `y`.
      side: K.
      stride: in pixels.
      relu: as in the convolution.
    """
    filters = y.shape[-1]
    kernel = jax.ShapeDtypeStruct((side, side, x.shape[-1], filters), jnp.float32)
    bias = jax.ShapeDtypeStruct((filters,), jnp.float32)
    call = _call("kernel_gradient", (kernel, bias))
    return call(x, gradient, y, stride=np.int64(stride), relu=relu)


def _call(name: str, results):
    call = jax.ffi.ffi_call(f"rcrl_{name}", results, vmap_method="sequential")
    # A matrix unit computes in TF32 alone.
    return functools.partial(call, tf32=precision.is_tf32())
