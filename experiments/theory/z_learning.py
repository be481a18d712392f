"""Z-learning (RCRL, Algorithm 1): finds the encoder that minimises the contrastive loss.

An encoder phi: X -> [N] divides the samples (x1, x2, y) into N x N blocks. The best tabular
regressor w predicts the mean label of each block, so the loss (equation 1) depends only on phi:

    L(phi) = 1/4 - (1/n) sum_ij S_ij^2 / C_ij,

where C_ij is the number of samples in block (i, j) and S_ij the sum of y - 1/2 over them. This
module maximises the sum, called the gain. For large n the losses of two encoders can be equal in
all digits of float64; their gains still differ, because labels are centred at 1/2.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.theory import pairs

_CHUNK = 4096  # encoders that `enumerate_encoders` evaluates at once
_MAX_SWEEPS = 100  # coordinate descent converges in about ten


def coordinate_descent(
    key: jax.Array, counts: pairs.PairCounts, blocks: int, restarts: int
) -> np.ndarray:
    """Minimises the loss over the label of one pair at a time, starting from random encoders.

    Args:
      key: PRNG key.
      counts: datasets, `[D, X, X]`.
      blocks: N.
      restarts: number of random starts for each dataset; the one with the smallest loss is kept.

    Returns:
      The labels of each dataset's encoder, `[D, X]` in [0, N).
    """
    with jax.enable_x64(True):
        total, signed = jnp.asarray(counts.total), jnp.asarray(counts.signed)
        keys = jax.random.split(key, total.shape[0])
        return np.asarray(_descend_all(keys, total, signed, blocks, _capacity(blocks), restarts))


def enumerate_encoders(counts: pairs.PairCounts, blocks: int) -> np.ndarray:
    """Finds the global minimum by evaluating every partition of X into at most N blocks.

    The datasets are `[D, X, X]`, and X is at most about 10 (9 elements have 21,147 partitions).
    Returns the labels of each dataset's encoder, `[D, X]`.
    """
    encoders = partitions(counts.total.shape[-1], blocks)
    with jax.enable_x64(True):
        total, signed = jnp.asarray(counts.total), jnp.asarray(counts.signed)
        gains = [
            np.asarray(_gain_table(total, signed, jnp.asarray(chunk), _capacity(blocks)))
            for chunk in np.split(encoders, range(_CHUNK, len(encoders), _CHUNK))
        ]
    return encoders[np.argmax(np.concatenate(gains, axis=1), axis=1)]


def predictor(counts: pairs.PairCounts, labels: np.ndarray) -> np.ndarray:
    """The predictor f-hat(x1, x2) = w(phi(x1), phi(x2)) of an encoder with the best w.

    Encoders `[..., X]` and datasets `[..., X, X]` give predictions `[..., X, X]`: 1/2 for a block
    without samples.
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


def partitions(elements: int, blocks: int) -> np.ndarray:
    """Every partition of the elements into at most N blocks, each once, as labels `[P, elements]`.

    Rows are restricted growth strings: a label exceeds the largest before it by at most 1.
    """
    rows = np.zeros((1, 1), np.int64)
    for _ in range(elements - 1):
        choices = np.minimum(rows.max(1) + 2, blocks)
        parent = np.repeat(np.arange(len(rows)), choices)
        offset = np.arange(len(parent)) - np.repeat(np.cumsum(choices) - choices, choices)
        rows = np.concatenate([rows[parent], offset[:, None]], axis=1)
    return rows


def _capacity(blocks: int) -> int:
    """N rounded up to a power of two: the static number of blocks, to compile for fewer sizes."""
    return 1 << (blocks - 1).bit_length()


def _share(signed, total, weight):
    """S^2 / C of each block, 0 for a block that is empty up to rounding of the total `weight`."""
    filled = total > 1e-14 * weight
    return jnp.where(filled, signed**2 / jnp.where(filled, total, 1), 0)


