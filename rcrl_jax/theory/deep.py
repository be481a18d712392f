"""Z-learning with a small network: the same loss on the same pairs.

The embedding has the Atari form phi(s, a) = psi(s) * e_a (RCRL, section 4.4). The discriminator and
the loss are those of the RCRL agents.
"""

import functools
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from rcrl_jax.losses import contrastive
from rcrl_jax.networks import discriminator

_HIDDEN, _EMBEDDING, _DISCRIMINATOR = 64, 16, 64
_BATCH, _LEARNING_RATE = 256, 2e-3


class DeepFit(NamedTuple):
    """The predictions and embeddings of the networks trained on D datasets."""

    predictor: np.ndarray  # [D, X, X], w(phi(x1), phi(x2))
    embedding: np.ndarray  # [D, X, E]


class PairNetwork(nn.Module):
    """The embedding phi and the discriminator w; a pair is given as (state features, action)."""

    actions: int

    def setup(self):
        """Creates the submodules."""
        self.state_embedding = nn.Sequential([nn.Dense(_HIDDEN), nn.relu, nn.Dense(_EMBEDDING)])
        self.action_embedding = self.param(
            "action_embedding", nn.initializers.normal(1.0), (self.actions, _EMBEDDING)
        )
        self.discriminator = discriminator.Discriminator(_DISCRIMINATOR)

    def embed(self, features: jax.Array, action: jax.Array) -> jax.Array:
        """phi: `[..., F], [...] -> [..., E]`."""
        return self.state_embedding(features) * self.action_embedding[action]

    def __call__(self, first: tuple, second: tuple) -> jax.Array:
        """w(phi(x1), phi(x2)) `[...]` of two pairs (features `[..., F]`, action `[...]`)."""
        return self.discriminator(self.embed(*first), self.embed(*second))


def factored_features(states: int, bits: int) -> np.ndarray:
    """Features of states that consist of a base state and distractor bits.

    State `base * 2^bits + pattern` gets the one-hot vector of `base`, then each bit of `pattern` as
    -1 or +1.

    Returns:
      `[S, F]` with F = S / 2^bits + bits.
    """
    base, pattern = np.divmod(np.arange(states), 2**bits)
    bit = (pattern[:, None] >> np.arange(bits)) & 1
    return np.concatenate([np.eye(states // 2**bits)[base], 2.0 * bit - 1.0], axis=1)


def fit(
    key: jax.Array,
    x1: jax.Array,
    x2: jax.Array,
    y: jax.Array,
    features: np.ndarray,
    actions: int,
    steps: int,
) -> DeepFit:
    """Minimises equation 1 with Adam, by one network for each dataset.

    Args:
      key: PRNG key.
      x1: indices of the first pairs, `[D, n] int32`.
      x2: indices of the second pairs, `[D, n] int32`.
      y: labels 0 or 1, `[D, n] float32`.
      features: state features, `[S, F]`.
      actions: A.
      steps: updates, each on a minibatch of 256 samples.
    """
    keys = jax.random.split(key, x1.shape[0])
    features = jnp.asarray(features, jnp.float32)
    return DeepFit(*map(np.asarray, _fit_all(keys, x1, x2, y, features, actions, steps)))


@functools.partial(jax.jit, static_argnames=("actions", "steps"))
def _fit_all(keys, x1, x2, y, features, actions, steps):
    network = PairNetwork(actions)
    optimiser = optax.adam(_LEARNING_RATE)

    def describe(x):
        return features[x // actions], x % actions

    def one_dataset(key, x1, x2, y):
        init_key, key = jax.random.split(key)
        params = network.init(init_key, describe(x1[:1]), describe(x2[:1]))

        def loss(params, rows):
            prediction = network.apply(params, describe(x1[rows]), describe(x2[rows]))
            return jnp.mean(contrastive.squared_error(prediction, y[rows]))

        def update(state, key):
            params, opt_state = state
            rows = jax.random.randint(key, (_BATCH,), 0, y.size)
            changes, opt_state = optimiser.update(jax.grad(loss)(params, rows), opt_state)
            return (optax.apply_updates(params, changes), opt_state), None

        start = (params, optimiser.init(params))
        (params, _), _ = jax.lax.scan(update, start, jax.random.split(key, steps))
        everything = jnp.arange(features.shape[0] * actions)
        table = jnp.meshgrid(everything, everything, indexing="ij")
        prediction = network.apply(params, *map(describe, table))
        embedding = network.apply(params, *describe(everything), method=PairNetwork.embed)
        return prediction, embedding

    # A loop instead of vmap: on a CPU, batched matrix products are slower than a loop over them.
    return jax.lax.map(lambda dataset: one_dataset(*dataset), (keys, x1, x2, y))


def class_similarity(embedding: np.ndarray, classes: np.ndarray) -> tuple[float, float]:
    """Mean cosine similarity between embeddings of the same class and of different classes.

    Args:
      embedding: of each pair, `[X, E]`.
      classes: class of each pair, `[X]`.

    Returns:
      The mean over two different pairs of the same class, and over two pairs of different classes.

    Raises:
      ValueError: if no two pairs share a class, or all do.
    """
    same = classes[:, None] == classes[None]
    other = ~same
    np.fill_diagonal(same, False)
    if not same.any() or not other.any():
        raise ValueError("needs pairs of one class and of different classes")
    shape = (*same.shape, embedding.shape[-1])
    cosine = np.asarray(
        contrastive.cosine_similarity(
            jnp.broadcast_to(embedding[:, None], shape), jnp.broadcast_to(embedding[None], shape)
        )
    )
    return float(cosine[same].mean()), float(cosine[other].mean())
