"""The head that CURL puts on the state embedding."""

import flax.linen as nn
import jax

_UNIFORM = nn.initializers.uniform(1.0)  # U[0, 1), all positive


class Projection(nn.Module):
    """Two linear layers, each followed by a normalisation without trainable scale and shift.

    Both are github.com/aravindsrinivas/curl_rainbow `model.py`: weights start in U[0, 1), biases
    at 0, and its normalisations are built anew in every forward pass, so nothing of them is ever
    trained.
    """

    hidden: int
    size: int

    @nn.compact
    def __call__(self, psi: jax.Array) -> jax.Array:
        """`[N, d] -> [N, size]`."""
        hidden = nn.relu(_normalise(nn.Dense(self.hidden, kernel_init=_UNIFORM)(psi)))
        return _normalise(nn.Dense(self.size, kernel_init=_UNIFORM)(hidden))


def _normalise(x: jax.Array) -> jax.Array:
    # The fast variance, E[x^2] - E[x]^2, cancels: all inputs and weights are positive at the start.
    norm = nn.LayerNorm(epsilon=1e-5, use_bias=False, use_scale=False, use_fast_variance=False)
    return norm(x)
