"""The replay against a slow reference over random episodes, and its sampling statistics."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from rcrl_jax import observations, types
from rcrl_jax.replay import frames
from rcrl_jax.replay.segment_replay import SegmentReplay
from rcrl_jax.replay.settings import ContrastRule
from tests.replay.driver import DISCOUNT, TINY, Pair, make_settings, pattern
from tests.replay.reference import ZEROS, Event

REWARDS = (0.0, 0.0, 0.0, 1.0, -1.0, 0.5)
ENDS = ((False, False),) * 7 + ((True, False), (False, True), (True, True))


@st.composite
def scenarios(draw):
    """(runs, sizes of the replay, `[T][R]` events); rings are small, so they wrap often."""
    frame_stack, n_step = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    capacity = 2 * (n_step + frame_stack) + draw(st.integers(0, 12))
    runs = draw(st.integers(1, 3))
    event = st.builds(
        lambda action, reward, ends: Event(action, reward, *ends),
        st.integers(0, 5),
        st.sampled_from(REWARDS),
        st.sampled_from(ENDS),
    )
    steps = draw(st.integers(1, 3 * capacity))
    script = draw(st.lists(st.tuples(*[event] * runs), min_size=steps, max_size=steps))
    sizes = {"capacity": capacity, "frame_stack": frame_stack, "n_step": n_step}
    return runs, sizes, script


def assert_priorities_equal(pair: Pair) -> None:
    """The sampleable starts and their priorities are the reference's."""
    for run, reference in enumerate(pair.slow):
        expected = np.zeros(pair.capacity)
        for index in reference.starts():
            expected[index % pair.capacity] = reference.priority[index]
        np.testing.assert_array_equal(pair.fast.state.priorities[run], expected)
        assert pair.fast.state.max_priority[run] == reference.max_priority


def assert_batch_equal(pair: Pair, sample) -> None:
    """Every transition of the batch is the reference's window of the index it came from."""
    t = sample.batch.transitions
    for run, reference in enumerate(pair.slow):
        starts = set(reference.starts())
        for b, index in enumerate(sample.index[run].tolist()):
            assert index in starts
            window = reference.window(index)
            np.testing.assert_array_equal(t.observation[run, b], window.observation)
            np.testing.assert_array_equal(t.next_observation[run, b], window.next_observation)
            assert t.action[run, b] == window.action
            assert t.reward[run, b] == pytest.approx(window.reward, abs=1e-6)
            assert t.discount[run, b] == pytest.approx(window.discount, abs=1e-7)


def contrast_indices(pair: Pair, sample, run: int):
    """Indices of anchors, positives and negatives, from their frames; checks the actions."""
    reference, result = pair.slow[run], []
    for pairs in sample.batch.contrast:
        indices = reference.index_of(pairs.observation[run])
        actions = [reference.transition(i).action for i in indices]
        np.testing.assert_array_equal(pairs.action[run], actions)
        result.append(indices)
    return result


def assert_contrast_equal(pair: Pair, sample) -> None:
    """Anchors are starts, positives are of the anchor's segment, negatives any live pair."""
    for run, reference in enumerate(pair.slow):
        anchor, positive, negative = contrast_indices(pair, sample, run)
        assert set(anchor) <= set(reference.starts())
        assert set(negative) == set(reference.pairs())  # 60 draws a live pair: none is missed
        assert sample.positive_is_anchor[run] == np.mean(anchor == positive)
        for a in set(anchor.tolist()):
            drawn, segment = set(positive[anchor == a].tolist()), set(reference.segment(a))
            assert drawn <= segment
            if np.sum(anchor == a) > 25 * len(segment):
                assert drawn == segment


@settings(max_examples=30)
@given(scenarios(), st.integers(0, 2**32 - 1))
def test_fast_replay_equals_the_reference_over_random_episodes(scenario, seed):
    runs, sizes, script = scenario
    pair = Pair(runs, seeds=seed + np.arange(runs), **sizes)
    rng = np.random.default_rng(seed)
    for step, events in enumerate(script):
        pair.add(list(events))
        assert_priorities_equal(pair)
        if pair.can_sample and step % 5 == 0:
            sample = pair.sample(8, 0, 0.5)
            assert_batch_equal(pair, sample)
            pair.add(list(events))  # as in the training loop, one step lies in between
            losses = rng.uniform(0.01, 9.0, sample.index.shape).astype(np.float32)
            pair.update_priorities(sample.index, losses)
            assert_priorities_equal(pair)
    if pair.can_sample:
        assert_contrast_equal(pair, pair.sample(8, 60 * sizes["capacity"], 0.5))


