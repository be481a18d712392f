"""Noisy linear layers with factorised Gaussian noise."""

import functools
import math
from collections.abc import Callable, Sequence
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
    """`[size]` draws of sign(x) sqrt(|x|), x ~ N(0, 1) (Fortunato et al., 2018, section 3).

    The first draws do not depend on `size`.
    """
    x = jax.random.normal(key, (size,))
    return jnp.sign(x) * jnp.sqrt(jnp.abs(x))


def draw_noise(key: chex.PRNGKey, layers: dict[str, tuple[int, int]]) -> dict[str, LayerNoise]:
    """Draws the noise of several layers with two calls of the random number generator.

    Few calls are faster: one draws the noise of all layers' inputs, the other that of all outputs.
    More outputs in the last layer leave all other draws unchanged.

    Args:
      key: decides the noise.
      layers: name -> (number of inputs, number of outputs).

    Returns:
      name -> noise, in the order of `layers`.
    """
    fan_in, fan_out = zip(*layers.values(), strict=True)
    longest = max(sum(fan_in), sum(fan_out))
    draw = functools.partial(scaled_noise, size=longest)
    # Outside a loop, XLA on the CPU would fuse the draws into the weights and recompute each number
    # for every weight that reads it.
    inputs, outputs = jax.lax.platform_dependent(
        jax.random.split(key), cpu=functools.partial(jax.lax.map, draw), default=jax.vmap(draw)
    )
    return {
        name: LayerNoise(*vectors)
        for name, *vectors in zip(layers, _cut(inputs, fan_in), _cut(outputs, fan_out), strict=True)
    }


def _cut(vector: jax.Array, sizes: Sequence[int]) -> list[jax.Array]:
    """Cuts the start of a vector into consecutive pieces of the given sizes."""
    return jnp.split(vector[: sum(sizes)], np.cumsum(sizes)[:-1])


class NoisyDense(nn.Module):
    """A linear layer whose weights are mu + sigma * noise.

    The noise of the kernel is the outer product of one vector for the inputs and one for the
    outputs; the vector for the outputs is also the noise of the bias (Fortunato et al., 2018,
    section 3). Without noise the layer uses mu. Initial values as in github.com/Kaixhin/Rainbow
    `model.py`: sigma of the bias starts at sigma / sqrt(out), not sigma / sqrt(in).

    The outputs are `groups` groups of `features`. The parameters and the noise of a group depend on
    the group's index, not on the number of groups. So a run with few actions stays the same in a
    fleet that pads its actions to the largest action set.

    Attributes:
      features: outputs of one group.
      sigma: scale of the initial sigmas; None for a layer without noise.
      groups: number of groups, padding included.
      multiply: computes the product of inputs and kernel.
    """

    features: int
    sigma: float | None
    groups: int = 1
    multiply: Callable[[jax.Array, jax.Array], jax.Array] = jnp.matmul

    @nn.compact
    def __call__(
        self,
        inputs: jax.Array,
        noise: LayerNoise | None = None,
        num_valid_groups: jax.Array | int | None = None,
    ) -> jax.Array:
        """Maps `[N, in]` to `[N, groups * features]`.

        Args:
          inputs: `[N, in]`.
          noise: one sample for the whole batch; None for the mean weights.
          num_valid_groups: `[] int32`, the number of groups that are not padding; None for all.
            The initial sigma of the bias counts the outputs of these groups only.
        """
        chex.assert_rank(inputs, 2)
        fan_in = inputs.shape[-1]
        shape = (self.groups, fan_in, self.features)
        mu_init = initializers.by_row(initializers.uniform_fan_in(fan_in))
        kernel = self.param("kernel_mu", mu_init, shape)
        bias = self.param("bias_mu", mu_init, (self.groups, self.features))
        if self.sigma is not None:
            groups = self.groups if num_valid_groups is None else num_valid_groups
            chex.assert_rank(groups, 0)
            fan_out = self.features * jnp.float32(groups)
            kernel_init = nn.initializers.constant(self.sigma / math.sqrt(fan_in))
            bias_init = nn.initializers.constant(self.sigma / jnp.sqrt(fan_out))
            kernel_sigma = self.param("kernel_sigma", kernel_init, shape)
            bias_sigma = self.param("bias_sigma", bias_init, (self.groups, self.features))
        if noise is not None:
            chex.assert_shape(noise, [(fan_in,), (self.groups * self.features,)])
            outputs = noise.outputs.reshape(self.groups, self.features)
            kernel = kernel + kernel_sigma * noise.inputs[None, :, None] * outputs[:, None]
            bias = bias + bias_sigma * outputs
        kernel = kernel.transpose(1, 0, 2).reshape(fan_in, -1)
        return self.multiply(inputs, kernel) + bias.reshape(1, -1)
