"""Games of one's own as a vector of environments."""

import re

import gymnasium
import numpy as np
import pytest

from rcrl_jax.envs import gymnasium_games
from rcrl_jax.envs.protocol import SimulatorFailed
from tests.envs import own_games

OWN = "tests.envs.own_games"
CARTPOLE, PENDULUM = "gymnasium.CartPole-v1", "gymnasium.Pendulum-v1"


def make(name, seeds=(1, 2), image_shape=(84, 84), bits=False):
    return gymnasium_games.make_games(name, seeds, image_shape, bits=bits)


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ("gymnasium:CartPole-v1", CARTPOLE),
        ("gymnasium:ALE/Pong-v5", "gymnasium.ALE~Pong-v5"),
        ("gymnasium:some_module:Box-v0", "gymnasium.some_module=Box-v0"),
        ("mymodule:make", "mymodule.make"),
        ("my.games:make", "my.games.make"),
    ],
)
def test_the_name_of_a_game_is_a_folder_s_and_gives_the_environment_back(environment, name):
    assert gymnasium_games.name_of(environment) == name
    assert gymnasium_games.environment_of(name) == environment


@pytest.mark.parametrize(
    "text",
    [
        "CartPole-v1", "gymnasium:", ":make", "a:b:c", "../a:make", "a:",
        "gymnasium.envs.classic_control:CartPoleEnv",
    ],
)  # fmt: skip
def test_another_way_of_writing_is_refused(text):
    with pytest.raises(ValueError, match="expected gymnasium:CartPole-v1, or mymodule:make"):
        gymnasium_games.name_of(text)


@pytest.mark.parametrize("name", [CARTPOLE, PENDULUM])
def test_every_row_is_gymnasium_s_own_game(name):
    """Two seeds, several games of each; actions of Pendulum are scaled to its bounds, 2."""
    played, random = make(name), np.random.default_rng(0)
    alone = [gymnasium.make(gymnasium_games.environment_of(name).split(":")[1]) for _ in range(2)]
    shown = [game.reset(seed=seed)[0] for game, seed in zip(alone, (1, 2), strict=True)]
    first = played.reset()
    np.testing.assert_array_equal(first.frame, shown)
    ended = 0
    for _ in range(250):
        discrete = name == CARTPOLE
        actions = random.integers(2, size=2, dtype=np.int32)
        if not discrete:
            actions = random.uniform(-1, 1, (2, 1)).astype(np.float32)
        step = played.step(actions)
        for row, game in enumerate(alone):
            own = int(actions[row]) if discrete else 2 * actions[row]
            frame, reward, terminated, truncated, _ = game.step(own)
            np.testing.assert_allclose(step.frame[row], frame, rtol=1e-6, atol=1e-6)
            assert step.reward[row] == pytest.approx(reward, rel=1e-5)
            assert (step.terminated[row], step.truncated[row]) == (terminated, truncated)
        over = step.terminated | step.truncated
        if over.any():
            ended += over.sum()
            again = played.reset(over)
            for row in np.flatnonzero(over):
                np.testing.assert_array_equal(again.frame[row], alone[row].reset()[0])
    assert ended >= 2


def test_a_time_limit_truncates_and_does_not_terminate():
    """Pendulum never ends by itself, and is cut after 200 steps."""
    played = make(PENDULUM)
    played.reset()
    for _ in range(200):
        step = played.step(np.zeros((2, 1), np.float32))
    assert step.truncated.all() and not step.terminated.any()


def test_a_binary_grid_is_read_as_bits_or_as_a_vector():
    """The game writes all observations into one array; frames must keep theirs."""
    grids, vectors = make(f"{OWN}.make", bits=True), make(f"{OWN}.make")
    assert grids.spec.frame.shape == (10, 10, 2) and grids.spec.frame.maximum == 1
    first = grids.reset().frame
    kept = first.copy()
    np.testing.assert_array_equal(vectors.reset().frame, first.reshape(2, 200))
    assert vectors.spec.frame.dtype == np.float32
    step = grids.step(np.array([1, 0], np.int32))  # 4 and 3 of the game
    np.testing.assert_array_equal(first, kept)
    column = first[:, 0, :, 0].argmax(axis=1)
    moved = step.frame[:, 0, :, 0].argmax(axis=1)
    assert moved.tolist() == [column[0] + 1, max(column[1] - 1, 0)]


