"""Recorded games, and pairs drawn from them, by hand."""

import numpy as np
import pytest

from rcrl_jax import observations
from rcrl_jax.envs.agent_view import AgentStep
from rcrl_jax.envs.protocol import EnvironmentProtocol
from rcrl_jax.return_contrast import episodes, segments

RNG = np.random.default_rng(0)
ATARI = EnvironmentProtocol(
    frame_stack=4, life_loss_ends_episode=True, clip_rewards=True, max_episode_steps=100
)
AT_REWARD = segments.closes_at_reward


def episode(rewards: str, recorded: int | None = None) -> episodes.Episode:
    """Rewards from letters `.`, `+` and `-`, a lost life after `|`; every frame is random."""
    letters = rewards.replace("|", "")
    reward = np.array([{".": 0.0, "+": 1.0, "-": -1.0}[letter] for letter in letters], np.float32)
    frames = RNG.integers(1, 256, (recorded or len(reward), 84, 84), np.uint8)
    ends = np.zeros(len(reward), bool)
    ends[[len(life) - 1 for life in _prefixes(rewards)]] = True
    closes = ends | (reward != 0)
    action = np.arange(len(reward), dtype=np.int32) % 5
    return episodes.Episode(frames, action, reward, np.cumsum(closes) - closes, ends)


def _prefixes(rewards: str) -> list[str]:
    """All lives up to the first, the second, ... one."""
    lives = rewards.split("|")
    return ["".join(lives[: i + 1]) for i in range(len(lives))]


def test_a_recorder_keeps_the_first_game_of_each_environment():
    recorder = episodes.Recorder(2, AT_REWARD, ATARI)
    lengths = (3, 5)
    for step in range(5):
        outcome = AgentStep(*[None] * len(AgentStep._fields))._replace(
            reward=np.array([3.0, -0.5], np.float32),
            finished=np.array([step in (2, 4), step == 4]),
            life_lost=np.array([False, step == 1]),
        )
        frame = np.full((2, 4, 84, 84), step, np.uint8)
        recorder(frame, np.array([step, 10 + step]), outcome)
    for game, (recorded, length) in enumerate(zip(recorder.episodes, lengths, strict=True)):
        assert recorded.frames[:, 0, 0].tolist() == list(range(length))
        assert recorded.action.tolist() == [10 * game + t for t in range(length)]
        assert recorded.reward.tolist() == [[1.0, -0.5][game]] * length  # clipped
        assert recorded.segment.tolist() == list(range(length))
    ends = [recorded.ends.tolist() for recorded in recorder.episodes]
    assert ends == [[False, False, True], [False, True, False, False, True]]


def test_a_recorder_cuts_segments_as_training_would():
    rewards, lost, over = [0, 2, 0, 0, 0.5, 0], [2], [5]

    def segments_of(closes_segment, protocol):
        recorder = episodes.Recorder(1, closes_segment, protocol)
        for step, reward in enumerate(rewards):
            outcome = AgentStep(*[None] * len(AgentStep._fields))._replace(
                reward=np.array([reward], np.float32),
                finished=np.array([step in over]),
                life_lost=np.array([step in lost]),
            )
            recorder(np.zeros((1, 4, 84, 84), np.uint8), np.zeros(1, np.int32), outcome)
        return recorder.episodes[0]

    atari = segments_of(AT_REWARD, ATARI)
    assert atari.segment.tolist() == [0, 0, 1, 2, 2, 3]
    assert atari.reward.tolist() == [0, 1, 0, 0, 0.5, 0]
    control = segments_of(segments.closes_above(2.1), ATARI.for_evaluation())
    assert control.segment.tolist() == [0, 0, 0, 0, 0, 1]
    assert control.reward.tolist() == rewards
    assert control.ends.tolist() == [False] * 5 + [True]


def test_a_recorder_keeps_no_more_frames_than_it_may_and_ignores_later_games():
    recorder = episodes.Recorder(1, AT_REWARD, ATARI, most_bytes=2 * 84 * 84)
    for step in range(6):
        outcome = AgentStep(*[None] * len(AgentStep._fields))._replace(
            reward=np.zeros(1, np.float32),
            finished=np.array([step == 3]),
            life_lost=np.zeros(1, bool),
        )
        recorder(np.full((1, 4, 84, 84), step, np.uint8), np.array([step]), outcome)
    (kept,) = recorder.episodes
    assert kept.frames[:, 0, 0].tolist() == [0, 1]
    assert kept.action.tolist() == [0, 1, 2, 3]


def test_undiscounted_returns_end_with_the_life():
    np.testing.assert_array_equal(
        episodes.undiscounted_returns(episode(".+.+|-.|+")), [2, 2, 1, 1, -1, 0, 1]
    )


def test_segments_are_numbered_over_all_games_where_frames_are_recorded():
    games = [episode("..+.|..", recorded=6), episode(".++")]
    assert episodes.segment_numbers(games).tolist() == [0, 0, 0, 1, 2, 2, 3, 3, 4]


@pytest.mark.parametrize("layout", [observations.PATCHES, observations.FRAMES])
def test_pairs_are_stacks_with_zeros_before_the_start(layout):
    games = [episode("...."), episode("......")]
    steps = episodes.Steps(np.array([0, 1, 1]), np.array([1, 5, 0]))
    formats = observations.ObservationFormat(3, layout, layout, layout, layout)
    pairs = episodes.pairs_at(games, steps, formats)
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
