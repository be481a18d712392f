"""Noisy linear layers with factorised Gaussian noise."""

import math

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from rcrl_jax.networks import initializers


def scaled_noise(key: chex.PRNGKey, size: int) -> jax.Array:
    """`[size]` draws of sign(x) sqrt(|x|), x ~ N(0, 1) (Fortunato et al. 2018, section 3)."""
    x = jax.random.normal(key, (size,))
    return jnp.sign(x) * jnp.sqrt(jnp.abs(x))


class NoisyDense(nn.Module):
    """A linear layer whose weights are mu + sigma * noise.

    The noise of the weights is the outer product of one vector for the inputs and one for the
    outputs, and the outputs' vector is also the noise of the bias. Each layer draws from its own
    key (Flax folds the module's path into the `noise` stream). Without noise the layer is its
    mean. Initial values as in github.com/Kaixhin/Rainbow `model.py`: sigma of the bias starts at
    sigma/sqrt(out), not sigma/sqrt(in).

    Outputs come in `groups` of `features`, and everything random about a group depends on its
    number alone: a layer with more groups has the same first groups. So a run with few actions
    is the same run in a fleet whose actions are padded to the largest game's.
    """

    features: int
    sigma: float
    groups: int = 1

    @nn.compact
    def __call__(self, inputs: jax.Array, *, noisy: bool) -> jax.Array:
        """Maps `[..., in]` to `[..., groups * features]`; needs an rng `noise` when `noisy`."""
        fan_in = inputs.shape[-1]
        shape = (self.groups, fan_in, self.features)
        mu_init = initializers.by_row(initializers.uniform_fan_in(fan_in))
        kernel_sigma_init = nn.initializers.constant(self.sigma / math.sqrt(fan_in))
        bias_sigma_init = nn.initializers.constant(self.sigma / math.sqrt(self.features))
        kernel = self.param("kernel_mu", mu_init, shape)
        bias = self.param("bias_mu", mu_init, (self.groups, self.features))
        kernel_sigma = self.param("kernel_sigma", kernel_sigma_init, shape)
        bias_sigma = self.param("bias_sigma", bias_sigma_init, (self.groups, self.features))
        if noisy:
            key_in, key_out = jax.random.split(self.make_rng("noise"))
            noise_in = scaled_noise(key_in, fan_in)
            keys_out = jax.vmap(jax.random.fold_in, (None, 0))(key_out, jnp.arange(self.groups))
            noise_out = jax.vmap(scaled_noise, (0, None))(keys_out, self.features)
            kernel = kernel + kernel_sigma * noise_in[:, None] * noise_out[:, None]
            bias = bias + bias_sigma * noise_out
        kernel = kernel.transpose(1, 0, 2).reshape(fan_in, -1)
        return inputs @ kernel + bias.reshape(-1)
