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
    """

    hidden: int
    reads: str
    layers: int

    @nn.compact
    def __call__(self, first: jax.Array, second: jax.Array) -> jax.Array:
        """Logit of the probability that the two returns differ: `[..., d], [..., d] -> [...]`."""
        chex.assert_equal_shape([first, second])
        if self.reads == "concatenation":
            pair = jnp.concatenate([first, second], axis=-1)
        else:
            pair = jnp.concatenate([jnp.abs(first - second), first * second], axis=-1)
        for _ in range(self.layers):
            pair = nn.relu(nn.Dense(self.hidden)(pair))
        return nn.Dense(1)(pair)[..., 0]
