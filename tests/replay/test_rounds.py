"""Windows of rounds of data, against lists made step by step."""

import collections

import numpy as np
import pytest

from rcrl_jax.training import build
from tests.training import toy_simple

RUNS, ROUNDS, LENGTH = 2, 3, 24


@pytest.fixture(scope="module")
def played():
    """The replay after three rounds, and of each run the (round, episode, age) of every slot."""
    config = {"frame_stack": 3, "round_steps": LENGTH, "deterministic.target_frames": 2}
    environment, fleet = build.make_fleet(toy_simple.make_plan("", seeds=(1, 2), overrides=config))
    replay = build.make_replay(fleet, "host")
    rng = np.random.default_rng(0)
    slots, actions = [[] for _ in range(RUNS)], []
    episode, age = np.zeros(RUNS, int), np.zeros(RUNS, int)
    # Games of Catch take 6 steps; that of one run begins later, so that rounds cut it.
    observation = environment.reset()
    for step in range(ROUNDS * LENGTH):
        action = rng.integers(0, 3, RUNS, np.int32)
        actions.append(action)
        outcome = environment.step(action)
        ended = outcome.terminated | outcome.truncated
        cut = outcome.truncated.copy()
        if step % 5 == 4:  # as if a game of the second run had ended
            outcome.terminated[1], ended[1] = ~cut[1], True
        replay.add(
            observation[:, -1], action, outcome.reward, outcome.terminated, cut, outcome.frame
        )
        for run in range(RUNS):
            slots[run].append((step // LENGTH, episode[run], age[run]))
            if cut[run]:
                slots[run].append((step // LENGTH, episode[run], age[run] + 1))
        age = np.where(ended, 0, age + 1)
        episode += ended
        observation = outcome.observation
    return replay, slots, np.array(actions)


def learned(slots):
    """Indices that are not held out, round by round."""
    rounds = [[i for i, slot in enumerate(slots) if slot[0] == r] for r in range(ROUNDS)]
    return [own[: len(own) // 11 * 10] for own in rounds]


def windows(slots, indices, length):
    """First indices of the windows that lie in one episode and in `indices`."""
    return [
        i
        for i in indices
        if i + length - 1 <= indices[-1] and slots[i][1] == slots[i + length - 1][1]
    ]


def drawn(replay, kind, times):
    found = []
    for _ in range(times):
        found.append(replay.sample(1.0, kind).index)
    return np.concatenate(found, axis=1)


def test_windows_of_the_model_are_uniform_over_the_learned_part_of_all_rounds(played):
    replay, slots, _ = played
    found = drawn(replay, 0, 1500)
    for run in range(RUNS):
        valid = [i for own in learned(slots[run]) for i in windows(slots[run], own, 5)]
        counts = collections.Counter(found[run].tolist())
        assert set(counts) == set(valid)
        expected = found.shape[1] / len(valid)
        assert max(abs(n - expected) for n in counts.values()) < 5 * np.sqrt(expected)


def test_rollouts_start_in_episodes_of_the_newest_round_all_alike(played):
    replay, slots, _ = played
    found = np.stack([replay.sample(1.0, 2).index for _ in range(1500)])  # [times, R, 3]
    for run in range(RUNS):
        newest = learned(slots[run])[-1]
        by_episode = collections.defaultdict(list)
        for i in windows(slots[run], newest, 3):
            by_episode[slots[run][i][1]].append(i)
        assert (found[:, run, 0] == min(by_episode[min(by_episode)])).all()
        counts = collections.Counter(found[:, run, 1:].reshape(-1).tolist())
        assert set(counts) == {i for own in by_episode.values() for i in own}
        for own in by_episode.values():
            expected = 3000 / len(by_episode) / len(own)
            assert max(abs(counts[i] - expected) for i in own) < 5 * np.sqrt(expected)


def test_the_newest_window_holds_the_last_steps_whatever_their_episodes(played):
    replay, slots, actions = played
    batch = replay.sample(1.0, 1).batch.transitions
    assert batch.action.shape == (RUNS, 1, 12 + 2)
    np.testing.assert_array_equal(batch.action[:, 0], actions[-14:].T)
    for run in range(RUNS):
        steps = [slot for i, slot in enumerate(slots[run]) if i < len(slots[run])]
        is_cut = steps[-1][2] > 0 and len(steps) > len(actions)
        ages = [slot[2] for slot in (steps[:-1] if is_cut else steps)][-14:]
        np.testing.assert_array_equal(batch.is_first[run, 0], np.array(ages) == 0)


def test_a_round_without_a_window_is_refused(played):
    environment, fleet = build.make_fleet(toy_simple.make_plan(""))
    replay = build.make_replay(fleet, "host")
    frame = np.zeros((1, *fleet.agent.observations.stored.stored_shape), np.uint8)
    for _ in range(24):  # every step ends its game
        zero, yes = np.zeros(1, np.float32), np.ones(1, bool)
        replay.add(frame, np.zeros(1, np.int32), zero, yes, ~yes, frame)
    for kind in (0, 2):
        with pytest.raises(ValueError, match="holds no window of"):
            replay.sample(1.0, kind)
