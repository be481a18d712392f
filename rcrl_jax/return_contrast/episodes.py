"""Recorded evaluation episodes, and the state-action pairs drawn from them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rcrl_jax import types
from rcrl_jax.envs.agent_view import AgentStep
from rcrl_jax.envs.protocol import EnvironmentProtocol
from rcrl_jax.observations import ObservationFormat, stack_places
from rcrl_jax.return_contrast import segments

# A game that is stuck runs to the frame limit; its first steps are enough.
_MOST_BYTES = 20 * 2**20


class Episode(NamedTuple):
    """One whole game."""

    frames: np.ndarray  # [F, *frame_shape], newest frame of each observation; F <= T
    action: np.ndarray  # [T, *act]
    reward: np.ndarray  # [T] float32, as training would see it
    segment: np.ndarray  # [T] int64, number of the step's segment within the game
    ends: np.ndarray  # [T] bool, the last step of a training episode: game over or a lost life


class Recorder:
    """Watches an evaluation and keeps the first game of every environment."""

    def __init__(
        self,
        num_games: int,
        tolerance: float,
        protocol: EnvironmentProtocol,
        most_bytes: int = _MOST_BYTES,
    ) -> None:
        """Keeps nothing yet.

        Args:
          num_games: environments of the evaluation, G.
          tolerance: of the segments in training, see `segments.SegmentTable`.
          protocol: how the agent sees a game in training.
          most_bytes: the most bytes of frames kept of a game; its later steps have no frame.
        """
        self._protocol = protocol
        self._most_bytes = most_bytes
        self._frames: np.ndarray | None = None  # [most frames, G, *frame_shape]
        self._steps: list[tuple[np.ndarray, ...]] = []
        self._segments = segments.SegmentTable(num_games, 1, tolerance)
        self._lengths = np.zeros(num_games, np.int64)
        self._playing = np.ones(num_games, bool)

    def __call__(
        self, observation: np.ndarray, actions: np.ndarray, outcome: AgentStep, over: np.ndarray
    ) -> None:
        """See `evaluation.Watcher`; games after the first ones are ignored."""
        if not self._playing.any():
            return
        newest, step = observation[:, -1], len(self._steps)
        if self._frames is None:
            # The array takes physical memory only as frames are written.
            most = max(self._most_bytes // newest[0].nbytes, 1)
            self._frames = np.empty((most, *newest.shape), newest.dtype)
        if step < len(self._frames):
            self._frames[step] = newest
        reward, ends = outcome.reward, outcome.finished
        if self._protocol.clip_rewards:
            reward = np.clip(reward, -1.0, 1.0)
        if self._protocol.life_loss_ends_episode:
            ends = ends | outcome.life_lost
        segment = self._segments.add(self._lengths, reward, ends)
        self._steps.append((actions, reward, segment, ends))
        self._lengths += self._playing
        self._playing &= ~over

    @property
    def episodes(self) -> list[Episode]:
        """The games, in the order of the environments."""
        steps = [np.stack(column) for column in zip(*self._steps, strict=True)]
        return [
            Episode(self._frames[:length, game], *(x[:length, game] for x in steps))
            for game, length in enumerate(self._lengths)
        ]


class Steps(NamedTuple):
    """N steps: the index of each one's episode, and its step number within that episode."""

    episode: np.ndarray  # [N] int64
    time: np.ndarray  # [N] int64


def all_steps(episodes: Sequence[Episode]) -> Steps:
    """Every step whose frame was kept, episode by episode."""
    lengths = [len(episode.frames) for episode in episodes]
    return Steps(
        np.repeat(np.arange(len(episodes)), lengths),
        np.concatenate([np.arange(length) for length in lengths]),
    )


def segment_numbers(episodes: Sequence[Episode]) -> np.ndarray:
    """`[N]`: the number of each step's segment; numbers differ between games."""
    opens = [
        np.diff(episode.segment[: len(episode.frames)], prepend=-1) != 0 for episode in episodes
    ]
    return np.cumsum(np.concatenate(opens)) - 1


def undiscounted_returns(episode: Episode) -> np.ndarray:
    """`[T]`: sum of the rewards from each step to the end of its training episode."""
    returns = np.zeros(len(episode.reward))
    following = 0.0
    for t in reversed(range(len(episode.reward))):
        following = float(episode.reward[t]) + (0.0 if episode.ends[t] else following)
        returns[t] = following
    return returns


def pairs_at(
    episodes: Sequence[Episode], steps: Steps, observations: ObservationFormat
) -> types.Pairs:
    """The state-action pairs at `steps`, for one run.

    Args:
      episodes: recorded games.
      steps: `[N]`.
      observations: format of the result; frames before the start of a game are zeros.
    """
    first, frame_stack = episodes[0], observations.frame_stack
    stacks = np.zeros((len(steps.time), frame_stack, *first.frames.shape[1:]), first.frames.dtype)
    back, exists = stack_places(steps.time, frame_stack)
    for i, (episode, time) in enumerate(zip(*steps, strict=True)):
        stacks[i, exists[i]] = episodes[episode].frames[time - back[exists[i]]]
    action = np.stack([episodes[e].action[t] for e, t in zip(*steps, strict=True)])
    observation = np.ascontiguousarray(observations.network.stack(stacks))
    if observations.with_actions:
        led_by = np.zeros((*exists.shape, *action.shape[1:]), action.dtype)
        for i, (episode, time) in enumerate(zip(*steps, strict=True)):
            led = time > back  # frames of the episode, except its first
            led_by[i, led] = episodes[episode].action[time - back[led] - 1]
        observation = types.Context(observation, led_by, exists)
    return types.Pairs(observation, action)
