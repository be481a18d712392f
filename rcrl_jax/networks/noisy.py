"""Noisy linear layers with factorised Gaussian noise."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from rcrl_jax.networks import initializers


class LayerNoise(NamedTuple):
    """One sample of a layer's noise."""

    inputs: jax.Array  # [in]
    outputs: jax.Array  # [groups * features]


def scaled_noise(key: chex.PRNGKey, size: int) -> jax.Array:
    """`[size]` draws of sign(x) sqrt(|x|), x ~ N(0, 1) (Fortunato et al. 2018, section 3).

    Fewer draws are the first of more.
    """
    x = jax.random.normal(key, (size,))
    return jnp.sign(x) * jnp.sqrt(jnp.abs(x))


def draw_noise(key: chex.PRNGKey, layers: dict[str, tuple[int, int]]) -> dict[str, LayerNoise]:
    """Noise of several layers, with as few calls of the generator as possible.

    On the CPU a call is a loop of many tiny kernels. All inputs come out of one call and all
    outputs out of another; the last layer may have more outputs without changing anything else.

    Args:
      key: what the noise depends on.
      layers: of each layer its numbers of inputs and outputs.
    """
    fan_in, fan_out = zip(*layers.values(), strict=True)
    longest = max(sum(fan_in), sum(fan_out))
    # A loop, because the CPU compiler would otherwise compute a vector's elements anew for every
    # weight that they belong to.
    inputs, outputs = jax.lax.map(lambda k: scaled_noise(k, longest), jax.random.split(key))
    return {
        name: LayerNoise(*vectors)
        for name, *vectors in zip(layers, _cut(inputs, fan_in), _cut(outputs, fan_out), strict=True)
    }


def _cut(vector: jax.Array, sizes: Sequence[int]) -> list[jax.Array]:
    """The first pieces of a vector, of these sizes."""
    return jnp.split(vector[: sum(sizes)], np.cumsum(sizes)[:-1])


class NoisyDense(nn.Module):
    """A linear layer whose weights are mu + sigma * noise.

    The noise of the weights is the outer product of one vector for the inputs and one for the
    outputs, and the outputs' vector is also the noise of the bias. Without noise the layer is its
    mean. Initial values as in github.com/Kaixhin/Rainbow `model.py`: sigma of the bias starts at
    sigma/sqrt(out), not sigma/sqrt(in).

    Outputs come in `groups` of `features`, and everything random about a group depends on its
    number alone: a layer with more groups begins with the same ones. So a run with few actions
    is the same run in a fleet whose actions are padded to the largest game's. `own_groups` is the
    number of groups that are not padding; the initial sigma of the bias counts their outputs.
    """

    features: int
    sigma: float
    groups: int = 1

    @nn.compact
    def __call__(
        self,
        inputs: jax.Array,
        noise: LayerNoise | None = None,
        own_groups: jax.Array | int | None = None,
    ) -> jax.Array:
        """Maps `[..., in]` to `[..., groups * features]`."""
        fan_in = inputs.shape[-1]
        shape = (self.groups, fan_in, self.features)
        mu_init = initializers.by_row(initializers.uniform_fan_in(fan_in))
        kernel_sigma_init = nn.initializers.constant(self.sigma / math.sqrt(fan_in))
        fan_out = self.features * jnp.float32(self.groups if own_groups is None else own_groups)
        bias_sigma_init = nn.initializers.constant(self.sigma / jnp.sqrt(fan_out))
        kernel = self.param("kernel_mu", mu_init, shape)
        bias = self.param("bias_mu", mu_init, (self.groups, self.features))
        kernel_sigma = self.param("kernel_sigma", kernel_sigma_init, shape)
        bias_sigma = self.param("bias_sigma", bias_sigma_init, (self.groups, self.features))
        if noise is not None:
            outputs = noise.outputs.reshape(self.groups, self.features)
            kernel = kernel + kernel_sigma * noise.inputs[:, None] * outputs[:, None]
            bias = bias + bias_sigma * outputs
        kernel = kernel.transpose(1, 0, 2).reshape(fan_in, -1)
        return inputs @ kernel + bias.reshape(-1)