def play(text: str, **sizes) -> Pair:
    pair = Pair(1, **sizes)
    for event in pattern(text):
        pair.add([event])
    return pair


def windows(pair: Pair) -> dict[int, tuple[float, float]]:
    """(reward, discount) of every start, by index."""
    sample = pair.sample(500, 0, 0.5)
    t = sample.batch.transitions
    return {
        i: (float(r), float(d))
        for i, r, d in zip(sample.index[0].tolist(), t.reward[0], t.discount[0], strict=True)
    }


def test_n_step_windows_by_hand():
    g = DISCOUNT
    # index            0123   4567 8(frame)  9..
    pair = play("..+T  .+.C          ...+.", capacity=40, n_step=3)
    expected = {
        0: (g**2, g**3),  # complete, bootstraps from index 3
        1: (g, 0.0),  # reaches the terminal transition
        2: (1.0, 0.0),
        3: (0.0, 0.0),
        4: (g, g**3),
        5: (1.0, g**3),  # ends at the cut exactly: three steps, from the final frame
        6: (0.0, g**2),  # shortened by the cut: two steps
        7: (0.0, g),
        9: (0.0, g**3),
        10: (g**2, g**3),  # 11 waits for frame 14
    }
    found = windows(pair)
    assert found.keys() == expected.keys()
    for index, window in expected.items():
        assert found[index] == pytest.approx(window, abs=1e-6)


def test_only_truncation_bootstraps_and_from_its_final_frame():
    pair = play("..C ..T ..B .", capacity=40, frame_stack=2, n_step=1)
    sample = pair.sample(200, 0, 0.5)
    t = sample.batch.transitions
    ends = {i: t.next_observation[0, b] for b, i in enumerate(sample.index[0].tolist())}
    episode = pair.slow[0]
    np.testing.assert_array_equal(ends[2], episode.observation(0, 3))  # a frame never acted on
    np.testing.assert_array_equal(ends[1], episode.observation(0, 2))
    np.testing.assert_array_equal(ends[6], [ZEROS, ZEROS])
    np.testing.assert_array_equal(ends[9], [ZEROS, ZEROS])  # terminated wins over truncated


def positives(pair: Pair, anchors: int = 4000) -> dict[int, list[int]]:
    """Positives drawn for each anchor."""
    anchor, positive, _ = contrast_indices(pair, pair.sample(1, anchors, 0.5), 0)
    return {a: positive[anchor == a].tolist() for a in set(anchor.tolist())}


def test_segments_by_hand():
    # The rewarding transition belongs to the segment it closes; episode ends close it as well.
    # index    012 34 5 67 8(frame) 9 10 11 12
    pair = play("..+ .+ - .C .T . .", capacity=40, n_step=1)
    drawn = {a: set(p) for a, p in positives(pair).items()}
    assert drawn[0] == drawn[1] == drawn[2] == {0, 1, 2}
    assert drawn[3] == drawn[4] == {3, 4}
    assert drawn[5] == {5}  # alone: its own positive
    assert drawn[6] == drawn[7] == {6, 7}
    assert drawn[9] == drawn[10] == {9, 10}  # game over, or a lost life
    # The open segment counts, its newest transition too, which is not a start yet.
    assert drawn[11] == {11, 12}
    assert drawn.keys() == {0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11}


def test_a_segment_that_is_partly_overwritten_keeps_its_live_part():
    pair = play("....+" + "." * 12, capacity=16, n_step=1)  # 0 and 1 are lost
    drawn = {a: set(p) for a, p in positives(pair).items()}
    assert min(drawn) == 2
    assert drawn[2] == drawn[3] == drawn[4] == {2, 3, 4}


def chi_square(observed, expected) -> float:
    """p-value of counts; small where they do not follow the expected shares."""
    expected = np.asarray(expected, float)
    return stats.chisquare(observed, expected / expected.sum() * np.sum(observed)).pvalue


def counts(indices, values) -> list[int]:
    assert set(np.unique(indices)) <= set(values)
    return [int(np.sum(indices == v)) for v in values]


@pytest.fixture  # of each test: every draw advances its counters
def mixed() -> Pair:
    """A ring that has wrapped, with truncation frames and uneven priorities."""
    pair = play("..+....T.C.C.C..-...C......+...C....T.....+..", capacity=40, n_step=3)
    starts = np.array([pair.slow[0].starts()])
    pair.update_priorities(starts, np.random.default_rng(0).uniform(0.1, 9.0, starts.shape))
    return pair


