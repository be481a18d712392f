"""The discriminator w(phi(x1), phi(x2)) of the return-contrastive task."""

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp


class Discriminator(nn.Module):
    """An MLP on a pair of embeddings x, y; the sigmoid of its output is w.

    The paper gives only the type of w, R^d x R^d -> [0, 1] (section 4.3). Size, depth and
    input are our choices. Embeddings are not normalised.

    Attributes:
      hidden: units of each hidden layer.
      reads: input of the first layer.
        'concatenation': [x, y].
        'difference_product': [|x - y|, x * y], which is symmetric in x and y.
      layers: number of hidden layers.
      rounds_ties: whether the derivative of |x - y| takes x and y as equal up to rounding.
    """

    hidden: int
    reads: str
    layers: int
    rounds_ties: bool = False

    @nn.compact
    def __call__(self, first: jax.Array, second: jax.Array) -> jax.Array:
        """Logit of the probability that the two returns differ: `[..., d], [..., d] -> [...]`."""
        chex.assert_equal_shape([first, second])
        if self.reads == "concatenation":
            pair = jnp.concatenate([first, second], axis=-1)
        else:
            difference = jnp.abs(first - second)
            if self.rounds_ties:
                difference = distance(first, second)
            pair = jnp.concatenate([difference, first * second], axis=-1)
        for _ in range(self.layers):
            pair = nn.relu(nn.Dense(self.hidden)(pair))
        return nn.Dense(1)(pair)[..., 0]


@jax.custom_jvp
def distance(first: jax.Array, second: jax.Array) -> jax.Array:
    """|x - y|, `[...], [...] -> [...]`; where x and y tie, its derivative is 1 by x and -1 by y.

    This is JAX's derivative of |x - y| where the difference is exactly 0. But XLA may compute x and
    y again in the backward pass, and fuse their last product with the subtraction. The difference
    is then a rounding error instead of 0, and the two derivatives do not cancel in the image that x
    and y share. So x and y tie if they differ by at most `_TIE` of the larger one.
    """
    return jnp.abs(first - second)


@distance.defjvp
def _derivative_of_distance(points, tangents):
    first, second = points
    difference = first - second
    size = jnp.maximum(jnp.abs(first), jnp.abs(second))
    least = -_TIE * jnp.finfo(size.dtype).eps * size
    tangent = jnp.subtract(*tangents)
    return jnp.abs(difference), jnp.where(difference >= least, tangent, -tangent)


_TIE = 4  # units in the last place