def test_a_smaller_grid_lies_at_the_top_left():
    bits = gymnasium_games.as_bits(np.ones((7, 5), bool))
    assert bits.shape == (10, 10, 1) and bits[:7, :5].all() and bits.sum() == 35


def test_symbols_are_numbers_as_they_are():
    played = make(f"{OWN}.Symbols", bits=True)
    assert played.spec.frame.shape == (147,)
    assert set(played.reset().frame.ravel()) <= {0.0, 1.0, 2.0, 3.0, 4.0}


def test_pictures_are_resized_and_grey_where_the_agent_reads_grey():
    grey, colour = make(f"{OWN}.Picture"), make(f"{OWN}.Picture", image_shape=(100, 100, 3))
    frame = grey.reset().frame
    assert frame.shape == (2, 84, 84) and frame.dtype == np.uint8
    assert frame[0, 3, 80] == round(0.587 * 255)  # the end is green
    np.testing.assert_array_equal(
        colour.reset().frame[0, 5, 95], own_games.Picture().reset(seed=1)[0][5, 95]
    )
    assert grey.description["image"] == {"resized": "bilinear", "grey": True}


def test_a_half_resized_picture_is_the_mean_of_its_pixels():
    image = np.zeros((8, 8), np.uint8)
    image[:, 4:] = 200
    small = gymnasium_games.resize(image[..., None], (4, 4))
    assert small[:, 0].tolist() == [0] * 4 and small[:, 3].tolist() == [200] * 4
    np.testing.assert_array_equal(gymnasium_games.resize(image, (8, 8)), image)


def test_a_game_that_follows_no_seed_is_found():
    assert gymnasium_games.probe(f"{OWN}.make").repeats
    assert not gymnasium_games.probe(f"{OWN}.Drifting").repeats
    assert not gymnasium_games.probe(f"{OWN}.Shared").repeats
    assert not gymnasium_games.probe(f"{OWN}.Reseeded").repeats


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("NoInfo", r"reset\(\) returns no observation with an info"),
        ("FourValues", r"step\(\) does not return five values"),
        ("Flat", r"showed \[200\], not \[10, 10, 2\] as its observation space says"),
    ],
)
def test_what_is_not_as_gymnasium_s_is_found_before_training(name, message):
    with pytest.raises(SimulatorFailed, match=message):
        gymnasium_games.probe(f"{OWN}.{name}")


def test_a_retired_game_stands_still():
    played = make(f"{OWN}.make")
    frame = played.reset().frame
    played.retire(np.array([True, False]))
    for _ in range(3):
        step = played.step(np.ones(2, np.int32))
        np.testing.assert_array_equal(step.frame[0], frame[0])
        assert step.reward[0] == 0 and not step.terminated[0] and not step.truncated[0]
    assert np.any(step.frame[1] != frame[1])


def test_the_description_names_versions_and_the_digest_of_the_module():
    described = make(f"{OWN}.make").description
    assert described["game"] == f"{OWN}.make" and described["environment"] == f"{OWN}:make"
    assert described["versions"]["gymnasium"] == gymnasium.__version__
    assert described["module"]["name"] == OWN and len(described["module"]["sha256"]) == 64
    assert described["repeats_exactly"] is True
    assert "module" not in make(CARTPOLE).description


def test_a_game_that_fails_says_where():
    played = make(f"{OWN}.Failing")
    played.reset()
    with pytest.raises(SimulatorFailed, match=r"Failing: KeyError: 'no such door' \(.*games.py:\d"):
        for _ in range(300):
            step = played.step(np.ones(2, np.int32))
            if (over := step.terminated).any():
                played.reset(over)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gymnasium.CartPol-v1", "Did you mean: `CartPole`"),
        ("nomodule.make", "no module 'nomodule' is installed or in "),
        ("nomodule.games.make", "no module 'nomodule' is installed or in "),
        (f"{OWN}.nomake", "has no function 'nomake'"),
        (f"{OWN}.nothing", "returned int, which is no environment of gymnasium"),
        (f"{OWN}.Words", "its observations are Dict"),
        ("gymnasium.FrozenLake-v1", r"its observations are Discrete\(16\)"),
        (f"{OWN}.Board", "images .* of brightness 0 to 255"),
        (f"{OWN}.same", "same returned the same environment twice"),
    ],
)
def test_what_cannot_be_played_is_refused_in_one_line(name, message):
    with pytest.raises(ValueError, match=message) as raised:
        gymnasium_games.probe(name)
    assert "\n" not in str(raised.value)


