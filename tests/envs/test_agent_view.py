"""The agent's view of scripted games: stacks, ends, clipping and returns."""

from typing import NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rcrl_jax.envs.agent_view import AgentEnvironment
from rcrl_jax.envs.protocol import EnvironmentProtocol
from tests.envs.scripted import Event, Game, ScriptedEnvironment

FRAME_SHAPE = (2, 2)


def frame_of(row: int, game: int, t: int, shown: int = 0) -> np.ndarray:
    """A frame that no other (environment, game, time) has, and that is not zero."""
    return np.array([[row + 1, game + 1], [t + 1, 255]], np.uint8)


class Expected(NamedTuple):
    """One row of an AgentStep, and of the running returns after it."""

    frame: np.ndarray
    reward: float
    terminated: bool
    truncated: bool
    observation: np.ndarray
    finished: bool
    life_lost: bool
    episode_return: float
    episode_length: int


def reference(row, games, num_steps, protocol):
    """The slow, plain view of one environment: a list of what each step must show."""

    def stacked(frames_of_episode):
        before = np.zeros(FRAME_SHAPE, np.uint8)
        if protocol.stack_start == "first_frame":
            before = frames_of_episode[0]
        padded = [before] * protocol.frame_stack + frames_of_episode
        return np.stack(padded[-protocol.frame_stack :])

    steps = []
    game_number = -1
    while True:
        game_number += 1
        game = games[game_number % len(games)]
        rewards = []
        lives = game.lives
        frames = [frame_of(row, game_number, 0)]  # of the training episode
        for t, event in enumerate(game.events, start=1):
            if len(steps) == num_steps:
                return steps
            rewards.append(event.reward)
            frame = frame_of(row, game_number, t)
            game_over = t == len(game.events) and not event.truncated
            cut = event.truncated or t == protocol.max_episode_steps
            period = protocol.restart_period
            cut = cut or (period is not None and (len(steps) + 1) % period == 0)
            life_lost = 0 < event.lives < lives
            episode_over = protocol.life_loss_ends_episode and life_lost
            lives = event.lives
            if game_over or cut:
                observation = stacked([frame_of(row, game_number + 1, 0)])
            else:
                frames = [frame] if episode_over else [*frames, frame]
                observation = stacked(frames)
            steps.append(
                Expected(
                    frame=frame,
                    reward=(
                        max(-1.0, min(1.0, event.reward)) if protocol.clip_rewards else event.reward
                    ),
                    terminated=game_over or episode_over,
                    truncated=cut and not (game_over or episode_over),
                    observation=observation,
                    finished=game_over or cut,
                    life_lost=life_lost,
                    episode_return=sum(rewards) if game_over or cut else np.nan,
                    episode_length=t if game_over or cut else 0,
                )
            )
            if game_over or cut:
                break


rewards = st.sampled_from([-5.0, -1.0, -0.5, 0.0, 0.0, 0.25, 1.0, 400.0])
events = st.builds(
    Event, reward=rewards, lives=st.integers(0, 3), truncated=st.sampled_from([False] * 9 + [True])
)
games = st.builds(Game, lives=st.integers(0, 3), events=st.lists(events, min_size=1, max_size=8))
scripts = st.lists(st.lists(games, min_size=1, max_size=4), min_size=1, max_size=4)


protocols = st.builds(
    EnvironmentProtocol,
    frame_stack=st.integers(1, 5),
    life_loss_ends_episode=st.booleans(),
    clip_rewards=st.booleans(),
    max_episode_steps=st.integers(1, 9),
    stack_start=st.sampled_from(["zeros", "first_frame"]),
    restart_period=st.none() | st.integers(1, 9),
)


