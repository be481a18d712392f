"""A 3x3 convolution with bias and ReLU, fast on the CPU, inside loops as well.

On the CPU the convolution and its gradients are kernels of our own (`kernels/convolution.cc`), if
they were compiled. Otherwise XLA does the same more slowly. Other platforms use
`jax.lax.conv_general_dilated` and its gradients.
"""

import functools

import chex
import jax
import jax.numpy as jnp
from jax import lax

from rcrl_jax import native
from rcrl_jax.networks import xla_cpu_convolution


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def convolve(
    x: jax.Array, kernel: jax.Array, bias: jax.Array, stride: int, relu: bool
) -> jax.Array:
    """Convolution without padding: `[N, H, W, I], [3, 3, I, O], [O] -> [N, H', W', O]`.

    H' = (H - 3) // stride + 1; W' follows from W in the same way.

    Args:
      x: images, float32 like the others.
      kernel: axes row, column, channel in, channel out.
      bias: of each channel out.
      stride: in pixels.
      relu: whether negative outputs become 0.
    """
    chex.assert_rank([x, kernel], 4)
    chex.assert_type([x, kernel, bias], jnp.float32)
    chex.assert_shape(kernel, (3, 3, x.shape[-1], None))
    chex.assert_shape(bias, kernel.shape[-1:])

    def by(product):
        def outputs(x, kernel, bias):
            y = product(x, kernel, stride=stride) + bias[None, None, None]
            return jax.nn.relu(y) if relu else y

        return outputs

    on_cpu = by(xla_cpu_convolution.convolve)
    if compiled := native.get("convolution"):
        on_cpu = functools.partial(compiled.convolve, stride=stride, relu=relu)
    return lax.platform_dependent(x, kernel, bias, cpu=on_cpu, default=by(_convolve))


def _forward(x, kernel, bias, stride, relu):
    y = convolve(x, kernel, bias, stride, relu)
    return y, (x, kernel, y)


def _backward(stride, relu, saved, gradient):
    def by(image_gradient, kernel_gradient):
        def gradients(x, kernel, y, gradient):
            passed = _passed(y, gradient, relu)
            images = image_gradient(x, kernel, passed, stride=stride)
            return images, kernel_gradient(x, kernel, passed, stride=stride), passed.sum((0, 1, 2))

        return gradients

    compiled = native.get("convolution")

    def by_kernels(x, kernel, y, gradient):
        if stride == 1:
            images = compiled.image_gradient(kernel, y, gradient, relu=relu)
        else:  # of the first layer, which nobody reads
            passed = _passed(y, gradient, relu)
            images = xla_cpu_convolution.image_gradient(x, kernel, passed, stride=stride)
        parameters = compiled.kernel_gradient(
            x, y, gradient, side=len(kernel), stride=stride, relu=relu
        )
        return images, *parameters

    by_xla = by(xla_cpu_convolution.image_gradient, xla_cpu_convolution.kernel_gradient)
    on_cpu = by_kernels if compiled else by_xla
    return lax.platform_dependent(
        *saved, gradient, cpu=on_cpu, default=by(_image_gradient, _kernel_gradient)
    )


convolve.defvjp(_forward, _backward)


def _passed(y, gradient, relu):
    """The gradient before the ReLU."""
    return jnp.where(y > 0, gradient, 0.0) if relu else gradient


def _convolve(x, kernel, *, stride):
    order = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, kernel, (stride, stride), "VALID", dimension_numbers=order)


def _image_gradient(x, kernel, gradient, *, stride):
    return jax.vjp(lambda x: _convolve(x, kernel, stride=stride), x)[1](gradient)[0]


def _kernel_gradient(x, kernel, gradient, *, stride):
    return jax.vjp(lambda kernel: _convolve(x, kernel, stride=stride), kernel)[1](gradient)[0]
