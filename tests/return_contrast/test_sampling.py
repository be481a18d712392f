"""Variants of contrastive sampling against the slow reference; measuring has no side effects."""

import hashlib
import json

import jax
import numpy as np
import pytest

from rcrl_jax import observations
from rcrl_jax.replay import frames
from rcrl_jax.replay.segment_replay import SegmentReplay
from rcrl_jax.replay.settings import ContrastRule
from tests.replay.driver import DISCRETE, Pair, make_settings, pattern
from tests.replay.reference import Event
from tests.replay.test_segment_replay import chi_square, contrast_indices, counts, flat

# The ring has wrapped. There are cut segments, frames of truncations and an open episode.
TEXT = "..+....T.C.C.C..-...C......+...C....T.....+.."
SIZE = 20_000


def play(text: str = TEXT, runs: int = 1, n_step: int = 3, capacity: int = 40, **rule) -> Pair:
    pair = Pair(runs, capacity=capacity, n_step=n_step, contrast_rule=ContrastRule(**rule))
    for event in pattern(text):
        pair.add([event] * runs)
    return pair


def return_of(reference, index: int) -> float:
    """What was gained from a step to the end of its episode, as far as it goes."""
    episode, time = reference.log[index]
    return sum(event.reward for event in reference.episodes[episode][time:])


def test_uniform_anchors_ignore_priorities_and_complete_windows():
    pair = play(anchors="uniform")
    starts = np.array([pair.slow[0].starts()])
    pair.update_priorities(starts, np.random.default_rng(0).uniform(0.1, 9.0, starts.shape))
    sample = pair.sample(1, SIZE, 0.5)
    anchor, positive, negative = contrast_indices(pair, sample, 0)
    pairs = pair.slow[0].pairs()
    assert chi_square(counts(anchor, pairs), np.ones(len(pairs))) > 1e-3
    assert set(pairs) - set(starts[0]), "some pairs have no complete window"
    assert abs(np.corrcoef(anchor, negative)[0, 1]) < 0.05
    for a in pairs:
        assert set(positive[anchor == a]) == set(pair.slow[0].segment(a))


def test_excluded_anchor_is_its_own_positive_only_when_alone():
    pair = play(TEXT + "++....", excludes_anchor=True)  # the second reward has its own segment
    sample = pair.sample(1, SIZE, 0.5)
    anchor, positive, _ = contrast_indices(pair, sample, 0)
    lengths = []
    for a in set(anchor.tolist()):
        others = [i for i in pair.slow[0].segment(a) if i != a]
        lengths.append(len(others))
        drawn = positive[anchor == a]
        assert set(drawn) == set(others or [a])
        if len(others) > 1:
            assert chi_square(counts(drawn, others), np.ones(len(others))) > 1e-5
    assert min(lengths) == 0 and max(lengths) > 4
    assert sample.positive_is_anchor[0] == np.mean(anchor == positive)


def test_negative_return_differs_from_anchor():
    pair = play(differs_in_return=True)
    reference = pair.slow[0]
    returns = {i: return_of(reference, i) for i in reference.pairs()}
    assert len(set(returns.values())) > 2
    anchor, _, negative = contrast_indices(pair, pair.sample(1, SIZE, 0.5), 0)
    same = np.array([returns[a] == returns[n] for a, n in zip(anchor, negative, strict=True)])
    share = np.mean([[returns[a] == returns[n] for n in returns] for a in anchor])
    assert share > 0.3  # as many would be the same without the rule
    assert same.mean() < 0.01  # 16 draws: 0.7 ** 16 at the worst
    others = {n for n in returns if returns[n] != 0.0}
    assert set(negative[[returns[a] == 0.0 for a in anchor]]) >= others


def test_negatives_are_any_pair_where_all_returns_are_equal():
    pair = play("." * 60, differs_in_return=True)
    _, _, negative = contrast_indices(pair, pair.sample(1, 4000, 0.5), 0)
    assert set(negative) == set(pair.slow[0].pairs())


# --- anchors that are the RL batch ---------------------------------------------------------------


