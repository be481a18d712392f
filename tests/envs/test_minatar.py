"""MinAtar: its rules against the canonical package, its frames, actions and randomness."""

import hashlib

import numpy as np
import pytest

from rcrl_jax import counter_random
from rcrl_jax.agents.rainbow import settings as rainbow_training
from rcrl_jax.config.presets import MINATAR_PRESETS
from rcrl_jax.envs import minatar
from rcrl_jax.envs.agent_view import AgentEnvironment
from rcrl_jax.envs.minatar import MINATAR_GAMES, make_minatar
from rcrl_jax.envs.minatar_games import DOWN, FIRE, GAMES, LEFT, NOOP, RIGHT, UP

CANONICAL = {
    "Asterix": "asterix",
    "Breakout": "breakout",
    "Freeway": "freeway",
    "Seaquest": "seaquest",
    "SpaceInvaders": "space_invaders",
}


class Drawn:
    """Stands for a generator of the canonical package: hands out numbers that are given to it."""

    def __init__(self):
        self.numbers = []

    def _next(self, size):
        drawn, self.numbers = self.numbers[:size], self.numbers[size:]
        return np.array(drawn)

    def rand(self, size=None):
        return self._next(1)[0] if size is None else self._next(size)

    def randint(self, low, high=None, size=None):
        low, high = (0, low) if high is None else (low, high)
        drawn = low + (self._next(size or 1) * (high - low)).astype(int)
        return drawn[0] if size is None else drawn


class Canonical:
    """A game of the canonical package, under the random numbers that ours draws."""

    def __init__(self, name, seed, sticky):
        package = pytest.importorskip("minatar")
        self.game = package.Environment(CANONICAL[name], sticky_action_prob=sticky)
        self._of_agent, self._of_game = Drawn(), Drawn()
        self.game.random, self.game.env.random = self._of_agent, self._of_game
        self._name, self._seed, self._started, self._steps = name, seed, 0, 0

    def _uniform(self, stream, counter, size):
        return list(counter_random.uniform([self._seed], stream, [counter], size)[0])

    def reset(self):
        draws = GAMES[self._name].draws
        self._of_game.numbers = self._uniform(minatar._START, self._started, draws)
        self._started += 1
        self.game.reset()
        return self.game.state()

    def step(self, action):
        draws = self._uniform(minatar._STEP, self._steps, GAMES[self._name].draws)
        # The package draws for an enemy and for a diver only where one is due; ours always does.
        if self._name == "Seaquest" and self.game.env.e_spawn_timer != 0:
            draws = draws[3:]
        self._of_game.numbers = draws
        self._of_agent.numbers = self._uniform(minatar._STICKY, self._steps, 1)
        self._steps += 1
        reward, over = self.game.act(action)
        return self.game.state(), reward, over


@pytest.mark.slow
@pytest.mark.parametrize("lives_on", [False, True])
@pytest.mark.parametrize("name", MINATAR_GAMES)
def test_every_step_equals_the_canonical_package(name, lives_on):
    """10,000 random steps; with `lives_on` games go on after their end, to the last difficulty."""
    seed = 7 + lives_on
    theirs, ours = Canonical(name, seed, 0.1), make_minatar([name], [seed], minimal_actions=False)
    rng, returned, ends = np.random.default_rng(seed), 0.0, 0
    np.testing.assert_array_equal(ours.reset().frame[0], theirs.reset())
    for t in range(10_000):
        action = rng.integers(6)
        if name == "Breakout" and lives_on:  # the ball must not leave the board
            game, board = theirs.game.env, ours._kinds[0][0]
            game.pos = board.paddle[0] = game.ball_x
        frame, reward, over = theirs.step(action)
        step = ours.step(np.array([action]))
        np.testing.assert_array_equal(step.frame[0], frame, err_msg=f"step {t}")
        assert (step.reward[0], step.terminated[0]) == (reward, over), t
        returned, ends = returned + reward, ends + over
        if over and lives_on and name != "Breakout":
            theirs.game.env.terminal = False
        elif over:
            np.testing.assert_array_equal(ours.reset(step.terminated).frame[0], theirs.reset())
    assert ends > 1 and (returned > 0 or name == "Freeway")


