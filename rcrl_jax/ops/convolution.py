"""A convolution with bias and ReLU for the CPU, fast inside loops, too.

The convolution and its gradients are C++ kernels (`ops/kernels/convolution.cc`). Where these cannot
run, matrix products replace them (`strided_convolution.py`). Inside a loop,
`jax.lax.conv_general_dilated` and its gradients take about thirty times as long. Accelerators use
`device_convolutions.py`.
"""

import functools

import chex
import jax
import jax.numpy as jnp

from rcrl_jax.ops import native, precision, strided_convolution


def convolve(
    x: jax.Array, kernel: jax.Array, bias: jax.Array, stride: int, relu: bool
) -> jax.Array:
    """Convolution without padding: `[N, H, W, I], [K, K, I, O], [O] -> [N, H', W', O]`.

    H' = (H - K) // stride + 1; W' follows from W in the same way.

    Args:
      x: images; all arrays are float32.
      kernel: axes row, column, channel in, channel out.
      bias: of each channel out.
      stride: in pixels.
      relu: whether negative outputs become 0.
    """
    chex.assert_rank([x, kernel], 4)
    chex.assert_type([x, kernel, bias], jnp.float32)
    chex.assert_shape(kernel, (len(kernel), len(kernel), x.shape[-1], None))
    chex.assert_shape(bias, kernel.shape[-1:])

    if native.get("convolution") and not precision.is_bfloat16():
        return _convolve_by_kernels(x, kernel, bias, stride, relu)
    y = strided_convolution.convolve_on_cpu(x, kernel, stride) + bias[None, None, None]
    return jax.nn.relu(y) if relu else y


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _convolve_by_kernels(x, kernel, bias, stride, relu):
    return native.get("convolution").convolve(x, kernel, bias, stride=stride, relu=relu)


def _forward(x, kernel, bias, stride, relu):
    y = _convolve_by_kernels(x, kernel, bias, stride, relu)
    return y, (x, kernel, y)


def _backward(stride, relu, saved, gradient):
    x, kernel, y = saved
    kernels = native.get("convolution")
    if stride == 1:
        by_images = kernels.image_gradient(kernel, y, gradient, relu=relu)
    else:  # the gradient with respect to the pixels is unused, so XLA drops it
        passed = jnp.where(y > 0, gradient, 0.0) if relu else gradient  # before the ReLU
        convolve_images = functools.partial(
            strided_convolution.convolve_on_cpu, kernel=kernel, stride=stride
        )
        (by_images,) = jax.vjp(convolve_images, x)[1](passed)
    by_parameters = kernels.kernel_gradient(
        x, y, gradient, side=len(kernel), stride=stride, relu=relu
    )
    return by_images, *by_parameters


_convolve_by_kernels.defvjp(_forward, _backward)