def test_anchors_of_an_rl_batch_are_its_transitions_in_order():
    """The rule leaves the RL batch unchanged, importance weights included."""
    shared, separate = play(runs=2, anchors="rl_batch"), play(runs=2)
    for pair in (shared, separate):
        starts = np.array([reference.starts() for reference in pair.slow])
        pair.update_priorities(starts, np.random.default_rng(0).uniform(0.1, 9.0, starts.shape))
    for _ in range(3):
        sample, other = shared.sample(16, 16, 0.5), separate.sample(16, 16, 0.5)
        np.testing.assert_array_equal(sample.index, other.index)
        for a, b in zip(sample.batch.transitions, other.batch.transitions, strict=True):
            np.testing.assert_array_equal(a, b)
        assert len(np.unique(sample.batch.transitions.weight)) > 5
        anchors = sample.batch.contrast.anchor
        np.testing.assert_array_equal(anchors.observation, other.batch.transitions.observation)
        np.testing.assert_array_equal(anchors.action, other.batch.transitions.action)
        for run, reference in enumerate(shared.slow):
            anchor, positive, negative = contrast_indices(shared, sample, run)
            assert anchor.tolist() == sample.index[run].tolist()
            assert all(p in reference.segment(a) for a, p in zip(anchor, positive, strict=True))
            assert negative.tolist() == contrast_indices(separate, other, run)[2].tolist()
            assert sample.positive_is_anchor[run] == np.mean(anchor == positive)


# --- positives of equal return -------------------------------------------------------------------


def positives_of(pair: Pair, size: int = SIZE) -> dict[int, set[int]]:
    """Positives that each anchor is seen with."""
    anchor, positive, _ = contrast_indices(pair, pair.sample(1, size, 0.5), 0)
    return {a: set(positive[anchor == a].tolist()) for a in set(anchor.tolist())}


def test_equal_return_positives_by_hand():
    """They come from all segments and episodes; an open episode counts its return so far."""
    # index                        0123 45 678 9 10
    # return                       2211 00 211 0  0
    pair = play(".+.P .T +.P . .", n_step=1, equal_return_positives=True)
    none, one, two = {4, 5, 9, 10}, {2, 3, 7, 8}, {0, 1, 6}
    expected = {a: own for own in (none, one, two) for a in own}
    del expected[10]  # its window is not complete: it is no anchor yet
    assert positives_of(pair) == expected

    pair.add(pattern("+"))  # index 11; the returns of 9 and 10 become 1
    none, one = {4, 5}, {2, 3, 7, 8, 9, 10, 11}
    expected = {a: own for own in (none, one, two) for a in own}
    del expected[11]
    assert positives_of(pair) == expected


def test_equal_return_positives_can_exclude_the_anchor():
    # index                        012 3 4
    # return                       211 0 1
    pair = play("+.P T P", n_step=1, equal_return_positives=True, excludes_anchor=True)
    assert positives_of(pair) == {0: {0}, 1: {2, 4}, 2: {1, 4}, 3: {3}, 4: {1, 2}}
    sample = pair.sample(1, SIZE, 0.5)
    anchor, positive, _ = contrast_indices(pair, sample, 0)
    assert set(anchor[anchor == positive]) == {0, 3}
    assert sample.positive_is_anchor[0] == np.mean(anchor == positive)


def test_equal_return_positives_are_uniform_or_fall_back_to_the_segment():
    """Of a return that q of the live pairs have, 32 draws miss (1 - q) ** 32."""
    pair = play(equal_return_positives=True)
    reference = pair.slow[0]
    returns = {i: return_of(reference, i) for i in reference.pairs()}
    anchor, positive, _ = contrast_indices(pair, pair.sample(1, 4 * SIZE, 0.5), 0)
    p_values, elsewhere = [], 0
    for a in set(anchor.tolist()):
        equal = [i for i in returns if returns[i] == returns[a]]
        segment = reference.segment(a)
        assert set(segment) <= set(equal)
        missed = (1 - len(equal) / len(returns)) ** 32
        expected = [
            (1 - missed) / len(equal) + missed * (i in segment) / len(segment) for i in equal
        ]
        drawn = positive[anchor == a]
        p_values.append(chi_square(counts(drawn, equal), expected))
        elsewhere += np.sum(~np.isin(drawn, segment))
    assert len(p_values) > 20
    assert min(p_values) > 1e-3 / len(p_values)
    assert elsewhere / len(anchor) > 0.5


def test_share_of_rare_equal_returns_that_is_found():
    """Two pairs of return 1 among 32 live ones, each a segment of its own."""
    rule = {"equal_return_positives": True, "excludes_anchor": True}
    pair = play("P" + "." * 29 + "T" + "P", n_step=1, capacity=120, **rule)
    assert len(pair.slow[0].pairs()) == 32
    pair.update_priorities(np.array([[0, 31]]), np.full((1, 2), 1e4, np.float32))
    anchor, positive, _ = contrast_indices(pair, pair.sample(1, 8 * SIZE, 0.5), 0)
    rare = np.isin(anchor, [0, 31])
    assert rare.sum() > 80_000
    assert set(zip(anchor[rare].tolist(), positive[rare].tolist(), strict=True)) == {
        (0, 31), (31, 0), (0, 0), (31, 31)
    }  # fmt: skip
    found = np.mean(positive[rare] != anchor[rare])
    expected = 1 - (31 / 32) ** 32  # 0.64; one draw more or less changes it by 0.011
    assert found == pytest.approx(expected, abs=4 * np.sqrt(0.25 / rare.sum()))


