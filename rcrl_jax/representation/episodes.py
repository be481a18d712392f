"""Recorded evaluation episodes, and the state-action pairs drawn from them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rcrl_jax import observations, types
from rcrl_jax.envs.agent_view import AgentStep

# A game that is stuck runs to the frame limit; its first steps are enough.
_MOST_FRAMES = 3000


class Episode(NamedTuple):
    """One whole game."""

    frames: np.ndarray  # [F, 84, 84] uint8, newest frame of each observation; F <= T
    action: np.ndarray  # [T] int32
    reward: np.ndarray  # [T] float32, clipped to [-1, 1], as training would see it


class Recorder:
    """Watches an evaluation and keeps the first game of every environment."""

    def __init__(self, num_games: int) -> None:
        """Keeps nothing yet."""
        self._frames: list[np.ndarray] = []
        self._actions: list[np.ndarray] = []
        self._rewards: list[np.ndarray] = []
        self._lengths = np.zeros(num_games, np.int64)
        self._playing = np.ones(num_games, bool)

    def __call__(self, observation: np.ndarray, actions: np.ndarray, outcome: AgentStep) -> None:
        """See `evaluation.Watcher`."""
        if len(self._frames) < _MOST_FRAMES:
            self._frames.append(observation[:, -1].copy())
        self._actions.append(actions)
        self._rewards.append(np.clip(outcome.reward, -1.0, 1.0))
        self._lengths += self._playing
        self._playing &= ~outcome.finished

    @property
    def episodes(self) -> list[Episode]:
        """The games, in the order of the environments."""
        frames, actions, rewards = map(np.stack, (self._frames, self._actions, self._rewards))
        return [
            Episode(frames[:length, game], actions[:length, game], rewards[:length, game])
            for game, length in enumerate(self._lengths)
        ]


class Steps(NamedTuple):
    """Steps of episodes, by number."""

    episode: np.ndarray  # [N] int64
    time: np.ndarray  # [N] int64


def all_steps(episodes: Sequence[Episode]) -> Steps:
    """Every step whose frame is there, episode by episode."""
    lengths = [len(episode.frames) for episode in episodes]
    return Steps(
        np.repeat(np.arange(len(episodes)), lengths),
        np.concatenate([np.arange(length) for length in lengths]),
    )


def draw_steps(episodes: Sequence[Episode], size: int, rng: np.random.Generator) -> Steps:
    """`size` different steps, or all if there are fewer."""
    steps = all_steps(episodes)
    chosen = rng.permutation(len(steps.time))[:size]
    return Steps(steps.episode[chosen], steps.time[chosen])


def draw_contrast(
    episodes: Sequence[Episode], size: int, rng: np.random.Generator
) -> tuple[Steps, Steps, Steps]:
    """Anchors, positives and negatives, `size` of each.

    Segments are cut as in training: the step with a reward ends its segment and belongs to it.
    A positive is never its own anchor, whose similarity of 1 would say nothing; so anchors are
    drawn among the steps that do not have a segment to themselves. A negative is any step.

    Raises:
      ValueError: no segment has two steps.
    """
    steps = all_steps(episodes)
    segment = np.concatenate(
        [_segments(episode.reward)[: len(episode.frames)] for episode in episodes]
    )
    # Counted within an episode so far; from here on over all episodes.
    opens = (np.diff(steps.episode, prepend=-1) != 0) | (np.diff(segment, prepend=-1) != 0)
    segment = np.cumsum(opens) - 1
    length = np.bincount(segment)
    first = np.concatenate([[0], np.cumsum(length)[:-1]])
    candidates = np.nonzero(length[segment] > 1)[0]
    if not candidates.size:
        raise ValueError("no segment of the recorded episodes has two steps")
    anchor = rng.choice(candidates, size)
    own = segment[anchor]
    positive = first[own] + rng.integers(0, length[own] - 1)
    positive += positive >= anchor
    negative = rng.integers(0, len(segment), size)
    return tuple(Steps(steps.episode[i], steps.time[i]) for i in (anchor, positive, negative))


def _segments(reward: np.ndarray) -> np.ndarray:
    """`[T]`: how many segments closed before each step."""
    return np.cumsum(reward != 0) - (reward != 0)


def discounted_returns(episode: Episode, discount: float) -> np.ndarray:
    """`[T]`: discounted sum of the rewards from each step to the end of the game."""
    returns = np.zeros(len(episode.reward))
    following = 0.0
    for t in reversed(range(len(episode.reward))):
        returns[t] = following = episode.reward[t] + discount * following
    return returns


def pairs_at(
    episodes: Sequence[Episode], steps: Steps, frame_stack: int, layout: observations.Layout
) -> types.Pairs:
    """The state-action pairs at `steps`, for one run.

    Args:
      episodes: recorded games.
      steps: `[N]`.
      frame_stack: C, frames in an observation; zeros before the start of a game.
      layout: of the observations, the network's.
    """
    stacks = np.zeros((len(steps.time), frame_stack, 84, 84), np.uint8)
    for i, (episode, time) in enumerate(zip(*steps, strict=True)):
        start = max(0, time + 1 - frame_stack)
        stacks[i, frame_stack - (time + 1 - start) :] = episodes[episode].frames[start : time + 1]
    action = [episodes[e].action[t] for e, t in zip(*steps, strict=True)]
    return types.Pairs(np.ascontiguousarray(layout.stack(stacks)), np.array(action, np.int32))