@pytest.mark.parametrize(
    "name, digest",
    [
        ("Asterix", "730c2908ce5a637f"),
        ("Breakout", "1cdf46e0e11a6a86"),
        ("Freeway", "d4aa4931836a566d"),
        ("Seaquest", "7b3ada80cea21c92"),
        ("SpaceInvaders", "d66114621f9dcd29"),
    ],
)
def test_games_are_those_that_were_compared_with_the_canonical_package(name, digest):
    """Where another digest is meant: raise `minatar._RULES`."""
    environment = make_minatar([name] * 4, range(4), minimal_actions=False)
    rng, found, step = np.random.default_rng(0), hashlib.sha256(), environment.reset()
    for _ in range(1500):
        step = environment.step(rng.integers(0, 6, 4))
        found.update(step.frame.tobytes() + step.reward.tobytes() + step.terminated.tobytes())
        if step.terminated.any():
            found.update(environment.reset(step.terminated).frame.tobytes())
    assert found.hexdigest()[:16] == digest


def play(games, seeds, steps=300, **options):
    """Frames `[steps, R, ...]` and rewards `[steps, R]`; actions depend on seed and step alone."""
    environment = make_minatar(games, seeds, **options)
    environment.reset()
    frames, rewards = [], []
    for t in range(steps):
        drawn = counter_random.uniform(np.asarray(seeds), 9, np.full(len(seeds), t), 1)[:, 0]
        step = environment.step((drawn * environment.num_valid_actions).astype(np.int32))
        frames.append(step.frame)
        rewards.append(step.reward)
        if step.terminated.any():
            environment.reset(step.terminated)
    return np.array(frames), np.array(rewards)


def test_a_game_is_a_function_of_its_seed_and_actions_whatever_its_fleet():
    games, seeds = [*MINATAR_GAMES, "Breakout", "Seaquest"], [5, 6, 7, 8, 9, 5, 3]
    frames, rewards = play(games, seeds)
    for row, (game, seed) in enumerate(zip(games, seeds, strict=True)):
        alone, own_rewards = play([game], [seed])
        np.testing.assert_array_equal(alone[:, 0], frames[:, row, ..., : alone.shape[-1]])
        np.testing.assert_array_equal(own_rewards[:, 0], rewards[:, row])
    again, _ = play(games, seeds)
    np.testing.assert_array_equal(again, frames)
    assert (play(["Breakout"], [6])[0] != play(["Breakout"], [5])[0]).any()


def test_frames_are_bits_padded_with_planes_of_zeros_to_the_fleet():
    games = ("Breakout", "Freeway")
    frames, _ = play(games, (0, 1))
    assert frames.dtype == np.uint8 and frames.shape[1:] == (2, 10, 10, 7)
    assert set(np.unique(frames)) == {0, 1}
    assert not frames[:, 0, ..., 4:].any() and frames[:, 0, ..., :4].any(axis=(0, 1, 2)).all()
    assert make_minatar(["Breakout"], [0]).spec.frame.shape == (10, 10, 4)
    padded = make_minatar(["Breakout"], [0], fleet=("Seaquest",))
    assert padded.spec.frame.shape == (10, 10, 10) and padded.spec.max_num_actions == 6


def test_rows_have_their_own_actions_and_no_others():
    environment = make_minatar(MINATAR_GAMES, range(5))
    assert environment.num_valid_actions.tolist() == [5, 3, 3, 6, 4]
    assert environment.spec.max_num_actions == 6
    environment.reset()
    environment.step(np.array([4, 2, 2, 5, 3]))
    with pytest.raises(ValueError, match="out of range"):
        environment.step(np.array([4, 3, 2, 5, 3]))
    everything = make_minatar(MINATAR_GAMES, range(5), minimal_actions=False)
    assert everything.num_valid_actions.tolist() == [6] * 5


