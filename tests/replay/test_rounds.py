"""Windows of rounds of data, against lists made step by step."""

import collections
from typing import NamedTuple

import jax
import numpy as np
import pytest

from rcrl_jax.training import build
from tests.training import toy_simple

RUNS, ROUNDS = 2, 3
LENGTH = 28  # steps of a round; a game of Catch takes 6, so that the end of a round cuts one


class Slot(NamedTuple):
    """What one slot should hold."""

    round: int
    episode: int
    age: int
    frame: np.ndarray
    action: int = 0  # a final frame has none
    reward: float = 0.0
    is_final: bool = True


@pytest.fixture(scope="module")
def played():
    """The replay after three rounds, and the slots of each run."""
    config = {
        "frame_stack": 3,
        "round_steps": LENGTH,
        "real_rollout": LENGTH // 2,
        "deterministic.target_frames": 2,
    }
    environment, fleet = build.make_fleet(toy_simple.make_plan("", seeds=(1, 2), overrides=config))
    replay = build.make_replay(fleet, "host")
    rng = np.random.default_rng(0)
    slots = [[] for _ in range(RUNS)]
    episode, age, cuts = np.zeros(RUNS, int), np.zeros(RUNS, int), 0
    observation = environment.reset()
    for step in range(ROUNDS * LENGTH):
        action = rng.integers(0, 3, RUNS, np.int32)
        outcome = environment.step(action)
        cuts += outcome.truncated.sum()
        terminated = outcome.terminated.copy()
        if step % 5 == 4:  # as if a game of the second run had ended
            terminated[1] = ~outcome.truncated[1]
        ended = terminated | outcome.truncated
        replay.add(
            observation[:, -1],
            action,
            outcome.reward,
            terminated,
            outcome.truncated,
            outcome.frame,
        )
        for run in range(RUNS):
            number = step // LENGTH
            slots[run].append(
                Slot(
                    number,
                    episode[run],
                    age[run],
                    observation[run, -1],
                    action[run],
                    outcome.reward[run],
                    is_final=False,
                )  # fmt: skip
            )
            if ended[run]:
                slots[run].append(Slot(number, episode[run], age[run] + 1, outcome.frame[run]))
        age = np.where(ended, 0, age + 1)
        episode += ended
        observation = outcome.observation
    assert cuts == ROUNDS * RUNS
    return replay, slots


def learned(slots):
    """Indices that are not held out, round by round."""
    rounds = [[i for i, slot in enumerate(slots) if slot.round == r] for r in range(ROUNDS)]
    return [own[: len(own) // 11 * 10] for own in rounds]


def windows(slots, indices, length):
    """First indices of the windows that lie in one episode and in `indices`."""
    return [
        i
        for i in indices
        if i + length - 1 <= indices[-1] and slots[i].episode == slots[i + length - 1].episode
    ]


def drawn(replay, kind, times):
    found = []
    for _ in range(times):
        found.append(replay.sample(1.0, kind).index)
    return np.concatenate(found, axis=1)


def test_windows_of_the_model_are_uniform_over_the_learned_part_of_all_rounds(played):
    replay, slots = played
    found = drawn(replay, 0, 1500)
    for run in range(RUNS):
        # Games of Catch are shorter than the replay has room for: the oldest slots are gone.
        oldest = len(slots[run]) - replay.settings.capacity
        assert oldest > 0
        valid = [
            i for own in learned(slots[run]) for i in windows(slots[run], own, 5) if i >= oldest
        ]
        counts = collections.Counter(found[run].tolist())
        assert set(counts) == set(valid)
        expected = found.shape[1] / len(valid)
        assert max(abs(n - expected) for n in counts.values()) < 5 * np.sqrt(expected)


def test_rollouts_start_in_episodes_of_the_newest_round_all_alike(played):
    replay, slots = played
    found = np.stack([replay.sample(1.0, 2).index for _ in range(1500)])  # [times, R, 3]
    for run in range(RUNS):
        newest = learned(slots[run])[-1]
        by_episode = collections.defaultdict(list)
        for i in windows(slots[run], newest, 3):
            by_episode[slots[run][i].episode].append(i)
        assert (found[:, run, 0] == min(by_episode[min(by_episode)])).all()
        counts = collections.Counter(found[:, run, 1:].reshape(-1).tolist())
        assert set(counts) == {i for own in by_episode.values() for i in own}
        for own in by_episode.values():
            expected = 3000 / len(by_episode) / len(own)
            assert max(abs(counts[i] - expected) for i in own) < 5 * np.sqrt(expected)


def test_the_newest_window_holds_the_last_steps_whatever_their_episodes(played):
    replay, slots = played
    windows = replay.sample(1.0, 1).batch.transitions
    length = LENGTH // 2 + 2
    for run in range(RUNS):
        steps = [slot for slot in slots[run] if not slot.is_final][-length:]
        assert sum(slot.age == 0 for slot in steps) > 1
        check(windows, run, 0, steps)


def test_windows_of_the_model_may_end_in_the_frame_after_a_game(played):
    replay, slots = played
    finals = 0
    for _ in range(20):
        sample = replay.sample(1.0, 0)
        for (run, number), index in np.ndenumerate(sample.index):
            window = slots[run][index : index + 5]
            check(sample.batch.transitions, run, number, window)
            assert not any(slot.is_final for slot in window[:-1])
            finals += window[-1].is_final
    assert 0 < finals < 20 * sample.index.size


def check(windows, run, number, slots):
    """A window against the slots that it should hold."""
    found = jax.tree.map(lambda x: x[run, number], windows)
    np.testing.assert_array_equal(found.observation, [slot.frame for slot in slots])
    np.testing.assert_array_equal(found.action, [slot.action for slot in slots])
    np.testing.assert_array_equal(found.reward, np.float32([slot.reward for slot in slots]))
    np.testing.assert_array_equal(found.is_first, [slot.age == 0 for slot in slots])


@pytest.mark.parametrize(
    "steps, ends",
    [
        (24, True),  # every step ends its game, whose final frame follows
        (23, False),  # the first round has one step more
    ],
)
def test_a_replay_without_a_window_of_a_round_says_so(steps, ends):
    _, fleet = build.make_fleet(toy_simple.make_plan("", overrides={"frame_stack": 3}))
    replay = build.make_replay(fleet, "host")
    frame = np.zeros((1, *fleet.agent.observations.stored.stored_shape), np.uint8)
    for _ in range(steps):
        zero, no = np.zeros(1, np.float32), np.zeros(1, bool)
        replay.add(frame, np.zeros(1, np.int32), zero, np.array([ends]), no, frame)
    for kind in (0, 2):
        with pytest.raises(ValueError, match="holds no window of"):
            replay.sample(1.0, kind)
