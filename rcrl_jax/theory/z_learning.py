"""Z-learning (RCRL, Algorithm 1): the encoder that minimises the contrastive loss.

For an encoder phi: X -> [N] the best tabular regressor w is the mean label of each block, so the
loss is a function of phi alone:

    L(phi) = 1/4 - (1/n) sum_ij S_ij^2 / C_ij,    C, S = block sums of 1 and of y - 1/2.

The second term, the *gain*, is what this module maximises. Centring labels at 1/2 keeps it accurate
when n is so large that the losses of two encoders agree in every digit of float64.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rcrl_jax.theory import pairs

_CHUNK = 4096  # encoders evaluated at once by the oracle
_MAX_SWEEPS = 100  # coordinate descent settles in about ten


class Encoders(NamedTuple):
    """One fitted encoder for each dataset."""

    labels: np.ndarray  # [D, X] in [0, N)
    loss: np.ndarray  # [D], equation 2 with the best w


def coordinate_descent(
    key: jax.Array, counts: pairs.PairCounts, blocks: int, restarts: int
) -> Encoders:
    """Minimises the loss one pair's label at a time, from random encoders; the best restart wins.

    Args:
      key: PRNG key of the restarts.
      counts: `[D, X, X]`.
      blocks: N.
      restarts: random starts for each dataset.
    """
    with jax.enable_x64(True):
        total, signed = jnp.asarray(counts.total), jnp.asarray(counts.signed)
        keys = jax.random.split(key, total.shape[0])
        labels, gain = _descend_all(keys, total, signed, blocks, _capacity(blocks), restarts)
        return Encoders(np.asarray(labels), _loss(np.asarray(gain), counts))


def enumerate_encoders(counts: pairs.PairCounts, blocks: int) -> Encoders:
    """The global minimum by trying every partition of X into at most N blocks: the oracle.

    Args:
      counts: `[D, X, X]`, X at most about 10 (21,147 partitions of 9 things).
      blocks: N.
    """
    encoders = partitions(counts.total.shape[-1], blocks)
    with jax.enable_x64(True):
        total, signed = jnp.asarray(counts.total), jnp.asarray(counts.signed)
        gains = [
            np.asarray(_gain_table(total, signed, jnp.asarray(chunk), _capacity(blocks)))
            for chunk in np.split(encoders, range(_CHUNK, len(encoders), _CHUNK))
        ]
    gains = np.concatenate(gains, axis=1)  # [D, P]
    best = np.argmax(gains, axis=1)
    return Encoders(encoders[best], _loss(gains[np.arange(len(best)), best], counts))


def encoder_loss(counts: pairs.PairCounts, labels: np.ndarray) -> float:
    """Equation 2 of one encoder `[X]` on one dataset `[X, X]`, with the best w."""
    with jax.enable_x64(True):
        gain = _gain(
            jnp.asarray(counts.total),
            jnp.asarray(counts.signed),
            jnp.asarray(labels),
            int(labels.max()) + 1,
        )
    return float(_loss(np.asarray(gain), counts))


def predictor(counts: pairs.PairCounts, labels: np.ndarray) -> np.ndarray:
    """f-hat(x1, x2) = w(phi(x1), phi(x2)) for the best w, `[..., X, X]`.

    A block without samples leaves w free; it gets 1/2.

    Args:
      counts: `[..., X, X]`.
      labels: `[..., X]`.
    """
    one_hot = np.eye(int(labels.max()) + 1)[labels]
    block_total, block_signed = (
        np.swapaxes(one_hot, -1, -2) @ array @ one_hot for array in (counts.total, counts.signed)
    )
    filled = block_total > 0
    weights = 0.5 + np.divide(
        block_signed, block_total, out=np.zeros_like(block_signed), where=filled
    )
    return one_hot @ weights @ np.swapaxes(one_hot, -1, -2)


def partitions(things: int, blocks: int) -> np.ndarray:
    """Every partition of `things` into at most `blocks` blocks, `[P, things]`, each once.

    Rows are restricted growth strings: a label exceeds the largest before it by at most 1.
    """
    rows = np.zeros((1, 1), np.int64)
    for _ in range(things - 1):
        choices = np.minimum(rows.max(1) + 2, blocks)
        parent = np.repeat(np.arange(len(rows)), choices)
        offset = np.arange(len(parent)) - np.repeat(np.cumsum(choices) - choices, choices)
        rows = np.concatenate([rows[parent], offset[:, None]], axis=1)
    return rows


def _capacity(blocks: int) -> int:
    """The static number of blocks: rounded up, so that close N share one compiled function."""
    return 1 << (blocks - 1).bit_length()


def _loss(gain: np.ndarray, counts: pairs.PairCounts) -> np.ndarray:
    return 0.25 - gain / np.sum(counts.total, axis=(-1, -2))


def _share(signed, total, weight):
    """S^2 / C of each block; one that is empty, up to rounding of the whole weight, has none."""
    filled = total > 1e-14 * weight
    return jnp.where(filled, signed**2 / jnp.where(filled, total, 1), 0)


def _gain(total, signed, labels, blocks):
    one_hot = jax.nn.one_hot(labels, blocks, dtype=total.dtype)
    block_signed, block_total = (one_hot.T @ array @ one_hot for array in (signed, total))
    return jnp.sum(_share(block_signed, block_total, jnp.sum(total)))


@functools.partial(jax.jit, static_argnames="capacity")
def _gain_table(total, signed, encoders, capacity):
    """Gains `[D, P]` of encoders `[P, X]` on datasets `[D, X, X]`."""
    one_dataset = jax.vmap(lambda t, s, e: _gain(t, s, e, capacity), (None, None, 0))
    return jax.lax.map(lambda dataset: one_dataset(*dataset, encoders), (total, signed))


@functools.partial(jax.jit, static_argnames=("capacity", "restarts"))
def _descend_all(keys, total, signed, blocks, capacity, restarts):
    def one_dataset(key, total, signed):
        labels, gains = jax.vmap(lambda k: _descend(k, total, signed, blocks, capacity))(
            jax.random.split(key, restarts)
        )
        best = jnp.argmax(gains)
        return labels[best], gains[best]

    return jax.vmap(one_dataset)(keys, total, signed)


class _Sums(NamedTuple):
    """Block sums of one array `[X, X]` under the current encoder, kept up to date move by move."""

    to_block: jax.Array  # [X, N], sum over x2 of the block
    from_block: jax.Array  # [N, X], sum over x1 of the block
    block: jax.Array  # [N, N]


def _descend(key, total, signed, blocks, capacity):
    """One restart: sweeps over pairs in a random order until a sweep changes nothing."""
    start_key, order_key = jax.random.split(key)
    things = total.shape[0]
    start = jax.random.randint(start_key, (things,), 0, blocks)
    order = jax.random.permutation(order_key, things)
    arrays = (total, signed)
    unit, weight = jnp.eye(capacity, dtype=total.dtype), jnp.sum(total)
    off_diagonal = 1 - unit

    def block_sums(array, one_hot):
        return _Sums(array @ one_hot, one_hot.T @ array, one_hot.T @ array @ one_hot)

    def without(array, sums, x, label):
        """Block sums without x; x's sums to and from each block, without itself; its own."""
        own = array[x, x]
        row = sums.to_block[x] - own * unit[label]
        column = sums.from_block[:, x] - own * unit[label]
        mine = unit[label]
        rest = sums.block - mine[:, None] * row - column[:, None] * mine
        return rest - own * mine[:, None] * mine, row, column, own

    def moved(array, sums, x, old, new, parts):
        rest, row, column, own = parts
        step, mine = unit[new] - unit[old], unit[new]
        return _Sums(
            sums.to_block + array[:, x, None] * step,
            sums.from_block + step[:, None] * array[x],
            rest + mine[:, None] * row + column[:, None] * mine + own * mine[:, None] * mine,
        )

    def move(state, x):
        labels, all_sums = state
        parts = [
            without(array, sums, x, labels[x]) for array, sums in zip(arrays, all_sums, strict=True)
        ]
        (c, c_row, c_column, c_own), (s, s_row, s_column, s_own) = parts
        # Placing x in block j changes only row j and column j of the block sums.
        before = _share(s, c, weight)
        in_row = _share(s + s_row, c + c_row, weight) - before
        in_column = _share(s + s_column[:, None], c + c_column[:, None], weight) - before
        corner_signed = jnp.diag(s) + s_row + s_column + s_own
        corner_total = jnp.diag(c) + c_row + c_column + c_own
        corner = _share(corner_signed, corner_total, weight) - jnp.diag(before)
        change = jnp.sum(in_row * off_diagonal, 1) + jnp.sum(in_column * off_diagonal, 0) + corner
        change = jnp.where(jnp.arange(capacity) < blocks, change, -jnp.inf)
        best, old = jnp.argmax(change), labels[x]
        # Staying put on a tie, up to rounding, is what makes the sweeps end.
        better = change[best] > change[old] + 1e-13 * jnp.sum(before)
        new = jnp.where(better, best, old)
        all_sums = [
            moved(array, sums, x, old, new, part)
            for array, sums, part in zip(arrays, all_sums, parts, strict=True)
        ]
        return (labels.at[x].set(new), all_sums), better

    def sweep(state):
        inner, _, sweeps = state
        inner, changed = jax.lax.scan(move, inner, order)
        return inner, jnp.any(changed), sweeps + 1

    one_hot = unit[start]
    inner = (start, [block_sums(array, one_hot) for array in arrays])
    (labels, _), _, _ = jax.lax.while_loop(
        lambda state: state[1] & (state[2] < _MAX_SWEEPS), sweep, (inner, jnp.bool_(True), 0)
    )
    return labels, _gain(total, signed, labels, capacity)
