"""Scores are the raw returns of whole first games, in separate environments."""

import numpy as np
import pytest

from rcrl_jax import types
from rcrl_jax.agents.make_agent import make_agent
from rcrl_jax.envs.protocol import discrete_spec
from rcrl_jax.training import evaluation
from tests.envs.scripted import Event, Game, ScriptedEnvironment
from tests.training import toy

LIMIT = 8
AGENT = make_agent(
    toy.make_config("erainbow", max_episode_steps=LIMIT, frame_stack=3), discrete_spec((84, 84), 3)
)


def scripted(games: list[list[list[tuple[float, int]]]]) -> ScriptedEnvironment:
    """Games that are lists of (reward, lives after it), with three lives at first.

    The frames of each environment are filled with the numbers 1, 2, 3, ... in their order.
    """
    scripts = [[Game(3, [Event(*event) for event in game]) for game in own] for own in games]
    return ScriptedEnvironment(scripts, lambda *place: np.full((84, 84), place[-1], np.uint8))


class Spy:
    """Replaces a fleet and records the arguments of calls."""

    agent = AGENT

    def __init__(self, seeds):
        self.seeds, self.num_runs = seeds, len(seeds)
        self.calls, self.memories, self.players = [], [], []

    def act(self, params, frames, memory, *counters, policy_name="training"):
        self.calls.append((params, frames, counters, policy_name))
        self.memories.append(memory)
        self.players.append(self.seeds)
        games = frames.shape[:2]
        return np.zeros(games, np.int32), types.Memory(memory.state + 1, np.zeros(games, bool))

    def init_memory(self, number):
        return types.Memory(0, np.ones((self.num_runs, number), bool))

    def part(self, rows, tree):
        other = Spy([self.seeds[row] for row in rows])
        other.calls, other.memories, other.players = self.calls, self.memories, self.players
        return other, tree


ENDLESS = [[(1.0, 3)] * 20]
GAMES = [
    # A life is lost on the way; the next game would be worth 1000.
    [[(5.0, 3), (0.0, 2), (-3.0, 0)], [(1000.0, 3)] * 20],
    ENDLESS,
    [[(-7.0, 3)], [(1000.0, 3), (1000.0, 0)], [(1000.0, 3)] * 20],
    # Ends by itself in the very step of the limit: not cut.
    [[(0.5, 3)] * (LIMIT - 1) + [(100.0, 0)], [(1000.0, 3)] * 20],
]