@given(scripts=scripts, protocol=protocols)
@settings(max_examples=60)
def test_view_equals_a_slow_reference(scripts, protocol):
    num_steps, rows = 30, range(len(scripts))
    view = AgentEnvironment(ScriptedEnvironment(scripts, frame_of), protocol)
    expected = [reference(row, games, num_steps, protocol) for row, games in enumerate(scripts)]

    first = view.reset()
    assert first.shape == (len(scripts), protocol.frame_stack, *FRAME_SHAPE)
    np.testing.assert_array_equal(first[:, -1], [frame_of(row, 0, 0) for row in rows])
    before = first[:, -1:] if protocol.stack_start == "first_frame" else 0
    assert (first[:, :-1] == before).all()
    seen = []
    for _ in range(num_steps):
        step = view.step(np.zeros(len(scripts), np.int32))
        seen.append(step._asdict())
    # Compared after all steps, which must not have changed earlier results.
    for name in Expected._fields:
        np.testing.assert_array_equal(
            np.stack([step[name] for step in seen], axis=1),
            np.stack([[getattr(step, name) for step in steps] for steps in expected]),
            err_msg=name,
        )


def make_protocol(**changes):
    settings = dict(
        frame_stack=3, life_loss_ends_episode=True, clip_rewards=True, max_episode_steps=100
    )
    return EnvironmentProtocol(**{**settings, **changes})


def play(games, num_steps, **changes):
    """Steps of one environment: `AgentStep`s without the leading axis."""
    view = AgentEnvironment(ScriptedEnvironment([games], frame_of), make_protocol(**changes))
    view.reset()
    steps = [view.step(np.zeros(1, np.int32)) for _ in range(num_steps)]
    return [type(step)(*(field[0] for field in step)) for step in steps]


def times(observation):
    """The (game, t) that each frame of a stack shows; None where it is zero."""
    return [(f[0, 1] - 1, f[1, 0] - 1) if f.any() else None for f in observation]


class TestByHand:
    """Cases computed by hand."""

    def test_zero_lives_before_game_over_do_not_terminate(self):
        """Q*bert: 1 life left becomes 0, and the game goes on for a while."""
        game = Game(1, [Event(0, 1), Event(0, 0), Event(25, 0), Event(0, 0)])
        steps = play([game], 4)
        assert [bool(s.terminated) for s in steps] == [False, False, False, True]
        assert times(steps[2].observation) == [(0, 1), (0, 2), (0, 3)]
        assert times(steps[3].observation) == [None, None, (1, 0)]
        assert steps[3].episode_return == 25 and steps[3].episode_length == 4
        assert steps[2].reward == 1

    def test_life_loss_ends_the_training_episode_and_not_the_game(self):
        game = Game(3, [Event(2, 3), Event(0, 2), Event(3, 2), Event(0, 2)])
        steps = play([game], 4)
        assert [bool(s.terminated) for s in steps] == [False, True, False, True]
        assert [bool(s.finished) for s in steps] == [False, False, False, True]
        assert times(steps[1].observation) == [None, None, (0, 2)]
        assert times(steps[2].observation) == [None, (0, 2), (0, 3)]
        assert np.isnan(steps[1].episode_return) and steps[1].episode_length == 0
        assert steps[3].episode_return == 5 and steps[3].episode_length == 4

    def test_life_loss_has_no_effect_in_evaluation(self):
        game = Game(3, [Event(0, 3), Event(0, 2), Event(0, 2)])
        steps = play([game], 2, life_loss_ends_episode=False)
        assert not steps[1].terminated
        assert times(steps[1].observation) == [(0, 0), (0, 1), (0, 2)]

    def test_frame_limit_counts_the_whole_game(self):
        game = Game(3, [Event(0, 2), Event(0, 1)] + [Event(0, 1)] * 10)
        steps = play([game], 4, max_episode_steps=4)
        assert [bool(s.finished) for s in steps] == [False, False, False, True]
        assert steps[3].truncated


def test_reset_discards_a_running_game():
    environment = ScriptedEnvironment([[Game(0, [Event(7, 0)] * 10)]], frame_of)
    view = AgentEnvironment(
        environment, make_protocol(frame_stack=2, clip_rewards=False, max_episode_steps=5)
    )
    view.reset()
    for _ in range(4):
        view.step(np.zeros(1, np.int32))
    observation = view.reset()
    assert times(observation[0]) == [None, (1, 0)]
    steps = [view.step(np.zeros(1, np.int32)) for _ in range(5)]
    assert [step.finished[0] for step in steps] == [False] * 4 + [True]
