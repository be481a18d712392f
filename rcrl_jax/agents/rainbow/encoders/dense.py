"""The encoder of vectors for C51 Rainbow."""

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from rcrl_jax.agents.rainbow.encoders import Encoder
from rcrl_jax.networks import initializers
from rcrl_jax.ops import products

_UNITS = (256, 256)


class DenseEncoder(Encoder):
    """Two dense layers of 256 units, each with ReLU; initial values as in the other encoders."""

    @nn.compact
    def __call__(self, observation: jax.Array) -> jax.Array:
        """Maps stacks of vectors `[N, C, D] float32` to psi(s) `[N, 256] float32`."""
        chex.assert_rank(observation, 3)
        chex.assert_type(observation, jnp.float32)
        x = observation.reshape(len(observation), -1)
        for number, units in enumerate(_UNITS, start=1):
            init = initializers.uniform_fan_in(x.shape[-1])
            kernel = self.param(f"dense{number}_kernel", init, (x.shape[-1], units))
            bias = self.param(f"dense{number}_bias", init, (units,))
            x = nn.relu(products.multiply(x, kernel) + bias[None])
        return x
