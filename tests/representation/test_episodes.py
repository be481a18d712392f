"""Recorded games, and pairs drawn from them, by hand."""

import numpy as np
import pytest

from rcrl_jax import observations
from rcrl_jax.envs.agent_view import AgentStep
from rcrl_jax.representation import episodes

RNG = np.random.default_rng(0)


def episode(rewards: str, recorded: int | None = None) -> episodes.Episode:
    """Rewards from letters `.`, `+` and `-`; every frame is random."""
    reward = np.array([{".": 0.0, "+": 1.0, "-": -1.0}[letter] for letter in rewards], np.float32)
    frames = RNG.integers(1, 256, (recorded or len(reward), 84, 84), np.uint8)
    return episodes.Episode(frames, np.arange(len(reward), dtype=np.int32) % 5, reward)


def test_a_recorder_keeps_the_first_game_of_each_environment():
    recorder = episodes.Recorder(2)
    lengths = (3, 5)
    for step in range(5):
        outcome = AgentStep(*[None] * len(AgentStep._fields))._replace(
            reward=np.array([3.0, -0.5], np.float32),
            finished=np.array([step in (2, 4), step == 4]),
        )
        frame = np.full((2, 4, 84, 84), step, np.uint8)
        recorder(frame, np.array([step, 10 + step]), outcome)
    for game, (recorded, length) in enumerate(zip(recorder.episodes, lengths, strict=True)):
        assert recorded.frames[:, 0, 0].tolist() == list(range(length))
        assert recorded.action.tolist() == [10 * game + t for t in range(length)]
        assert recorded.reward.tolist() == [[1.0, -0.5][game]] * length  # clipped


def test_discounted_returns_by_hand():
    np.testing.assert_allclose(
        episodes.discounted_returns(episode(".+.-"), 0.5), [0.5 - 0.125, 1 - 0.25, -0.5, -1.0]
    )


def test_contrast_is_drawn_by_the_rule_of_segments():
    games = [episode("..+....-+."), episode("+...", recorded=3), episode("......")]
    # Segments of two steps or more; the 8th and 9th step of the first game are the last of the
    # long one and one of its own, its 10th is alone too, and so is the second game's first.
    segments = [
        [(0, 0), (0, 1), (0, 2)],
        [(0, t) for t in range(3, 8)],
        [(1, 1), (1, 2)],
        [(2, t) for t in range(6)],
    ]
    size = 20_000
    drawn = episodes.draw_contrast(games, size, np.random.default_rng(1))
    anchor, positive, negative = (list(zip(*steps, strict=True)) for steps in drawn)
    own = {step: set(segment) for segment in segments for step in segment}
    assert set(anchor) == set(own)
    together = set(zip(anchor, positive, strict=True))
    assert together == {(a, p) for a in own for p in own[a] if p != a}
    everything = {(0, t) for t in range(10)} | {(1, t) for t in range(3)}
    assert set(negative) == everything | {(2, t) for t in range(6)}
    # All steps are equally likely as anchors.
    counts = np.unique(anchor, axis=0, return_counts=True)[1]
    assert np.abs(counts / size * len(own) - 1).max() < 0.2


def test_without_a_segment_of_two_steps_there_is_no_positive():
    with pytest.raises(ValueError, match="no segment"):
        episodes.draw_contrast([episode("++"), episode("-")], 3, RNG)


def test_steps_are_drawn_without_repetition():
    games = [episode("....", recorded=2), episode("...")]
    steps = episodes.draw_steps(games, 100, RNG)
    drawn = sorted(zip(steps.episode.tolist(), steps.time.tolist(), strict=True))
    assert drawn == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]
    assert len(episodes.draw_steps(games, 3, RNG).time) == 3


@pytest.mark.parametrize("layout", [observations.PATCHES, observations.FRAMES])
def test_pairs_are_stacks_with_zeros_before_the_start(layout):
    games = [episode("...."), episode("......")]
    steps = episodes.Steps(np.array([0, 1, 1]), np.array([1, 5, 0]))
    pairs = episodes.pairs_at(games, steps, 3, layout)
    zeros = np.zeros((84, 84), np.uint8)
    expected = np.stack(
        [
            [zeros, games[0].frames[0], games[0].frames[1]],
            games[1].frames[3:6],
            [zeros, zeros, games[1].frames[0]],
        ]
    )
    np.testing.assert_array_equal(pairs.observation, layout.stack(expected))
    assert pairs.action.tolist() == [1, 0, 0]