def draws_one_by_one(pair: Pair, size: int = 2000) -> np.ndarray:
    """Transitions, anchors, places of positives in their segments, negatives: `[4, size]`."""
    segments = {i: pair.slow[0].segment(i) for i in pair.slow[0].starts()}
    rows = []
    for _ in range(size):  # a single stratum each: independent draws
        sample = pair.sample(1, 1, 0.5)
        anchor, positive, negative = (i[0] for i in contrast_indices(pair, sample, 0))
        place = segments[anchor].index(positive) / max(len(segments[anchor]) - 1, 1)
        rows.append((sample.index[0, 0], anchor, place, negative))
    return np.array(rows).T


def test_transitions_and_anchors_are_drawn_in_proportion_to_priority(mixed):
    reference = mixed.slow[0]
    starts = reference.starts()
    priorities = [reference.priority[i] for i in starts]
    transitions, anchors, places, negatives = draws_one_by_one(mixed)
    assert chi_square(counts(transitions, starts), priorities) > 1e-3
    assert chi_square(counts(anchors, starts), priorities) > 1e-3
    assert chi_square(counts(anchors, starts), np.ones(len(starts))) < 1e-6  # the test has power
    # No two draws share random numbers.
    ranks = [np.array(values) % mixed.capacity for values in (transitions, anchors)]
    correlation = np.corrcoef([*ranks, places, negatives])
    assert np.abs(correlation - np.eye(4)).max() < 0.1


def test_sampling_is_stratified(mixed):
    reference = mixed.slow[0]
    starts = sorted(reference.starts(), key=lambda i: i % mixed.capacity)  # in the tree's order
    share = np.array([reference.priority[i] for i in starts])
    size = 16
    expected = share / share.sum() * size
    for _ in range(50):
        drawn = mixed.sample(size, 0, 0.5).index[0]
        # Mass of k strata holds between k - 1 and k + 1 draws, whatever the random numbers.
        observed = np.cumsum([np.sum(drawn == i) for i in starts])
        assert np.all(np.abs(observed - np.cumsum(expected)) <= 1)
    ranks = [starts.index(i) for i in drawn]
    assert ranks == sorted(ranks)
    # Two starts of equal priority a stratum: each draws by itself.
    even = play("." * 33, capacity=40, n_step=1)
    assert set(even.sample(size, 0, 0.5).index[0] % 2) == {0, 1}


def test_positives_are_uniform_in_the_live_segment(mixed):
    reference = mixed.slow[0]
    drawn = positives(mixed, 20_000)
    long = [a for a in drawn if len(reference.segment(a)) > 1]
    p_values = [
        chi_square(counts(np.array(drawn[a]), s), np.ones(len(s)))
        for a in long
        for s in [reference.segment(a)]
    ]
    assert len(p_values) > 10
    assert min(p_values) > 1e-3 / len(p_values)


def test_negatives_are_uniform_over_live_pairs_and_skip_truncation_frames(mixed):
    reference = mixed.slow[0]
    live, pairs = 40 - 1, reference.pairs()
    assert live - len(pairs) == 4  # frames of truncations, to be avoided
    anchor, _, negative = contrast_indices(mixed, mixed.sample(1, 20_000, 0.5), 0)
    assert chi_square(counts(negative, pairs), np.ones(len(pairs))) > 1e-3
    # The anchor itself is one of them.
    assert np.mean(negative == anchor) == pytest.approx(1 / len(pairs), rel=0.2)


def test_importance_weights_by_hand():
    pair = play("......", capacity=40, n_step=1, exponent=0.5)
    pair.update_priorities(np.array([[0, 1, 2, 3, 4]]), np.array([[1.0, 4.0, 4.0, 9.0, 16.0]]))
    # Priorities 1, 2, 2, 3, 4 of 12. With N = 5 transitions, w = (5 p)^-beta over the largest.
    p = np.array([1, 2, 2, 3, 4]) / 12
    sample = pair.sample(64, 0, 0.4)
    index = sample.index[0]
    assert set(index) == set(range(5))
    w = (5 * p[index]) ** -0.4
    np.testing.assert_allclose(sample.batch.transitions.weight[0], w / w.max(), rtol=1e-6)
    assert pair.sample(64, 0, 0.0).batch.transitions.weight[0].tolist() == [1.0] * 64


