"""Atari: both backends against the raw emulator, themselves and the interface."""

import sys

import ale_py
import numpy as np
import pytest

from rcrl_jax.envs import atari, pools
from rcrl_jax.envs.atari import ATARI_BACKENDS, ATARI_GAMES, make_atari
from rcrl_jax.envs.atari_games import halve
from rcrl_jax.envs.protocol import discrete_spec

BACKENDS = ("envpool", "ale")


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


class RawEmulator:
    """One game in the bare emulator: frames, rewards and lives by definition."""

    def __init__(self, rom: str):
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self.ale = ale_py.ALEInterface()
        self.ale.setFloat("repeat_action_probability", 0.0)
        self.ale.loadROM(ale_py.roms.get_rom_path(rom))
        self.actions = self.ale.getMinimalActionSet()

    def reset(self, num_noops: int) -> np.ndarray:
        """[84, 84] float, the first frame."""
        self.ale.reset_game()
        for _ in range(num_noops):
            self.ale.act(ale_py.Action.NOOP)
        return self.resize(self.screen())

    def step(self, action: int) -> tuple[np.ndarray, float, int]:
        """[84, 84] float frame, raw reward, lives; four emulator frames."""
        reward, screens = 0, []
        for _ in range(4):
            reward += self.ale.act(self.actions[action])
            screens.append(self.screen())
        return self.resize(np.maximum(*screens[-2:])), reward, self.ale.lives()

    def screen(self) -> np.ndarray:
        return self.ale.getScreenGrayscale()

    @staticmethod
    def resize(screen: np.ndarray) -> np.ndarray:
        """[84, 84] float: area averaging of [210, 160], whose pixels measure 2/5 and 21/40."""
        rows = screen.repeat(2, axis=0).reshape(84, 5, 160).mean(axis=1)
        return rows.repeat(21, axis=1).reshape(84, 84, 40).mean(axis=2)

    def games(self, num_noops, actions):
        """One game for each number of no-ops: frames [K, T+1, 84, 84], rewards and lives [K, T]."""
        frames, rewards, lives = [], [], []
        for noops in num_noops:
            first = self.reset(noops)
            steps = [self.step(action) for action in actions]
            frames.append([first] + [frame for frame, _, _ in steps])
            rewards.append([reward for _, reward, _ in steps])
            lives.append([life for _, _, life in steps])
        return np.array(frames), np.array(rewards), np.array(lives)


def play(environment, actions):
    """The same actions in all environments: frames [R, T+1, 84, 84], rewards and lives [R, T]."""
    frames, rewards, lives = [environment.reset().frame], [], []
    for action in actions:
        step = environment.step(np.full(environment.num_envs, action, np.int32))
        assert not step.terminated.any() and not step.truncated.any()
        frames.append(step.frame)
        rewards.append(step.reward)
        lives.append(step.lives)
    return np.stack(frames, 1), np.stack(rewards, 1), np.stack(lives, 1)


def nearest_game(frames, raw_frames):
    """[R] index of the raw game nearest over all frames, and the largest difference to it."""
    a = frames.reshape(len(frames), -1).astype(float)
    b = raw_frames.reshape(len(raw_frames), -1)
    squared_distance = -2 * a @ b.T + (b**2).sum(axis=1)  # plus a term that does not depend on b
    nearest = squared_distance.argmin(axis=1)
    return nearest, np.abs(a - b[nearest]).max()


class TestAgainstTheRawEmulator:
    """Frame skip, maximum, grayscale, resize, rewards, lives, no-ops, action order."""

    def test_first_game(self, backend):
        """Qbert: every number of no-ops gives another game, and a life is lost within 60 steps."""
        actions = np.random.default_rng(0).integers(0, 6, 60)
        environment = make_atari("Qbert", range(3), backend=backend)
        assert environment.spec.max_num_actions == 6  # of 18
        frames, rewards, lives = play(environment, actions)
        emulator = RawEmulator("qbert")
        low, high = environment.description["noops_at_reset"]
        openings, _, _ = emulator.games(range(low, high + 1), actions[:4])
        nearest, _ = nearest_game(frames[:, :5], openings)
        raw_frames, raw_rewards, raw_lives = emulator.games(low + nearest, actions)
        # Rounding to uint8 changes a pixel by up to half a grey level.
        assert np.abs(frames - raw_frames).max() <= 0.51
        np.testing.assert_array_equal(rewards, raw_rewards)
        np.testing.assert_array_equal(lives, raw_lives)
        assert raw_rewards.any() and (raw_lives < 4).any()

    @pytest.mark.parametrize("most", [None, 32])
    def test_description_states_the_range_of_noops(self, backend, most):
        actions = [0, 3, 0, 2]
        screen = {} if most is None else {"screen": atari.Screen(most_noops=most)}
        environment = make_atari("Qbert", range(4), backend=backend, **screen)
        frames = np.concatenate([play(environment, actions)[0] for _ in range(40)])
        # Up to 34, to notice more no-ops than the description states.
        raw_frames, _, _ = RawEmulator("qbert").games(range(35), actions)
        assert len({game.tobytes() for game in raw_frames}) == 35
        noops, difference = nearest_game(frames, raw_frames)
        assert difference <= 0.51
        assert [noops.min(), noops.max()] == environment.description["noops_at_reset"]

    def test_first_step_after_a_reset_acts(self, backend):
        """The step after an explicit reset is no automatic reset.

        Breakout: if the first action (FIRE) had no effect, the ball would start one step later.
        """
        environment = make_atari("Breakout", [0], backend=backend)
        generator = np.random.default_rng(0)
        step = environment.reset()
        num_games = 0
        while num_games < 2:
            step = environment.step(generator.integers(0, 4, 1).astype(np.int32))
            if step.terminated[0]:
                num_games += 1
                first = environment.reset(step.terminated)
                assert first.lives[0] == 5 and first.reward[0] == 0 and not first.terminated[0]
                assert np.abs(first.frame.astype(int) - step.frame).max() > 50
        actions = [1, 2, 2, 3, 1, 3, 3, 2, 2, 2, 3, 0]
        frames = [first.frame[0]] + [
            environment.step(np.array([action], np.int32)).frame[0] for action in actions
        ]
        low, high = environment.description["noops_at_reset"]
        raw_frames, _, _ = RawEmulator("breakout").games(range(low, high + 1), actions)
        _, difference = nearest_game(np.array(frames)[None], raw_frames)
        assert difference <= 0.51