def _evaluate(games=GAMES, seeds=(4, 9), film=0, **options):
    spy, made = Spy(seeds), []

    def make_environment(environment_seeds):
        made.append((environment_seeds, scripted(games)))
        return made[-1][1]

    def call():
        numbers = range(len(games) // len(seeds))
        played = evaluation.Games(make_environment, 70, numbers, film=film)
        return evaluation.evaluate("parameters", spy, played, **options)

    return call, spy, made


def test_raw_return_of_the_first_game_of_each_environment():
    call, spy, made = _evaluate()
    result = call()
    np.testing.assert_array_equal(result.returns, [[2.0, LIMIT], [-7.0, 0.5 * 7 + 100.0]])
    np.testing.assert_array_equal(result.cut, [1, 0])
    assert result.films == ()
    ((environment_seeds, environment),) = made
    np.testing.assert_array_equal(environment_seeds, evaluation.evaluation_seeds((4, 9), 70, 2))
    assert environment.is_closed
    assert len(spy.calls) == LIMIT


def test_evaluation_stops_when_every_first_game_is_over():
    retired = []
    call, spy, made = _evaluate(
        [GAMES[0], GAMES[2]], before_step=lambda: retired.append(made[0][1].retired)
    )
    np.testing.assert_array_equal(call().returns, [[2.0], [-7.0]])
    assert len(spy.calls) == 3
    assert retired == [None, [False, True], [False, True]]  # the second game ends at once


def test_the_policy_is_greedy_and_sees_stacks_that_a_lost_life_does_not_cut():
    call, spy, _ = _evaluate()
    call()
    assert all(params == "parameters" and name == "evaluation" for params, _, _, name in spy.calls)
    assert [counters for _, _, counters, _ in spy.calls] == [(70, 0, t) for t in range(LIMIT)]
    # Frames 1, 2 and 3 of the first game, a life lost at 3; then game over and 5, a new game's.
    seen = [_frame_numbers(frames)[0, 0] for _, frames, _, _ in spy.calls]
    assert seen[:5] == [[0, 0, 1], [0, 1, 2], [1, 2, 3], [0, 0, 5], [0, 5, 6]]
    # Run by run: the second run's first game is the third environment's.
    assert _frame_numbers(spy.calls[1][1])[1, 0] == [0, 0, 3]


def test_an_agent_remembers_from_step_to_step_until_its_game_ends():
    call, spy, _ = _evaluate()
    call()
    first, *later = spy.memories
    assert first.is_first.all()
    assert [memory.state for memory in spy.memories] == list(range(LIMIT))
    # The first game ends in the third step, after a lost life; the third one in the first step, and
    # the game that follows it in the third.
    is_firsts = [memory.is_first.tolist() for memory in later[:3]]
    assert is_firsts == [
        [[False, False], [True, False]], [[False, False]] * 2, [[True, False], [True, False]]
    ]  # fmt: skip


def test_runs_whose_games_are_over_act_no_more_once_they_are_half_of_the_fleet():
    lengths = [1, LIMIT, 2, 1, 3]
    games = [[[(1.0, 3)] * (n - 1) + [(1.0, 0)], *ENDLESS] for n in lengths]
    call, spy, _ = _evaluate(games, seeds := (10, 11, 12, 13, 14))
    result = call()
    assert result.returns[:, 0].tolist() == lengths and result.cut.tolist() == [0] * 5
    assert spy.players == [seeds, [11, 12, 14], [11, 14]] + [[11]] * (LIMIT - 3)
    # Frames are those of the runs that act: the last run's fourth, a new game's, is never seen.
    newest = [frames[:, 0, -1, 0, 0].tolist() for _, frames, *_ in spy.calls]
    assert newest[:4] == [[1] * 5, [2, 2, 2], [3, 3], [4]]
    # Nobody forgets: a memory is is_firsted in its own row when its game ends.
    is_firsts = [memory.is_first[:, 0].tolist() for memory in spy.memories[1:3]]
    assert is_firsts == [[False] * 3, [False] * 2]


def _frame_numbers(frames: np.ndarray) -> np.ndarray:
    """`[R, E]` lists of the numbers that the frames of each stack are filled with."""
    assert frames.shape == (2, 2, 3, 84, 84)
    numbers = np.empty((2, 2), object)
    for place in np.ndindex(2, 2):
        assert all(len(np.unique(frame)) == 1 for frame in frames[place])
        numbers[place] = [int(frame.flat[0]) for frame in frames[place]]
    return numbers


def test_each_filmed_run_has_the_film_of_its_own_first_game():
    """From its first to its final frame, or to the limit."""
    games = [GAMES[0], ENDLESS, GAMES[2], ENDLESS, ENDLESS, GAMES[0]]
    call, _, _ = _evaluate(games, (4, 9, 1), film=3)
    result = call()
    # The number of frames tells the games apart.
    films = [np.stack(list(film)) for film in result.films]
    assert all(film.shape[1:] == (84, 84) and film.dtype == np.uint8 for film in films)
    expected = [[1, 2, 3, 4], [1, 2], list(range(1, LIMIT + 2))]
    assert [film[:, 0, 0].tolist() for film in films] == expected
    assert result.returns[:, 0].tolist() == [2.0, -7.0, LIMIT]


def test_an_exception_before_a_step_ends_evaluation_and_closes_the_environments():
    class Stop(Exception):
        pass

    def before_step():
        if len(spy.calls) == 3:
            raise Stop

    call, spy, made = _evaluate(before_step=before_step)
    with pytest.raises(Stop):
        call()
    assert len(spy.calls) == 3
    assert made[0][1].is_closed


def test_environment_seeds_differ_between_training_evaluations_runs_and_games():
    runs = range(12)
    everything = [
        evaluation.training_seeds(runs),
        *(evaluation.evaluation_seeds(runs, steps, 10) for steps in (0, 1, 10_000, 100_000)),
    ]
    assert [seeds.shape for seeds in everything] == [(12, 1)] + [(12, 10)] * 4
    flat = np.concatenate([seeds.ravel() for seeds in everything])
    assert len(np.unique(flat)) == flat.size
    assert flat.dtype == np.int32 and flat.min() >= 0


def test_later_games_can_be_played_alone():
    """Games 20 to 39 have the seeds and counters that they have among games 0 to 39."""

    def play(first, episodes):
        spy, made = Spy(seeds=(4,)), []

        def make_environment(seeds):
            made.append(seeds)
            return scripted([ENDLESS] * seeds.size)

        numbers = range(first, first + episodes)
        evaluation.evaluate("parameters", spy, evaluation.Games(make_environment, 70, numbers))
        return np.concatenate(made, axis=1), [counters for _, _, counters, _ in spy.calls]

    whole, early, late = play(0, 40), play(0, 20), play(20, 20)
    np.testing.assert_array_equal(whole[0], evaluation.evaluation_seeds((4,), 70, 40))
    np.testing.assert_array_equal(whole[0], np.concatenate([early[0], late[0]], axis=1))
    assert whole[1] == early[1] + late[1]
