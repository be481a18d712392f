"""JAX's random numbers, drawn faster on the CPU.

On the CPU, JAX computes the 20 rounds of threefry in a loop of small kernels, and starting these
costs more than the arithmetic. Here the rounds are unrolled: a draw, or a split of a key, is one
kernel. The numbers equal those of `jax.random.key`. Source: Salmon et al. (2011), Threefry-2x32.
"""

import math

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)


def wrap(key_data: jax.Array) -> jax.Array:
    """A key for all functions of `jax.random`, from its data `[..., 2] uint32`; 32 bits a number.

    Raises:
      NotImplementedError: when numbers of another width are drawn.
    """
    return jax.random.wrap_key_data(key_data, impl=_UNROLLED)


def _encrypt(key, x1):
    """Encrypts the words 0 and `x1 [n] uint32`; returns two words, `[n] uint32` each."""
    keys = (key[0], key[1], key[0] ^ key[1] ^ _PARITY)
    x0, x1 = jnp.full_like(x1, keys[0]), x1 + keys[1]
    for group in range(5):
        for distance in _ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = (x1 << distance) | (x1 >> (32 - distance))
            x1 = x1 ^ x0
        x0 = x0 + keys[(group + 1) % 3]
        x1 = x1 + keys[(group + 2) % 3] + np.uint32(group + 1)
    return x0, x1


def _counters(shape):
    return jax.lax.iota(jnp.uint32, math.prod(shape))


def _split(key, shape):
    return jnp.stack(_encrypt(key, _counters(shape)), axis=-1).reshape(*shape, 2)


def _fold_in(key, data):
    return jnp.stack(_encrypt(key, data[None]), axis=-1)[0]


def _random_bits(key, width, shape):
    if width != 32:
        raise NotImplementedError(f"random numbers of {width} bits; only 32 are implemented")
    x0, x1 = _encrypt(key, _counters(shape))
    return (x0 ^ x1).reshape(shape)


def _seed(seed):
    return jax.random.key_data(jax.random.key(seed, impl="threefry2x32"))


_UNROLLED = jax.extend.random.define_prng_impl(
    key_shape=(2,),
    seed=_seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=_fold_in,
    name="unrolled_threefry2x32",
    tag="unrolled",
)