class TestDeterminism:
    """An environment is a function of its seed and its actions alone."""

    NUM_STEPS = 420  # Breakout by random actions: two or three games

    def run(self, backend, seeds, *, reset_others_every=None):
        """Frames of the environment with seed 7, and how many games it finished."""
        environment = make_atari("Breakout", seeds, backend=backend)
        at = seeds.index(7)
        mine = np.random.default_rng(7)
        others = np.random.default_rng(len(seeds))
        frames = [environment.reset().frame[at].copy()]
        num_games = 0
        for t in range(1, self.NUM_STEPS + 1):
            actions = others.integers(0, 4, len(seeds)).astype(np.int32)
            actions[at] = mine.integers(0, 4)
            step = environment.step(actions)
            frames.append(step.frame[at].copy())
            mask = step.terminated.copy()
            if reset_others_every and t % reset_others_every == 0:
                mask |= np.arange(len(seeds)) != at
            if mask.any():
                first = environment.reset(mask)
                if mask[at]:
                    num_games += 1
                    frames.append(first.frame[at].copy())
                else:
                    np.testing.assert_array_equal(first.frame[at], step.frame[at])
        environment.close()
        return np.array(frames), num_games

    def test_frames_are_reproducible_and_independent_of_the_other_environments(self, backend):
        alone, num_games = self.run(backend, [7])
        assert num_games >= 2
        assert (alone[1:] != alone[:-1]).any(axis=(1, 2)).mean() > 0.9  # the game moves
        restarted, _ = self.run(backend, [3, 7, 7], reset_others_every=23)
        np.testing.assert_array_equal(restarted, alone)


class TestInterface:
    """What every backend must do."""

    @pytest.mark.parametrize("game", ATARI_GAMES)
    def test_every_game_starts(self, backend, game):
        environment = make_atari(game, [1], backend=backend)
        num_actions = environment.spec.max_num_actions
        assert environment.spec == discrete_spec((84, 84), num_actions) and 3 <= num_actions <= 18
        assert environment.num_envs == 1
        np.testing.assert_array_equal(environment.num_valid_actions, [num_actions])
        # The highest action is accepted.
        for step in (environment.reset(), environment.step(np.array([num_actions - 1]))):
            assert {
                name: (value.shape, value.dtype.name)
                for name, value in step._asdict().items()
                if value is not None
            } == {
                "frame": ((1, 84, 84), "uint8"),
                "reward": ((1,), "float32"),
                "lives": ((1,), "int32"),
                "terminated": ((1,), "bool"),
                "truncated": ((1,), "bool"),
            }
            assert np.ptp(step.frame[0]) > 0
            assert not step.terminated.any() and not step.truncated.any()
        environment.close()

    def test_results_are_never_overwritten(self, backend):
        environment = make_atari("Breakout", [1, 2], backend=backend)
        generator = np.random.default_rng(0)
        environment.reset()
        handed_over = []
        for t in range(200):
            step = environment.step(generator.integers(0, 4, 2).astype(np.int32))
            arrays = [field for field in step if field is not None]
            handed_over.append((arrays, [field.copy() for field in arrays]))
            if t % 20 == 19:
                environment.reset(np.array([True, False]))
        for arrays, copies in handed_over:
            for field, copy in zip(arrays, copies, strict=True):
                np.testing.assert_array_equal(field, copy)

    def test_refuses_bad_actions_and_resets(self, backend):
        environment = make_atari("Pong", [1, 2], backend=backend)
        with pytest.raises(RuntimeError, match="first reset"):
            environment.reset(np.array([True, False]))
        environment.reset()
        for actions in ([0, 6], [-1, 0], [0]):
            with pytest.raises(ValueError, match="action"):
                environment.send(np.array(actions, np.int32))
        # The refused actions were not sent, so the environment still steps.
        assert environment.step(np.zeros(2, np.int32)).frame.shape == (2, 84, 84)


