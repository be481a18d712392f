"""The discriminator w(phi(x1), phi(x2)) of the return-contrastive task."""

import flax.linen as nn
import jax
import jax.numpy as jnp


class Discriminator(nn.Module):
    """An MLP on the pair; the sigmoid of its output is w.

    The paper gives only its type, R^d x R^d -> [0, 1] (section 4.3). Size and depth are ours, and
    so are the ways of reading the pair:

        concatenation        [x, y]
        difference_product   [|x - y|, x * y], which does not tell x from y
        bilinear             x W y + b, without a hidden layer

    and of normalising x and y before that:

        none
        layer_norm           mean 0 and variance 1 over the components
        unit                 length 1
    """

    hidden: int = 256
    reads: str = "concatenation"
    layers: int = 1
    norm: str = "none"

    @nn.compact
    def __call__(self, first: jax.Array, second: jax.Array) -> jax.Array:
        """Logit of the probability that the two returns differ: `[..., d], [..., d] -> [...]`."""
        first, second = _NORMS[self.norm](first), _NORMS[self.norm](second)
        if self.reads == "bilinear":
            projected = nn.Dense(second.shape[-1], use_bias=False)(first)
            bias = self.param("bias", nn.initializers.zeros, ())
            return jnp.sum(projected * second, axis=-1) + bias
        if self.reads == "concatenation":
            pair = jnp.concatenate([first, second], axis=-1)
        else:
            pair = jnp.concatenate([jnp.abs(first - second), first * second], axis=-1)
        for _ in range(self.layers):
            pair = nn.relu(nn.Dense(self.hidden)(pair))
        return nn.Dense(1)(pair)[..., 0]


_NORMS = {
    "none": lambda x: x,
    "layer_norm": lambda x: jax.nn.standardize(x, epsilon=1e-5),
    "unit": lambda x: x * jax.lax.rsqrt(jnp.sum(x * x, axis=-1, keepdims=True) + 1e-12),
}
