"""Calls the kernels of `convolution.cc`, a convolution for the CPU."""

import jax
import jax.numpy as jnp
import numpy as np

from rcrl_jax.ops.kernels import _convolution

for _name in ("convolve", "image_gradient", "kernel_gradient"):
    jax.ffi.register_ffi_target(f"rcrl_{_name}", getattr(_convolution, _name), platform="cpu")
INSTRUCTIONS = _convolution.INSTRUCTIONS


def convolve(
    x: jax.Array, kernel: jax.Array, bias: jax.Array, *, stride: int, relu: bool
) -> jax.Array:
    """See `ops.convolution.convolve`; for the CPU alone, without a gradient."""
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
    return jax.ffi.ffi_call(f"rcrl_{name}", results, vmap_method="sequential")
