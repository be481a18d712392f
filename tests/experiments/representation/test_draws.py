"""Steps that the study draws, by the rule of segments; discounted returns by hand."""

import numpy as np
import pytest

from experiments.representation import draws
from tests.return_contrast.test_episodes import episode

RNG = np.random.default_rng(0)


def test_discounted_returns_by_hand():
    np.testing.assert_allclose(
        draws.discounted_returns(episode(".+.-"), 0.5), [0.5 - 0.125, 1 - 0.25, -0.5, -1.0]
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
    drawn = draws.draw_contrast(games, size, np.random.default_rng(1))
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
        draws.draw_contrast([episode("++"), episode("-")], 3, RNG)


def test_steps_are_drawn_without_repetition():
    games = [episode("....", recorded=2), episode("...")]
    steps = draws.draw_steps(games, 100, RNG)
    drawn = sorted(zip(steps.episode.tolist(), steps.time.tolist(), strict=True))
    assert drawn == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]
    assert len(draws.draw_steps(games, 3, RNG).time) == 3