@pytest.mark.parametrize("name", MINATAR_GAMES)
def test_minimal_actions_are_those_that_have_an_effect(name):
    """Each action of the full set, again and again, beside doing nothing with the same seed."""
    others = [LEFT, UP, RIGHT, DOWN, FIRE]
    environment = make_minatar([name] * 6, [0] * 6, sticky=0.0, minimal_actions=False)
    environment.reset()
    if name == "Seaquest":  # at the surface, UP has none
        environment.step(np.full(6, DOWN))
    frames = np.array([environment.step(np.array([NOOP, *others])).frame for _ in range(4)])
    with_effect = {a for a, row in zip(others, range(1, 6), strict=True)
                   if (frames[:, row] != frames[:, 0]).any()}  # fmt: skip
    expected = {*minatar.action_set(name, True)} - {NOOP}
    assert with_effect == (expected - {DOWN} if name == "Freeway" else expected)


def test_a_step_repeats_the_last_action_with_the_probability_asked_for():
    """The paddle goes left and right in turns, so a repeated action is one that was not asked for.

    Then e(t), the action taken, is not c(t), the one asked for, with probability q = p (1 - q).
    """
    for sticky, expected in ((0.0, 0.0), (0.1, 0.1 / 1.1), (0.5, 0.5 / 1.5)):
        environment = make_minatar(["Breakout"] * 400, range(400), sticky=sticky)
        before = environment.reset().frame[:, 9, :, 0].argmax(axis=1)
        others = total = 0
        for t in range(60):
            step = environment.step(np.full(400, 1 + t % 2))
            now = step.frame[:, 9, :, 0].argmax(axis=1)
            counted = (before > 0) & (before < 9) & (t > 10)
            asked = (-1, 1)[t % 2]
            others += (counted & (now - before != asked)).sum()
            total += counted.sum()
            if step.terminated.any():
                step = environment.reset(step.terminated)
                now = step.frame[:, 9, :, 0].argmax(axis=1)
            before = now
        error = np.sqrt(expected * (1 - expected) / total)
        assert abs(others / total - expected) <= 5 * error, (sticky, others / total)
    stuck = make_minatar(["Breakout"], [0], sticky=1.0)
    stuck.reset()
    assert all(stuck.step(np.array([1])).frame[0, 9, 4, 0] for _ in range(3))


def test_going_up_the_road_scores():
    environment = make_minatar(["Freeway"] * 20, range(20), sticky=0.1)
    environment.reset()
    steps = [environment.step(np.ones(20, np.int32)) for _ in range(2501)]
    assert not any(step.terminated.any() for step in steps[:2500])
    assert steps[2500].terminated.all() and not steps[2500].truncated.any()
    # 20 games of the canonical package: 17.4 with a standard error of 2.9, from 0 to 39.
    returns = sum(step.reward for step in steps)
    assert 8 < returns.mean() < 27 and returns.max() < 60


def test_an_endless_episode_is_truncated_after_5000_steps():
    """Seaquest's submarine at the surface meets nothing and breathes."""
    protocol = rainbow_training.environment_protocol(MINATAR_PRESETS["minatar_rcrl"])
    view = AgentEnvironment(make_minatar(["Seaquest"], [0]), protocol)
    view.reset()
    steps = [view.step(np.zeros(1, np.int32)) for _ in range(5000)]
    assert not any(step.finished[0] for step in steps[:-1])
    last = steps[-1]
    assert last.truncated[0] and not last.terminated[0] and last.episode_length[0] == 5000


@pytest.mark.parametrize(
    "games, seeds, message",
    [
        (["Breakout"], [0, 1], "2 seeds for 1 games"),
        (["Breakout"], [-1], "seeds must be in"),
    ],
)
def test_bad_arguments_are_refused(games, seeds, message):
    with pytest.raises(ValueError, match=message):
        make_minatar(games, seeds)
