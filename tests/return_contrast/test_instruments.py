"""AUCs by hand, the rules for each kind of pair, and the AUCs of scripted discriminators."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rcrl_jax import types
from rcrl_jax.agents.make_agent import make_agent
from rcrl_jax.config import fields
from rcrl_jax.config.presets import ATARI_PRESETS
from rcrl_jax.envs.protocol import discrete_spec
from rcrl_jax.return_contrast import episodes, instruments
from tests.training import toy

SIZE = 4000


@pytest.fixture(autouse=True)
def as_many_pairs_as_the_program(monkeypatch):
    """Trainings of other modules compare few."""
    monkeypatch.setattr(instruments, "_PAIRS", 256)


def game(rewards, actions, first_pixel=0) -> episodes.Episode:
    """A game whose frames hold the number of their step in one pixel."""
    reward = np.asarray(rewards, np.float32)
    frames = np.zeros((len(reward), 84, 84), np.uint8)
    frames[:, 0, 0] = first_pixel + np.arange(len(reward))
    ends = np.arange(len(reward)) == len(reward) - 1
    segment = np.cumsum(reward != 0) - (reward != 0)
    return episodes.Episode(frames, np.asarray(actions, np.int32), reward, segment, ends)


GAMES = [
    game([0, 0, 1, 0, 0, 0, 1, 0], [0, 1, 0, 1, 1, 0, 0, 1]),
    game([0, 1, 0, 0, 1], [0, 1, 1, 1, 0], first_pixel=100),
    game([0, 0, 0], [1, 0, 1], first_pixel=200),
]


def test_auc_by_hand():
    same, different = np.r_[1.0, 2.0, np.zeros(18)], np.r_[np.full(10, 3.0), np.full(10, 1.0)]
    # Of 400 pairs: ten outputs of 3 beat all twenty; ten of 1 beat eighteen zeros and tie with one.
    expected = (10 * 20 + 10 * 18 + 10 * 0.5) / 400
    assert instruments.area_under_roc(same, different) == pytest.approx(expected)
    assert instruments.area_under_roc(different, same) == pytest.approx(1 - expected)
    assert np.isnan(instruments.area_under_roc(same[:19], different))


@given(
    st.lists(st.integers(-3, 3), min_size=20, max_size=60),
    st.lists(st.integers(-3, 3), min_size=20, max_size=60),
)
def test_auc_equals_the_share_of_ordered_pairs(same, different):
    wins = [(d > s) + 0.5 * (d == s) for s, d in itertools.product(same, different)]
    found = instruments.area_under_roc(np.array(same, float), np.array(different, float))
    assert found == pytest.approx(np.mean(wins))


def test_played_steps_by_hand():
    played = instruments.as_played(GAMES)
    assert played.game.tolist() == [0] * 8 + [1] * 5 + [2] * 3
    assert played.time.tolist() == [*range(8), *range(5), *range(3)]
    assert played.segment.tolist() == [0, 0, 0, 1, 1, 1, 1, 2, 3, 3, 4, 4, 4, 5, 5, 5]
    assert played.action.tolist() == [0, 1, 0, 1, 1, 0, 0, 1, 0, 1, 1, 1, 0, 1, 0, 1]
    assert played.returns.tolist() == [2, 2, 2, 1, 1, 1, 1, 0, 2, 2, 1, 1, 1, 0, 0, 0]


def test_continuous_actions_count_as_equal_in_the_same_cell_of_a_grid():
    actions = np.array([[0.01, 0.5], [0.19, 0.45], [0.21, 0.5], [-0.01, 0.5]], np.float32)
    control = GAMES[0]._replace(frames=GAMES[0].frames[:4], action=np.tile(actions, (2, 1)))
    action = instruments.as_played([control]).action
    assert action[0] == action[1]
    assert len(set(action.tolist())) == 3


def test_each_kind_of_pair_is_drawn_by_its_rule_and_uniformly():
    p = instruments.as_played(GAMES)
    kinds = instruments.draw_contrasts(p, SIZE, 0.0, np.random.default_rng(1))
    steps = range(16)

    def same_segment(a, b):
        return a != b and p.segment[a] == p.segment[b]

    def equal_action(a, b):
        return p.action[a] == p.action[b]

    rules = [
        (same_segment, lambda a, b: p.returns[a] != p.returns[b]),
        (
            lambda a, b: same_segment(a, b) and equal_action(a, b),
            lambda a, b: equal_action(a, b) and p.returns[a] != p.returns[b],
        ),
        (
            lambda a, b: p.game[a] != p.game[b] and p.returns[a] == p.returns[b],
            lambda a, b: p.game[a] != p.game[b] and p.returns[a] != p.returns[b],
        ),
    ]
    for drawn, (is_same, is_different) in zip(kinds, rules, strict=True):
        found = drawn.same != -1
        assert np.array_equal(found, drawn.different != -1)
        for partner, rule in ((drawn.same, is_same), (drawn.different, is_different)):
            pairs = list(zip(drawn.anchor[found], partner[found], strict=True))
            allowed = {
                (a, b) for a in steps for b in steps if rule(a, b) and a in drawn.anchor[found]
            }
            assert set(pairs) == allowed
            # A partner is uniform among those allowed for its anchor.
            for anchor in set(drawn.anchor[found]):
                counts = [pairs.count(pair) for pair in allowed if pair[0] == anchor]
                assert len(counts) == 1 or stats.chisquare(counts).pvalue > 1e-4


def test_matched_partners_are_as_far_in_time_and_follow_the_rule_of_their_kind():
    rng = np.random.default_rng(2)
    games = [game(rng.random(300) < 0.05, rng.integers(0, 2, 300)) for _ in range(3)]
    p = instruments.as_played(games)
    kinds = instruments.draw_contrasts(p, 400, 0.0, rng)
    for kind, drawn in enumerate(kinds):
        found = drawn.matched != -1
        assert found.sum() > 100 and (drawn.same[found] != -1).all()
        a, same, matched = drawn.anchor[found], drawn.same[found], drawn.matched[found]
        far, as_far = np.abs(p.time[a] - p.time[same]), np.abs(p.time[a] - p.time[matched])
        assert (np.abs(as_far - far) <= 0.1 * far).all() and (as_far != far).any()
        assert (p.returns[a] != p.returns[matched]).all()
        assert ((p.game[a] == p.game[matched]) == (kind < 2)).all()
        assert kind != 1 or (p.action[a] == p.action[matched]).all()
    # The eleventh step of a game of eleven has no step ten steps away but the first.
    alone = instruments.Played(
        np.zeros(11, int), np.arange(11), np.r_[np.zeros(10, int), 0], np.zeros(11, int),
        np.r_[0.0, np.ones(10)],
    )  # fmt: skip
    drawn = instruments.draw_contrasts(alone, 200, 0.0, rng)[0]
    for anchor, same, matched in zip(drawn.anchor, drawn.same, drawn.matched, strict=True):
        far = abs(anchor - same)
        expected = {s for s in (anchor - far, anchor + far) if 0 <= s < 11}
        expected = {s for s in expected if alone.returns[s] != alone.returns[anchor]}
        assert same == -1 or ({matched} <= expected if expected else matched == -1)


def test_a_tolerance_makes_near_returns_equal():
    returns = np.array([0.0, 0.4, 1.0, 3.0])
    played = instruments.Played(*[np.arange(4)] * 3, np.zeros(4, int), returns)
    kinds = instruments.draw_contrasts(played, 500, 0.6, np.random.default_rng(0))
    found = kinds[2].same != -1
    assert set(kinds[2].anchor[found]) == {0, 1, 2}  # the last one is far from all others
    gaps = np.abs(returns[kinds[2].anchor] - returns[kinds[2].same])[found]
    assert gaps.max() <= 0.6
    gaps = np.abs(returns[kinds[2].anchor] - returns[kinds[2].different])[found]
    assert gaps.min() > 0.6


def test_metrics_are_nan_without_enough_pairs():
    alone = [game([1, 1, 1], [0, 1, 0])]  # no segment has two steps
    without_reward = [game([0, 0, 0], [0, 0, 1]), game([0, 0], [0, 1])]
    for games in (alone, without_reward):
        played = instruments.as_played(games)
        drawn = instruments.draw_contrasts(played, 50, 0.0, np.random.default_rng(0))
        assert all(np.all(kind.same == -1) for kind in drawn)
        stacked = instruments.Contrast(*np.array(drawn).swapaxes(0, 1))
        zeros = np.zeros((3, 3, 50))
        values = instruments.metrics_of(played, stacked, zeros, zeros)
        pairs = [values.pop(name) for name in [*values] if name.startswith("unseen_pairs")]
        assert pairs == [0.0] * 6 and len(values) == 14
        assert all(np.isnan(value) for value in values.values())


class ScriptedFleet:
    """Compares pairs by the number in the first pixel of their newest frame."""

    agent = make_agent(
        fields.replace(ATARI_PRESETS["rainbow"], {"frame_stack": 2}), discrete_spec((84, 84), 3)
    )

    def __init__(self, logit_of):
        self.calls = []
        self._logit_of = logit_of

    def compare(self, params, first, second):
        numbers = [pairs.observation[:, :, -1, 0, 0].astype(int) for pairs in (first, second)]
        self.calls.append(numbers[0].shape)
        same_action = first.action == second.action
        logit = None
        if self._logit_of is not None:
            logit = np.vectorize(self._logit_of)(*numbers)
        return types.Comparison(np.where(same_action, 0.9, 0.1), logit)


NUMBERS = np.concatenate([g.frames[:, 0, 0] for g in GAMES]).tolist()
SEGMENT_OF = dict(zip(NUMBERS, instruments.as_played(GAMES).segment, strict=True))
RETURN_OF = dict(zip(NUMBERS, instruments.as_played(GAMES).returns, strict=True))


def measure(fleet, runs=1):
    return instruments.measure(fleet, None, [GAMES] * runs, seeds=range(runs), agent_steps=100)


def test_across_games_returns_are_recognised_and_segments_alone_are_at_chance():
    (values,) = measure(ScriptedFleet(lambda a, b: float(SEGMENT_OF[a] != SEGMENT_OF[b])))
    assert values["unseen_auc"] == values["unseen_auc_equal_action"] == 1.0
    assert values["unseen_auc_equal_return"] == 0.5
    (values,) = measure(ScriptedFleet(lambda a, b: float(RETURN_OF[a] != RETURN_OF[b])))
    for name in ("unseen_auc", "unseen_auc_equal_action", "unseen_auc_equal_return"):
        assert values[name] == 1.0


def test_the_clock_is_the_auc_of_a_discriminator_that_sees_only_time():
    time = dict(zip(NUMBERS, instruments.as_played(GAMES).time, strict=True))
    (values,) = measure(ScriptedFleet(lambda a, b: float(abs(time[a] - time[b]))))
    for name in ("unseen_auc", "unseen_auc_equal_action", "unseen_auc_equal_return"):
        assert values[f"{name}_clock"] == values[name]
    assert values["unseen_auc_clock"] > 0.6


def test_the_anchors_that_an_auc_rests_on_are_counted(monkeypatch):
    drawn = []
    draw = instruments.draw_contrasts
    monkeypatch.setattr(
        instruments, "draw_contrasts", lambda *of: drawn.append(draw(*of)) or drawn[-1]
    )
    (values,) = measure(ScriptedFleet(lambda a, b: 0.0))
    for contrast, kind in zip(drawn[0], ("", "_equal_action", "_equal_return"), strict=True):
        assert values[f"unseen_pairs{kind}"] == np.sum(contrast.same >= 0) > 0
        assert values[f"unseen_pairs{kind}_matched_time"] == np.sum(contrast.matched >= 0)


def test_a_clock_is_at_chance_at_matched_time_and_returns_are_still_recognised():
    rng = np.random.default_rng(3)
    games = [game(rng.random(80) < 0.1, rng.integers(0, 2, 80), 85 * i) for i in range(3)]
    numbers = np.concatenate([g.frames[:, 0, 0] for g in games]).tolist()
    p = instruments.as_played(games)
    time = dict(zip(numbers, p.time, strict=True))
    returns = dict(zip(numbers, p.returns, strict=True))

    def aucs(logit):
        (values,) = instruments.measure(
            ScriptedFleet(logit), None, [games], seeds=[0], agent_steps=0
        )
        kinds = ("", "_equal_action", "_equal_return")
        return [values[f"unseen_auc{kind}_matched_time"] for kind in kinds], values

    clock, values = aucs(lambda a, b: float(abs(time[a] - time[b])))
    assert values["unseen_auc"] > 0.8
    assert np.abs(np.array(clock) - 0.5).max() < 0.05
    perfect, _ = aucs(lambda a, b: float(returns[a] != returns[b]))
    assert perfect == [1.0, 1.0, 1.0]


def test_cosines_are_split_by_equality_of_actions():
    (values,) = measure(ScriptedFleet(None))
    for label in ("positive", "negative"):
        assert values[f"unseen_cosine_{label}_equal_action"] == pytest.approx(0.9)
        assert values[f"unseen_cosine_{label}_different_action"] == pytest.approx(0.1)
    assert not any(name.startswith("unseen_auc_equal") for name in values)
    assert 0.0 < values["unseen_auc_action"] < 1.0


def test_cosines_and_actions_are_those_of_their_label():
    class ActionFleet(ScriptedFleet):
        def compare(self, params, first, second):
            numbers = [pairs.observation[:, :, -1, 0, 0].astype(int) for pairs in (first, second)]
            one, other = (np.vectorize(RETURN_OF.get)(n) for n in numbers)
            differs = first.action != second.action
            cosine = 0.9 - 0.8 * differs - 0.05 * (one != other)
            return types.Comparison(cosine, differs.astype(float))

    (values,) = measure(ActionFleet(None))
    for label, less in (("positive", 0.0), ("negative", 0.05)):
        for kind, cosine in (("equal", 0.9), ("different", 0.1)):
            found = values[f"unseen_cosine_{label}_{kind}_action"]
            assert found == pytest.approx(cosine - less)
    assert values["unseen_auc_action"] == values["unseen_auc"] != 0.5


def test_as_many_pairs_are_compared_as_documented():
    assert toy.PAIRS == 256 and instruments.MOST_BYTES == 8 * 2**20


def test_a_run_s_values_do_not_depend_on_the_other_runs():
    def logit(a, b):
        return float((7 * a + 3 * b) % 11)

    alone, together = ScriptedFleet(logit), ScriptedFleet(logit)
    assert measure(alone)[0] == measure(together, runs=3)[0]
    assert {shape[0] for shape in together.calls} == {3}


def test_games_without_two_equal_actions_have_no_pairs_of_equal_actions():
    """As where actions are drawn; step 0 has the largest action, the last group."""
    actions = np.arange(6)[::-1]
    played = instruments.Played(np.zeros(6, int), np.arange(6), np.zeros(6, int), actions, actions)
    _, equal_action, _ = instruments.draw_contrasts(played, 30, 0.0, np.random.default_rng(0))
    assert np.all(equal_action.same == -1) and np.all(equal_action.different == -1)