def test_initial_priority_is_the_largest_when_the_window_completes():
    pair = play("....", capacity=40, n_step=3)
    assert pair.fast.state.priorities[0, :4].tolist() == [1.0, 0.0, 0.0, 0.0]
    pair.update_priorities(np.array([[0]]), np.array([[16.0]]))
    pair.add([Event(0, 0.0)])  # 1 was added when the largest priority was still 1
    pair.update_priorities(np.array([[0]]), np.array([[25.0]]))
    assert pair.fast.state.priorities[0, :5].tolist() == [5.0, 4.0, 0.0, 0.0, 0.0]
    pair.update_priorities(np.array([[0]]), np.array([[1.0]]))  # seen, although it is gone
    pair.add([Event(0, 0.0, terminated=True)])  # the end completes every window
    assert pair.fast.state.priorities[0, :6].tolist() == [1.0, 4.0, 5.0, 5.0, 5.0, 5.0]


def test_transition_with_zero_loss_stays_sampleable():
    pair = play("...", capacity=40, n_step=1)
    pair.fast.update_priorities(np.array([[0, 1]]), np.array([[0.0, 0.0]], np.float32))
    np.testing.assert_allclose(pair.fast.state.priorities[0, :2], 1e-8**0.5)
    sample = pair.sample(16, 0, 0.5)
    assert set(sample.index[0]) == {0, 1}
    assert np.isfinite(sample.batch.transitions.weight).all()
    pair.fast.update_priorities(np.array([[0]]), np.array([[4.0]], np.float32))
    assert pair.fast.state.priorities[0, 0] == 2.0


def test_priority_updates_of_lost_transitions_are_ignored():
    pair = play("." * 12, capacity=16, frame_stack=3, n_step=2)
    index = np.array([[0, 1, 2, 3, 4, 5]])
    for event in pattern("." * 6):
        pair.add([event])
    # 18 written: 0 and 1 are overwritten, 2 and 3 have lost frames of their stacks.
    before = pair.fast.state.priorities[0].copy()
    assert before[[0, 1, 2, 3]].tolist() == [0.0] * 4  # slots 0 and 1: 16 and 17, not ready yet
    pair.fast.update_priorities(index, np.full(index.shape, 49.0, np.float32))
    after = pair.fast.state.priorities[0]
    assert after[[4, 5]].tolist() == [7.0, 7.0]
    np.testing.assert_array_equal(np.delete(after, [4, 5]), np.delete(before, [4, 5]))
    for event in pattern("..."):
        pair.add([event])
    # Slot 0 now holds index 16, which is ready: a pending priority of index 0 must not reach it.
    kept = pair.fast.state.priorities[0, 0]
    assert kept > 0
    pair.fast.update_priorities(np.array([[0]]), np.array([[1.0]], np.float32))
    assert pair.fast.state.priorities[0, 0] == kept


def flat(sample):
    t, *contrast = sample.batch
    arrays = [sample.index, sample.positive_is_anchor, *t]
    return arrays + jax.tree.leaves(contrast)


def test_restored_replay_continues_exactly():
    text = "..+....C..T." * 3
    first = play(text, capacity=24)
    for _ in range(3):
        sample = first.sample(4, 6, 0.5)
        first.fast.update_priorities(sample.index, np.full((1, 4), 5.5, np.float32))
    saved = first.fast.state
    expected = [np.copy(a) for a in flat(first.sample(4, 6, 0.5))]
    second = play(text, capacity=24)
    second.fast.restore(saved)
    for a, b in zip(expected, flat(second.sample(4, 6, 0.5)), strict=True):
        np.testing.assert_array_equal(a, b)
    for pair in (first, second):
        pair.add([Event(0, 0.0)])
    for a, b in zip(first.fast.state, second.fast.state, strict=True):
        np.testing.assert_array_equal(a, b)


def test_example_batch_has_the_types_of_a_sample_and_changes_nothing():
    rule = ContrastRule(number=3)
    empty, played = (
        Pair(2, capacity=24, contrast_rule=rule),
        Pair(2, capacity=24, contrast_rule=rule),
    )
    for event in pattern("..+....."):
        played.add([event, event])
    before = played.fast.state
    types_of = [
        jax.tree.map(lambda x: (x.shape, x.dtype), batch)
        for batch in (
            empty.fast.example_batch(), played.fast.example_batch(), played.fast.sample(0.5).batch
        )
    ]  # fmt: skip
    assert types_of[0] == types_of[1] == types_of[2]
    expected = before._replace(draws=before.draws + 1)  # by `sample` alone
    for a, b in zip(expected, played.fast.state, strict=True):
        np.testing.assert_array_equal(a, b)
    assert np.isfinite(empty.fast.example_batch().transitions.weight).all()


