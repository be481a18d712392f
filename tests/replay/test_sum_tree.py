"""The sum tree against plain sums."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rcrl_jax.ops import native
from rcrl_jax.replay.sum_tree import WIDTH, SumTree

KERNEL = native.get("sum_tree")
needs_compiler = pytest.mark.skipif(KERNEL is None, reason="sum_tree.c is not compiled")


class PlainSumTree(SumTree):
    """As where `sum_tree.c` is not compiled."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self._kernel = None


KINDS = (PlainSumTree, pytest.param(SumTree, marks=needs_compiler))
of_both_kinds = pytest.mark.parametrize("kind", KINDS)

# One level; a full level; one leaf more; a partial last node; three levels.
SIZES = (1, 5, WIDTH, WIDTH + 1, 3 * WIDTH - 7, WIDTH**2 + 3, 4 * WIDTH**2 + 1)


def filled(kind, leaves) -> SumTree:
    leaves = np.asarray(leaves, float)
    tree = kind(*leaves.shape)
    rows, slots = np.indices(leaves.shape)
    tree.set(rows, slots, leaves)
    return tree


def assert_sums_are_exact(tree: SumTree) -> None:
    """Every sum equals, to the last bit, that of a tree built from the leaves at once."""
    fresh = type(tree)(*tree.leaves.shape)
    fresh.leaves = tree.leaves
    np.testing.assert_array_equal(tree.total, fresh.total)
    # `find` reads every level: equal sums choose equal leaves at every edge of mass.
    edges = np.cumsum(tree.leaves, axis=1)
    if np.all(tree.total > 0):
        np.testing.assert_array_equal(tree.find(edges), fresh.find(edges))
    else:
        for either in (tree, fresh):
            with pytest.raises(IndexError):
                either.find(edges)


