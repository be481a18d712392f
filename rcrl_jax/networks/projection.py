"""The projection head of CURL."""

import chex
import flax.linen as nn
import jax

_UNIFORM = nn.initializers.uniform(1.0)  # U[0, 1), all positive


class Projection(nn.Module):
    """Two linear layers, each followed by a normalisation without trainable scale and shift.

    As in github.com/aravindsrinivas/curl_rainbow `model.py`: weights start in U[0, 1) and biases
    at 0. That code makes new normalisation layers in every forward pass, so it never trains their
    scale and shift.

    Attributes:
      hidden: units of the first layer.
      size: units of the second layer.
    """

    hidden: int
    size: int

    @nn.compact
    def __call__(self, psi: jax.Array) -> jax.Array:
        """Maps psi(s) `[N, d]` to `[N, size]`."""
        chex.assert_rank(psi, 2)
        hidden = nn.relu(_normalise(nn.Dense(self.hidden, kernel_init=_UNIFORM)(psi)))
        return _normalise(nn.Dense(self.size, kernel_init=_UNIFORM)(hidden))


def _normalise(x: jax.Array) -> jax.Array:
    # The fast variance, E[x^2] - E[x]^2, loses digits: all inputs and initial weights are positive.
    norm = nn.LayerNorm(epsilon=1e-5, use_bias=False, use_scale=False, use_fast_variance=False)
    return norm(x)