def test_frames_on_the_device_give_the_samples_of_frames_on_the_host():
    """References of a batch share one array, which the next `add` donates."""
    runs, capacity = 2, 24
    zeros = jnp.zeros((runs, capacity + 2, frames.device_frame_size(TINY)), np.uint8)
    pair = Pair(runs, capacity=capacity, contrast_rule=ContrastRule(number=3))
    device = SegmentReplay(
        frames.DeviceFrameStore(runs, zeros, lambda tree: tree, TINY),
        np.arange(runs),
        pair.fast.settings,
        observations.ObservationFormat.uniform(2, TINY),
        jax.ShapeDtypeStruct((), np.int32),
    )
    for time, event in enumerate(pattern("..+..C..T....+..." * 2)):
        frame = np.stack([reference.frames() for reference in pair.slow], axis=1)
        arrays = [np.full(runs, value) for value in event]
        device.add(frame[0], *arrays, frame[1])
        pair.add([event] * runs)
        if time < 6:
            continue
        batch = device.sample(0.5).batch
        detached, stored = frames.detach_frames(batch)
        resolved = [
            frames.resolve_references(jax.tree.map(lambda x, r=r: x[r], detached), stored, r)
            for r in range(runs)
        ]
        resolved = jax.tree.map(lambda *own: np.stack(own), *resolved)
        jax.tree.map(np.testing.assert_array_equal, resolved, pair.fast.sample(0.5).batch)
    assert isinstance(batch, types.Batch) and not stored.is_deleted()
    device.add(frame[0], *arrays, frame[1])
    assert stored.is_deleted()


@pytest.mark.parametrize("text", ["." * 23 + "+" + "." * 6, ".C" * 17 + "..", ".C." * 9 + "+."])
def test_segment_lengths_count_live_transitions(text):
    pair = play(text, capacity=20, frame_stack=3, n_step=2)
    reference = pair.slow[0]
    names = [reference.segment_name(i) for i in reference.pairs()]
    expected = [names.count(name) for name in dict.fromkeys(names)]
    assert pair.fast.segment_lengths(0).tolist() == expected


# --- uniform replay of vectors, as for continuous control --------------------------------------


def test_exponent_zero_samples_uniformly_with_weights_of_one():
    pair = play("." * 30, capacity=40, n_step=1, exponent=0.0)
    counts = np.zeros(30, int)
    rng = np.random.default_rng(0)
    for _ in range(200):
        sample = pair.sample(16, 0, 1.0)
        np.testing.assert_array_equal(sample.batch.transitions.weight, 1.0)
        pair.fast.update_priorities(sample.index, rng.exponential(size=(1, 16)).astype("f4"))
        counts += np.bincount(sample.index[0], minlength=30)
        part = sample.index[0] * 16 / 29  # where it begins, in 16 parts of the 29 transitions
        assert np.all((part < np.arange(16) + 1) & (part + 16 / 29 > np.arange(16)))
    assert counts[29] == 0  # the state that follows it is not known yet
    assert stats.chisquare(counts[:29]).pvalue > 1e-3


def test_replay_of_vector_states_and_actions():
    capacity, states = 12, observations.as_rendered((3,), np.float32)
    replay = SegmentReplay(
        frames.HostFrameStore(2, capacity, states),
        np.arange(2),
        make_settings(
            capacity=capacity, n_step=1, priority_exponent=0.0, batch_size=8,
            contrast_rule=ContrastRule(number=5, tolerance=1.0),
        ),
        observations.ObservationFormat.uniform(2, states),
        jax.ShapeDtypeStruct((4,), np.float32),
    )  # fmt: skip
    rng, no = np.random.default_rng(0), np.zeros(2, bool)
    state = rng.normal(size=(20, 2, 3)).astype(np.float32)
    action = rng.uniform(-1, 1, (20, 2, 4)).astype(np.float32)
    for t in range(19):
        replay.add(state[t], action[t], np.full(2, 0.4, np.float32), no, no, state[t + 1])
    sample = replay.sample(1.0)
    transitions, anchor = sample.batch.transitions, sample.batch.contrast.anchor
    before, after = transitions.observation, transitions.next_observation
    assert before.shape == (2, 8, 2, 3) and anchor.action.shape == (2, 5, 4)
    for run in range(2):
        for i, t in enumerate(sample.index[run]):
            np.testing.assert_array_equal(transitions.action[run, i], action[t, run])
            np.testing.assert_array_equal(before[run, i], state[t - 1 : t + 1, run])
            np.testing.assert_array_equal(after[run, i], state[t : t + 2, run])
    # Segments of 0.4 + 0.4 + 0.4 > 1: three steps each.
    assert replay.segment_lengths(0).max() == 3