class TestMakeAtari:
    """Choice of the backend, and errors."""

    @pytest.mark.parametrize("seeds", [[], [-1], [2**31], [0.5]])
    def test_refuses_bad_seeds(self, seeds):
        with pytest.raises(ValueError, match="seeds must be"):
            make_atari("Pong", seeds)

    @pytest.mark.parametrize("error", [ImportError("no envpool"), OSError("libEGL.so.1")])
    def test_auto_is_ale_if_envpool_cannot_be_imported(self, monkeypatch, caplog, error):
        class Unimportable:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] == "envpool":
                    raise error

        for name in [name for name in sys.modules if name.partition(".")[0] == "envpool"]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.delitem(sys.modules, "rcrl_jax.envs.atari_envpool", raising=False)
        monkeypatch.setattr(sys, "meta_path", [Unimportable(), *sys.meta_path])
        atari._default_backend.cache_clear()
        try:
            assert make_atari("Pong", [0]).description["backend"] == "ale"
            assert make_atari("Alien", [0]).description["backend"] == "ale"
            assert caplog.text.count(str(error)) == 1
            with pytest.raises(type(error)):
                make_atari("Pong", [0], backend="envpool")
        finally:
            atari._default_backend.cache_clear()

    def test_descriptions_of_the_backends_differ(self):
        assert ATARI_BACKENDS == ("auto", *BACKENDS)
        one, other = (make_atari("Pong", [0], backend=name).description for name in BACKENDS)
        assert one.keys() == other.keys()
        assert one["frame_pooling"] == "maximum of the last two emulator frames, then resize"
        assert one["resize"] == "84x84, area averaging" and one["grayscale"] == "palette luminance"
        assert {key for key in one if one[key] != other[key]} == {
            "backend",
            "backend_version",
            "emulator",
            "noops_at_reset",
        }


class ColourEmulator(RawEmulator):
    """The same in colours, whose frames are truncated means of 2 x 2 pixels."""

    def screen(self):
        return self.ale.getScreenRGB()

    @staticmethod
    def resize(screen: np.ndarray) -> np.ndarray:
        """[105, 80, 3] float."""
        return np.floor(screen.astype(float).reshape(105, 2, 80, 2, 3).mean(axis=(1, 3)))


def test_frames_in_colour_are_truncated_means_to_the_bit(backend):
    actions = np.random.default_rng(0).integers(0, 6, 12)
    screen = atari.Screen((105, 80, 3), 4)
    environment = make_atari("Qbert", range(3), backend=backend, screen=screen)
    frames, _, _ = play(environment, actions)
    assert frames.dtype == np.uint8
    low, high = environment.description["noops_at_reset"]
    games, _, _ = ColourEmulator("qbert").games(range(low, high + 1), actions)
    nearest, difference = nearest_game(frames, games)
    assert difference == 0
    assert environment.description["resize"] == "105x80, means of 2x2 pixels, truncated"


def test_screens_in_colour_are_of_the_size_that_is_asked_for(backend):
    screen = atari.Screen((105, 80, 3), 32)
    environment = make_atari("Pong", [1], backend=backend, screen=screen)
    frame = environment.reset().frame
    assert frame.shape == (1, *environment.spec.frame.shape) == (1, 105, 80, 3)
    # Pong's background is orange; the paddle on the right is green.
    red, green, blue = frame[0, 20:90].reshape(-1, 3).T.astype(int)
    assert np.median(red) > np.median(green) > np.median(blue)
    assert environment.description["noops_at_reset"][1] in (31, 32)
    assert environment.description["colours"] == "RGB"


def test_people_watch_the_same_game_on_the_screen_of_the_console(backend):
    """Of one game of several vectors: after 2 x 2 means, its frames are those in colour."""
    seeds, actions = (5, 6, 7), np.random.default_rng(0).integers(0, 6, (200, 1), np.int32)
    pools_of = [[5], [6, 7]]
    joined = pools.ConcatenatedEnvironments(
        [make_atari("MsPacman", seeds, backend=backend) for seeds in pools_of]
    )
    in_colour = make_atari("MsPacman", seeds, backend=backend, screen=atari.Screen((105, 80, 3)))
    watched = joined.shows(2)()
    shown = [watched.reset()]
    expected = [(joined.reset(), in_colour.reset())]
    for action in actions:
        shown.append(watched.step(action))
        expected.append((joined.step(action.repeat(3)), in_colour.step(action.repeat(3))))
        if shown[-1].terminated:
            break
    assert len(shown) > 40 and sum(float(step.reward[0]) for step in shown) > 0
    for one, (grey, colours) in zip(shown, expected, strict=True):
        assert one.frame.shape == (1, 210, 160, 3)
        np.testing.assert_array_equal(halve(one.frame)[0], colours.frame[2])
        assert (one.reward[0], one.lives[0]) == (grey.reward[2], grey.lives[2])
        assert one.terminated[0] == grey.terminated[2]