def test_a_game_that_cannot_be_made_says_why():
    with pytest.raises(SimulatorFailed, match="broken: OSError: no display"):
        gymnasium_games.probe(f"{OWN}.broken")


def test_people_watch_the_pictures_of_an_own_game():
    """Those of the row's first game, whose actions are played again."""
    played = make(f"{OWN}.draw", seeds=(1, 2, 3), bits=True)
    watched = played.shows(2)()
    frame, picture = played.reset().frame[2], watched.reset().frame[0]
    for action in (1, 1, 0, 1, 0, 0):
        assert picture.shape == (20, 30, 3)
        column = int(frame[0, :, 0].argmax())
        assert [*np.flatnonzero(picture[5, :, 1])] == [3 * column, 3 * column + 1, 3 * column + 2]
        frame = played.step(np.full(3, action, np.int32)).frame[2]
        picture = watched.step(np.full(1, action, np.int32)).frame[0]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (f"{OWN}.make", "returns NoneType, no RGB picture; a function make"),
        (f"{OWN}.Drifting", "cannot be played again"),
    ],
)
def test_what_draws_nothing_or_does_not_repeat_is_watched_as_the_agent_sees_it(name, why):
    assert why in gymnasium_games.why_not_drawn(name)
    assert make(name).shows(0) is None


def test_an_environment_without_a_render_mode_is_played_and_not_filmed():
    gymnasium.register("Plain-v0", own_games.Corridor)
    try:
        assert gymnasium_games.probe("gymnasium.Plain-v0").kind == gymnasium_games.BITS
        assert "render_mode" in gymnasium_games.why_not_drawn("gymnasium.Plain-v0")
    finally:
        del gymnasium.registry["Plain-v0"]


@pytest.mark.parametrize("reward", [1e39, -np.inf, np.nan])
def test_rewards_that_are_no_numbers_or_beyond_float32_are_refused(monkeypatch, reward):
    step = own_games.Corridor.step

    def rewarded(self, action):
        observation, _, *end = step(self, action)
        return observation, reward, *end

    monkeypatch.setattr(own_games.Corridor, "step", rewarded)
    played = make(f"{OWN}.make")
    played.reset()
    with pytest.raises(SimulatorFailed, match=re.escape(f"gave the reward {reward}")):
        played.step(np.ones(2, np.int32))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda frame: frame / 255.0, "showed float64, not uint8"),
        (lambda frame: frame.astype(np.int64), "showed int64, not uint8"),
    ],
)
def test_images_that_are_not_of_their_space_are_refused(monkeypatch, change, says):
    show = own_games.Picture._show
    monkeypatch.setattr(own_games.Picture, "_show", lambda self: change(show(self)))
    with pytest.raises(SimulatorFailed, match=says):
        gymnasium_games.make_games(
            "tests.envs.own_games.Picture", np.arange(2), (84, 84), bits=False
        ).reset()


@pytest.mark.parametrize("number", [0.25, -3.0, np.nan])
def test_grids_of_other_numbers_than_their_space_s_are_refused(monkeypatch, number):
    played = make(f"{OWN}.make", bits=True)
    monkeypatch.setattr(own_games.Corridor, "_show", lambda self: np.full((10, 10, 2), number))
    for call in (played.reset, lambda: gymnasium_games.probe.__wrapped__(f"{OWN}.make")):
        with pytest.raises(SimulatorFailed, match="showed other numbers than 0 and 1, against its"):
            call()


def test_an_environment_that_fails_as_it_closes_is_named(monkeypatch):
    def fail(self):
        raise AttributeError("no window")

    monkeypatch.setattr(own_games.Symbols, "close", fail)
    gymnasium_games.probe.cache_clear()
    with pytest.raises(SimulatorFailed, match="AttributeError: no window"):
        gymnasium_games.probe("tests.envs.own_games.Symbols")
