"""Encoders of Rainbow, one for each kind of observation."""

import flax.linen as nn
import jax


class Encoder(nn.Module):
    """Maps observations `[N, ...]` to psi(s) `[N, d] float32`, as its `__call__` says."""

    def encode_each(self, observations: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        """Maps several batches of observations, one after the other."""
        return tuple(self(observation) for observation in observations)
