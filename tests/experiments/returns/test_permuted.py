"""The control's permutation by hand, and the samples that are drawn by it."""

import numpy as np

from experiments.returns import permuted
from rcrl_jax.return_contrast.rule import ContrastRule
from tests.replay.driver import Pair, pattern
from tests.replay.test_segment_replay import contrast_indices

RULE = ContrastRule(equal_return_positives=True, differs_in_return=True)


def play(text: str, capacity: int) -> Pair:
    """A replay of one run that samples by permuted returns."""
    pair = Pair(capacity=capacity, n_step=1, contrast=RULE)
    pair.fast.sampler = permuted.PermutedReturns(RULE, pair.fast._ring, pair.fast._streams)
    for event in pattern(text):
        pair.add([event])
    return pair


def random_text(steps: int, seed: int = 0) -> str:
    letters = np.random.default_rng(seed).choice(
        list(".+TPC"), steps, p=[0.8, 0.14, 0.02, 0.02, 0.02]
    )
    return "".join(letters)


def test_a_permutation_by_hand():
    returns = np.array([5.0, 2.0, 5.0, 0.0, 7.0, 1.0])
    cell = np.array([0, 0, 0, 0, 1, 1])
    key = np.array([7, 1, 4, 9, 3, 8])
    assert permuted.permute(returns, cell, key).tolist() == [5.0, 0.0, 2.0, 5.0, 1.0, 7.0]


def test_cells_by_hand():
    # Thirds end at lengths 2 and 4. Each tenth of a third holds the segments in brackets.
    length = np.array([1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6])
    position = np.array([0.0, 0.05, 0.11, 0.99, 0.99, 0.95, 0.1, 0.0, 0.0, 0.3, 0.3, 0.9])
    found = permuted.cells(length, position, smallest=2)
    #  third 0: [0 1] [2] ... [3 | third 1 begins at its end: 4 5] [6] [7] [8 | third 2] [9 10] [11]
    assert found.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 4, 4]
    assert permuted.cells(length, position, smallest=100).tolist() == [0] * 12


def test_every_cell_has_thirty_segments_of_similar_length_and_place():
    rng = np.random.default_rng(0)
    length, position = rng.geometric(0.05, 3000), rng.random(3000)
    cell = permuted.cells(length, position)
    assert len(set(cell)) == 30 and np.bincount(cell).min() >= 30
    for own in range(30):
        assert np.ptp(position[cell == own]) <= 0.1
    few = permuted.cells(length[:200], position[:200])
    assert 3 <= len(set(few)) <= 6 and np.bincount(few).min() >= 30


def test_a_segment_gets_the_return_of_a_similar_one():
    pair = play(random_text(4000), capacity=3000)  # the ring has wrapped
    ring = pair.fast._ring
    index, is_pair = permuted.live_transitions(ring)
    found, own = permuted.permuted_returns(ring)[0], ring.returns(index)[0]
    first, last = (x[0] for x in ring.segment_bounds(index))
    for head in np.unique(first[is_pair[0]]):
        assert len(set(found[is_pair[0] & (first == head)])) == 1
    heads = is_pair[0] & (first == index[0])
    assert heads.sum() > 300
    assert sorted(found[heads]) == sorted(own[heads]) and np.any(found[heads] != own[heads])
    assert pair.fast.sampler.metrics(0) == {"changed_labels": np.mean((found != own)[is_pair[0]])}


def test_within_a_cell_labels_are_independent_of_returns():
    rng = np.random.default_rng(1)
    correlations = []
    for _ in range(200):
        returns, head = rng.integers(0, 5, 60).astype(float), np.sort(rng.choice(10_000, 60, False))
        key = permuted.counter_random.mix(head.astype(np.uint64))
        labels = permuted.permute(returns, np.zeros(60, int), key)
        correlations.append(np.corrcoef(returns, labels)[0, 1])
    assert abs(np.mean(correlations)) < 4 / np.sqrt(200 * 59)


def test_a_label_is_steady_while_its_cell_grows():
    rng = np.random.default_rng(2)
    head = np.arange(0, 4000, 10)
    returns = rng.integers(0, 50, 400).astype(float)
    key = permuted.counter_random.mix(head.astype(np.uint64))
    before, after = (permuted.permute(returns[:n], np.zeros(n, int), key[:n]) for n in (300, 400))
    assert np.mean(np.abs(before - after[:300])) < 3 < np.mean(np.abs(before - returns[:300]))


def test_samples_are_drawn_by_the_permuted_returns():
    pair = play(random_text(600), capacity=800)
    sample = pair.sample(1, 4000, 0.5)
    anchor, positive, negative = contrast_indices(pair, sample, 0)
    label = permuted.permuted_returns(pair.fast._ring)[0]  # the oldest index is 0
    assert np.mean(label[positive] == label[anchor]) == 1.0
    assert np.mean(label[negative] != label[anchor]) > 0.99
    own = pair.fast._ring.returns(permuted.live_transitions(pair.fast._ring)[0])[0]
    elsewhere = positive != anchor
    assert np.mean(own[positive] == own[anchor], where=elsewhere) < 0.6
