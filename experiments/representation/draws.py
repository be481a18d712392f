"""Steps of recorded episodes that the study looks at, and their discounted returns."""

from collections.abc import Sequence

import numpy as np
from scipy import signal

from rcrl_jax.return_contrast import instruments
from rcrl_jax.return_contrast.episodes import Episode, Steps, all_steps, segment_numbers


def draw_steps(episodes: Sequence[Episode], size: int, rng: np.random.Generator) -> Steps:
    """`size` different steps, or all if there are fewer."""
    steps = all_steps(episodes)
    chosen = rng.permutation(len(steps.time))[:size]
    return Steps(steps.episode[chosen], steps.time[chosen])


def draw_contrast(
    episodes: Sequence[Episode], size: int, rng: np.random.Generator
) -> tuple[Steps, Steps, Steps]:
    """Anchors, positives and negatives, `size` of each.

    A positive always differs from its anchor, because a pair's similarity to itself is 1. So
    anchors are drawn from segments of two or more steps. A negative is any step.

    Raises:
      ValueError: no segment has two steps.
    """
    steps, segment = all_steps(episodes), segment_numbers(episodes)
    anchor, positive = instruments.sharing_a_group(segment, size, rng)
    if np.any(positive == instruments.NONE):
        raise ValueError("no segment of the recorded episodes has two steps")
    negative = rng.integers(0, len(segment), size)
    return tuple(Steps(steps.episode[i], steps.time[i]) for i in (anchor, positive, negative))


def discounted_returns(episode: Episode, discount: float) -> np.ndarray:
    """`[T]`: discounted sum of the rewards from each step to the end of the episode."""
    return signal.lfilter([1.0], [1.0, -discount], episode.reward[::-1])[::-1]