def _gain(total, signed, labels, blocks):
    one_hot = jax.nn.one_hot(labels, blocks, dtype=total.dtype)
    block_signed, block_total = (one_hot.T @ array @ one_hot for array in (signed, total))
    return jnp.sum(_share(block_signed, block_total, jnp.sum(total)))


@functools.partial(jax.jit, static_argnames="capacity")
def _gain_table(total, signed, encoders, capacity):
    """The gains `[D, P]` of encoders `[P, X]` on datasets `[D, X, X]`."""
    one_dataset = jax.vmap(lambda t, s, e: _gain(t, s, e, capacity), (None, None, 0))
    return jax.lax.map(lambda dataset: one_dataset(*dataset, encoders), (total, signed))


@functools.partial(jax.jit, static_argnames=("capacity", "restarts"))
def _descend_all(keys, total, signed, blocks, capacity, restarts):
    def one_dataset(key, total, signed):
        labels, gains = jax.vmap(lambda k: _descend(k, total, signed, blocks, capacity))(
            jax.random.split(key, restarts)
        )
        return labels[jnp.argmax(gains)]

    return jax.vmap(one_dataset)(keys, total, signed)


class _Sums(NamedTuple):
    """Block sums of one array `[X, X]` under the current encoder, updated after each move."""

    to_block: jax.Array  # [X, N], sums over the x2 of a block
    from_block: jax.Array  # [N, X], sums over the x1 of a block
    block: jax.Array  # [N, N]


def _descend(key, total, signed, blocks, capacity):
    """One restart: sweeps over the pairs in a random order until a sweep changes no label."""
    start_key, order_key = jax.random.split(key)
    num_pairs = total.shape[0]
    start = jax.random.randint(start_key, (num_pairs,), 0, blocks)
    order = jax.random.permutation(order_key, num_pairs)
    arrays = (total, signed)
    unit, weight = jnp.eye(capacity, dtype=total.dtype), jnp.sum(total)
    off_diagonal = 1 - unit

    def block_sums(array, one_hot):
        return _Sums(array @ one_hot, one_hot.T @ array, one_hot.T @ array @ one_hot)

    def without(array, sums, x, label):
        """Splits sums into those without x, x's row and column without itself, and entry (x, x)."""
        diagonal = array[x, x]
        row = sums.to_block[x] - diagonal * unit[label]
        column = sums.from_block[:, x] - diagonal * unit[label]
        block = unit[label]
        rest = sums.block - block[:, None] * row[None] - column[:, None] * block[None]
        return rest - diagonal * block[:, None] * block[None], row, column, diagonal

    def moved(array, sums, x, old, new, parts):
        """The sums after x has moved from block `old` to block `new`."""
        rest, row, column, diagonal = parts
        step, block = unit[new] - unit[old], unit[new]
        return _Sums(
            sums.to_block + array[:, x, None] * step[None],
            sums.from_block + step[:, None] * array[x][None],
            rest
            + block[:, None] * row[None]
            + column[:, None] * block[None]
            + diagonal * block[:, None] * block[None],
        )

    def move(state, x):
        labels, all_sums = state
        parts = [
            without(array, sums, x, labels[x]) for array, sums in zip(arrays, all_sums, strict=True)
        ]
        (c, c_row, c_column, c_diagonal), (s, s_row, s_column, s_diagonal) = parts
        # Putting x into block j changes only row j and column j of the block sums.
        before = _share(s, c, weight)
        in_row = _share(s + s_row[None], c + c_row[None], weight) - before
        in_column = _share(s + s_column[:, None], c + c_column[:, None], weight) - before
        corner_signed = jnp.diag(s) + s_row + s_column + s_diagonal
        corner_total = jnp.diag(c) + c_row + c_column + c_diagonal
        corner = _share(corner_signed, corner_total, weight) - jnp.diag(before)
        change = jnp.sum(in_row * off_diagonal, 1) + jnp.sum(in_column * off_diagonal, 0) + corner
        change = jnp.where(jnp.arange(capacity) < blocks, change, -jnp.inf)
        best, old = jnp.argmax(change), labels[x]
        # A label is kept on a tie (up to rounding), so that the sweeps end.
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