def test_share_of_rare_other_returns_that_is_found():
    """Negatives of another return than 99 pairs' have one of two places."""
    pair = play("P" + "." * 98 + "T" + "P", n_step=1, capacity=120, differs_in_return=True)
    anchor, _, negative = contrast_indices(pair, pair.sample(1, 8 * SIZE, 0.5), 0)
    common = ~np.isin(anchor, [0, 100])
    found = np.mean(np.isin(negative[common], [0, 100]))
    expected = 1 - (99 / 101) ** 16  # 0.27; one draw more or less changes it by 0.014
    assert found == pytest.approx(expected, abs=4 * np.sqrt(0.25 / common.sum()))


def real_returns(**rule) -> Pair:
    """Fractional rewards, as on DMControl; segments close above a reward of 1/2."""
    pair = Pair(
        capacity=40, n_step=1, exponent=0.0,
        contrast_rule=ContrastRule(tolerance=0.5, **rule),
    )  # fmt: skip
    #        index           0    1    2      3       4      5
    #        return        1.5  1.0  0.5    0.0    2.75   0.75
    for reward, ended in [(0.5, 0), (0.5, 0), (0.5, 0), (0.0, 1), (2.0, 0), (0.75, 1)]:
        pair.add([Event(0, reward, bool(ended))])
    return pair


def test_returns_within_the_tolerance_count_as_equal():
    found = positives_of(real_returns(equal_return_positives=True))
    assert found == {
        0: {0, 1}, 1: {0, 1, 2, 5}, 2: {1, 2, 3, 5}, 3: {2, 3}, 4: {4}, 5: {1, 2, 5}
    }  # fmt: skip


def test_negative_return_differs_by_more_than_the_tolerance():
    pair = real_returns(differs_in_return=True)
    anchor, _, negative = contrast_indices(pair, pair.sample(1, SIZE, 1.0), 0)
    others = {0: {2, 3, 4, 5}, 1: {3, 4}, 2: {0, 4}, 3: {0, 1, 4, 5}, 4: {0, 1, 2, 3, 5}}
    others[5] = {0, 3, 4}
    kept = [n in others[a] for a, n in zip(anchor.tolist(), negative.tolist(), strict=True)]
    assert np.mean(kept) > 0.995  # 16 draws: (4 / 6) ** 16 at the worst
    for a, own in others.items():
        assert set(negative[(anchor == a) & np.array(kept)]) == own


# --- what does not change ------------------------------------------------------------------------

RULES = [
    {}, {"differs_in_return": True}, {"anchors": "uniform"}, {"anchors": "rl_batch"},
    {"equal_return_positives": True, "differs_in_return": True},
]  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
def test_samples_of_each_rule_are_independent_of_fleet_composition(rule):
    scripts = [pattern(p * 3) for p in ("..+....C..T.", "C.C.C..+-T..", "............")]
    seeds = np.array([11, 5, 7])
    own = {"capacity": 24, "contrast_rule": ContrastRule(**rule)}
    fleet = Pair(3, seeds=seeds, **own)
    alone = [Pair(1, seeds=seeds[[r]], **own) for r in range(3)]
    for r in range(3):
        alone[r].slow[0].run = r  # the same frames
    rng = np.random.default_rng(0)
    for step, events in enumerate(zip(*scripts, strict=True)):
        fleet.add(list(events))
        for pair, event in zip(alone, events, strict=True):
            pair.add([event])
        if step < 6:
            continue
        sample = fleet.sample(6, 6, 0.5)
        for r, pair in enumerate(alone):
            for one, many in zip(flat(pair.sample(6, 6, 0.5)), flat(sample), strict=True):
                np.testing.assert_array_equal(one[0], many[r])
        losses = rng.uniform(0.1, 4.0, sample.index.shape).astype(np.float32)
        fleet.fast.update_priorities(sample.index, losses)
        for r, pair in enumerate(alone):
            pair.fast.update_priorities(sample.index[[r]], losses[[r]])
    for r, pair in enumerate(alone):
        for one, many in zip(pair.fast.state, fleet.fast.state, strict=True):
            np.testing.assert_array_equal(one[0], many[r])


