"""The discriminator w(phi(x1), phi(x2)) of the return-contrastive task."""

import flax.linen as nn
import jax
import jax.numpy as jnp


class Discriminator(nn.Module):
    """An MLP on the concatenated pair with a sigmoid output.

    The paper gives only its type, R^d x R^d -> [0, 1] (section 4.3); one hidden layer is ours.
    """

    hidden: int = 256

    @nn.compact
    def __call__(self, first: jax.Array, second: jax.Array) -> jax.Array:
        """Probability that the two returns differ: `[..., d], [..., d] -> [...]`."""
        pair = jnp.concatenate([first, second], axis=-1)
        hidden = nn.relu(nn.Dense(self.hidden)(pair))
        return nn.sigmoid(nn.Dense(1)(hidden)[..., 0])