@of_both_kinds
@settings(max_examples=25)
@given(
    st.sampled_from(SIZES),
    st.integers(1, 3),
    st.integers(0, 2**32 - 1),
    st.floats(0.0, 0.95),
)
def test_find_equals_a_plain_cumulative_sum(kind, size, runs, seed, share_of_zeros):
    rng = np.random.default_rng(seed)
    # Multiples of 1/8 add up exactly, so that edges of mass are exact as well.
    leaves = rng.integers(1, 100, (runs, size)) / 8
    leaves[rng.random(leaves.shape) < share_of_zeros] = 0.0
    leaves[:, rng.integers(size)] = 1.0
    tree = filled(kind, leaves)
    np.testing.assert_array_equal(tree.leaves, leaves)
    np.testing.assert_array_equal(tree.total, leaves.sum(axis=1))

    mass = rng.random((runs, 50)) * tree.total[:, None]
    sums = np.cumsum(leaves, axis=1)
    starts = (sums - leaves)[:, :: max(size // 64, 1)]  # edges: the first mass of a leaf is its own
    for masses in (mass, starts):
        expected = np.stack(
            [np.searchsorted(s, m, side="right") for s, m in zip(sums, masses, strict=True)]
        )
        inside = masses < tree.total[:, None]
        np.testing.assert_array_equal(tree.find(masses)[inside], expected[inside])


@of_both_kinds
@pytest.mark.parametrize("size", SIZES)
def test_updates_equal_a_plain_array_without_drift(kind, size):
    rng = np.random.default_rng(size)
    tree, plain = kind(2, size), np.zeros((2, size))
    for _ in range(200):  # 2e4 updates, of magnitudes that float32 sums round away
        rows, slots = rng.integers(2, size=100), rng.integers(size, size=100)
        values = 10.0 ** rng.uniform(-9, 6, 100) * (rng.random(100) < 0.8)
        tree.set(rows, slots, values)
        plain[rows, slots] = values
    np.testing.assert_array_equal(tree.leaves, plain)
    np.testing.assert_allclose(tree.total, plain.sum(axis=1), rtol=1e-12)
    assert_sums_are_exact(tree)
    tree.set(*np.indices((2, size)), 0.0)
    assert tree.total.tolist() == [0.0, 0.0]  # nothing is left over


@of_both_kinds
@settings(max_examples=25)
@given(st.sampled_from(SIZES), st.integers(0, 2**32 - 1))
def test_a_leaf_of_zero_is_never_found(kind, size, seed):
    rng = np.random.default_rng(seed)
    leaves = 10.0 ** rng.uniform(-12, 3, (2, size))  # sums that do not add up exactly
    leaves[rng.random(leaves.shape) < 0.7] = 0.0
    leaves[:, rng.integers(size)] = 1e-3
    tree = filled(kind, leaves)
    sums = np.cumsum(leaves, axis=1)
    edges = np.concatenate(
        [
            np.zeros((2, 1)),
            sums,
            np.nextafter(sums, 0),
            np.nextafter(sums, np.inf),
            tree.total[:, None],
            np.nextafter(tree.total, 0)[:, None],
        ],
        axis=1,
    )
    found = tree.find(edges)
    assert np.all(np.take_along_axis(leaves, found, axis=1) > 0)


@of_both_kinds
def test_rows_broadcast_and_runs_are_independent(kind):
    tree = kind(3, 70)
    tree.set(np.array([[0], [2]]), np.array([[1, 69], [5, 6]]), 2.0)
    expected = np.zeros((3, 70))
    expected[0, [1, 69]] = expected[2, [5, 6]] = 2.0
    np.testing.assert_array_equal(tree.leaves, expected)
    assert tree.total.tolist() == [4.0, 0.0, 4.0]
    assert tree.get(np.array([[0], [1]]), np.array([[1, 2]])).tolist() == [[2.0, 0.0], [0.0, 0.0]]


@needs_compiler
@settings(max_examples=25)
@given(st.sampled_from(SIZES), st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_compiled_tree_equals_numpy_to_the_last_bit(size, runs, seed):
    """Values of all magnitudes, whose sums depend on the order of additions."""
    rng = np.random.default_rng(seed)
    trees = PlainSumTree(runs, size), SumTree(runs, size)
    assert trees[1]._kernel is KERNEL
    for _ in range(4):
        rows, slots = rng.integers(runs, size=60), rng.integers(size, size=60)
        values = 10.0 ** rng.uniform(-12, 6, 60) * (rng.random(60) < 0.7)
        rows, slots = np.append(rows, np.arange(runs)), np.append(slots, np.zeros(runs, int))
        values = np.append(values, np.full(runs, 1e-3))
        for tree in trees:
            tree.set(rows, slots, values)
        plain, compiled = (tree._nodes.tobytes() for tree in trees)
        assert plain == compiled
        total, sums = trees[0].total[:, None], np.cumsum(trees[0].leaves, axis=1)
        edges = [sums, np.nextafter(sums, 0), np.nextafter(sums, np.inf), 2 * total, np.nan * total]
        mass = np.concatenate([*edges, rng.random((runs, 50)) * total], axis=1)
        before = mass.copy()
        np.testing.assert_array_equal(trees[0].find(mass), trees[1].find(mass))
        np.testing.assert_array_equal(mass, before)


@of_both_kinds
@pytest.mark.parametrize("leaves", [5, WIDTH**2 + 1])
def test_a_tree_of_zeros_raises(kind, leaves):
    tree = kind(2, leaves)
    tree.set(np.array([0]), np.array([3]), 1.0)  # the other run has nothing
    with pytest.raises(IndexError):
        tree.find(np.zeros((2, 3)))


@of_both_kinds
@pytest.mark.parametrize("shape", [(1, 4), (2,)])
def test_masses_of_other_runs_are_refused(kind, shape):
    tree = kind(2, 5)
    tree.leaves = np.ones((2, 5))
    with pytest.raises(ValueError, match=r"\[2, B\]"):
        tree.find(np.zeros(shape))


@needs_compiler
def test_the_kernel_refuses_sizes_that_do_not_fit():
    nodes, leaf = np.zeros(2 * 3 * WIDTH), np.array([0])  # 2 runs of 17 leaves: 2 blocks, 1 above
    mass, found = np.zeros((2, 3)), np.zeros((2, 3), np.int64)
    KERNEL.update(nodes, 2, WIDTH + 1, leaf)
    for runs, leaves in (
        (2, 2 * WIDTH + 1), (3, WIDTH + 1), (0, 5), (2, 0), (-1, 5), (2, 2**60), (2, 2**63 - 1),
        (2**60, 5), (2**60 + 1, 5), (2**62, 5),
    ):  # fmt: skip
        with pytest.raises(ValueError):
            KERNEL.update(nodes, runs, leaves, leaf)
        with pytest.raises(ValueError):
            KERNEL.find(nodes, runs, leaves, mass, found)
    for outside in (-1, 2 * 2 * WIDTH):
        with pytest.raises(IndexError, match="leaf out of range"):
            KERNEL.update(nodes, 2, WIDTH + 1, np.array([outside]))
    with pytest.raises(ValueError, match="8 bytes each"):
        KERNEL.find(nodes, 2, WIDTH + 1, mass, found[:, :2].copy())
    with pytest.raises(TypeError):
        KERNEL.find(nodes, 2, WIDTH + 1, mass[:, :2], found)