@pytest.mark.parametrize("rule", RULES)
def test_measuring_changes_nothing_and_uses_separate_streams(rule):
    looked, alone = play(runs=2, **rule), play(runs=2, **rule)
    measured = looked.fast.sample_to_measure(64)
    again = looked.fast.sample_to_measure(64)
    for a, b in zip(flat_contrast(measured), flat_contrast(again), strict=True):
        np.testing.assert_array_equal(a, b)  # until something is drawn to learn from
    one, other = looked.sample(64, 64, 0.5), alone.sample(64, 64, 0.5)
    for a, b in zip(flat(one), flat(other), strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(looked.fast.state, alone.fast.state, strict=True):
        np.testing.assert_array_equal(a, b)
    assert any(
        np.any(a != b)
        for a, b in zip(flat_contrast(measured), flat_contrast(one.batch.contrast), strict=True)
    )
    assert np.any(measured.negative.action[0] != measured.negative.action[1])  # own streams


def flat_contrast(contrast):
    return [np.array(array) for array in jax.tree.leaves(contrast)]


# Digests of the indices of two runs: two samples of transitions; anchors, positives and negatives
# of one measurement, then of the same two samples.
GOLDEN = {
    "default": (0.5, {}, "9a5fe697428aea93"),
    "uniform_anchors": (0.5, {"anchors": "uniform"}, "a2f79f2de97599a1"),
    "excludes_anchor": (0.5, {"excludes_anchor": True}, "b8d4cdd8282d8d28"),
    "differs_in_return": (0.5, {"differs_in_return": True}, "b863a7f507bbf0f6"),
    "uniform_replay": (0.0, {}, "83eb8a9a6af9470a"),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_draws(name):
    """A run is reproducible only as long as these indices stay the same."""
    exponent, rule, expected = GOLDEN[name]
    pair = Pair(
        2,
        capacity=40,
        n_step=3,
        seeds=[3, 8],
        exponent=exponent,
        contrast_rule=ContrastRule(**rule),
    )
    for event in pattern(TEXT):
        pair.add([event, event])
    starts = np.array([reference.starts() for reference in pair.slow])
    pair.update_priorities(starts, np.arange(1.0, 1 + starts.size).reshape(starts.shape))

    def indices(contrast):
        """Of anchors, positives and negatives: `[3, R, N]`."""
        return [
            [pair.slow[run].index_of(pairs.observation[run]).tolist() for run in range(2)]
            for pairs in contrast
        ]

    transitions, drawn = [], [indices(pair.fast.sample_to_measure(4))]
    for _ in range(2):
        sample = pair.sample(5, 4, 0.5)
        transitions.append(sample.index.tolist())
        drawn.append(indices(sample.batch.contrast))
    found = json.dumps([transitions, *zip(*drawn, strict=True)])
    assert hashlib.sha256(found.encode()).hexdigest()[:16] == expected


def test_each_part_of_a_batch_reads_its_own_layout_of_whole_frames():
    mixed = observations.ObservationFormat(
        frame_stack=2,
        stored=observations.WHOLE,
        network=observations.PATCHES,
        observation=observations.WHOLE,
        next_observation=observations.PATCHES,
    )
    rng = np.random.default_rng(0)
    episode = rng.integers(0, 256, (2, 30, 84, 84), np.uint8)

    def filled(format_):
        replay = SegmentReplay(
            frames.HostFrameStore(2, 40, format_.stored), np.arange(2),
            make_settings(n_step=2, batch_size=5, contrast_rule=ContrastRule(number=3)),
            format_, DISCRETE,
        )  # fmt: skip
        no = np.zeros(2, bool)
        for t in range(29):
            replay.add(
                episode[:, t], np.zeros(2, np.int32), np.zeros(2, np.float32), no, no,
                episode[:, t + 1],
            )  # fmt: skip
        return replay.sample(0.5).batch

    uniform = observations.ObservationFormat.uniform(2, observations.PATCHES)
    whole, patches = filled(mixed), filled(uniform)
    assert whole.transitions.observation.shape == (2, 5, 2, 7056)
    np.testing.assert_array_equal(
        observations.leading_patches(whole.transitions.observation),
        patches.transitions.observation,
    )
    np.testing.assert_array_equal(
        whole.transitions.next_observation, patches.transitions.next_observation
    )
    for a, b in zip(whole.contrast, patches.contrast, strict=True):
        np.testing.assert_array_equal(a.observation, b.observation)
