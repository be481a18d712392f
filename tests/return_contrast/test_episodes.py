"""Recorded games, and pairs drawn from them, by hand."""

import numpy as np
import pytest

from rcrl_jax import observations
from rcrl_jax.envs.agent_view import AgentStep
from rcrl_jax.envs.protocol import EnvironmentProtocol
from rcrl_jax.return_contrast import episodes

RNG = np.random.default_rng(0)
ATARI = EnvironmentProtocol(
    frame_stack=4, life_loss_ends_episode=True, clip_rewards=True, max_episode_steps=100
)


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


def record(recorder: episodes.Recorder, rewards, over, lost) -> list[episodes.Episode]:
    """Records steps `[T, R]`; the frames of step t hold t, its actions are t, 10 + t, ..."""
    for t, reward in enumerate(np.array(rewards, np.float32)):
        outcome = AgentStep(*[None] * len(AgentStep._fields))._replace(
            reward=reward, finished=np.array(over[t]), life_lost=np.array(lost[t])
        )
        frame = np.full((len(reward), 4, 84, 84), t, np.uint8)
        recorder(frame, 10 * np.arange(len(reward)) + t, outcome, outcome.finished)
    return recorder.episodes


def at(steps, length: int = 6) -> list[list[bool]]:
    """True at some steps of one environment, `[T, 1]`."""
    return [[t in steps] for t in range(length)]


def test_a_recorder_keeps_the_first_game_of_each_environment():
    over = [[t in (2, 4), t == 4] for t in range(5)]
    lost = [[False, t == 1] for t in range(5)]
    recorded = record(episodes.Recorder(2, 0.0, ATARI), [[3.0, -0.5]] * 5, over, lost)
    for game, (own, length) in enumerate(zip(recorded, (3, 5), strict=True)):
        assert own.frames[:, 0, 0].tolist() == list(range(length))
        assert own.action.tolist() == [10 * game + t for t in range(length)]
        assert own.reward.tolist() == [[1.0, -0.5][game]] * length  # clipped
        assert own.segment.tolist() == list(range(length))
    ends = [own.ends.tolist() for own in recorded]
    assert ends == [[False, False, True], [False, True, False, False, True]]


def test_a_recorder_cuts_segments_as_training_would():
    rewards = [0, 2, 0, 0, 0.5, 0]

    def recorded(tolerance, protocol):
        recorder = episodes.Recorder(1, tolerance, protocol)
        return record(recorder, [[reward] for reward in rewards], at([5]), at([2]))[0]

    atari = recorded(0.0, ATARI)
    assert atari.segment.tolist() == [0, 0, 1, 2, 2, 3]
    assert atari.reward.tolist() == [0, 1, 0, 0, 0.5, 0]
    control = recorded(2.1, ATARI.for_evaluation())
    assert control.segment.tolist() == [0, 0, 0, 0, 0, 1]
    assert control.reward.tolist() == rewards
    assert control.ends.tolist() == [False] * 5 + [True]


def test_a_recorder_keeps_no_more_frames_than_it_may_and_ignores_later_games():
    recorder = episodes.Recorder(1, 0.0, ATARI, most_bytes=2 * 84 * 84)
    (kept,) = record(recorder, [[0.0]] * 6, at([3]), at([]))
    assert kept.frames[:, 0, 0].tolist() == [0, 1]
    assert kept.action.tolist() == [0, 1, 2, 3]


def test_undiscounted_returns_end_with_the_life():
    np.testing.assert_array_equal(
        episodes.undiscounted_returns(episode(".+.+|-.|+")), [2, 2, 1, 1, -1, 0, 1]
    )


def test_undiscounted_returns_do_not_depend_on_the_order_of_rewards():
    """Instruments tell equal returns from different ones, so sums must not round."""
    rewards = np.float32([0.1] * 7 + [1.0])
    made = episode("." * 8)
    first, second = (
        episodes.undiscounted_returns(made._replace(reward=own))[0]
        for own in (rewards, rewards[::-1])
    )
    assert first == second == rewards.astype(np.float64).sum()


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
