"""Catch: its rules, its pixels and its randomness."""

import numpy as np
import pytest

from rcrl_jax.envs.catch import make_catch, make_continuing_catch

LEFT, STAY, RIGHT = 0, 1, 2


def columns(step):
    """Pixel column of the ball (top-most white pixel) and of the paddle (lowest row), [R] each."""
    ball = step.frame.argmax(axis=1)  # [R, 84] first white pixel of each column; 0 where none
    top = np.where(step.frame.any(axis=1), ball, 84)
    return top.argmin(axis=1), step.frame[:, 69].argmax(axis=1)


def games(environment, num_games, policy):
    """[num_games, R] rewards; `policy` maps a time step to actions."""
    rewards = []
    step = environment.reset()
    while len(rewards) < num_games:
        step = environment.step(policy(step))
        assert step.terminated.all() == step.terminated.any()  # all games take six steps
        if step.terminated.all():
            rewards.append(step.reward)
            step = environment.reset(step.terminated)
        else:
            assert not step.reward.any()
    return np.array(rewards)


def follow(step):
    ball, paddle = columns(step)
    return (1 + np.sign(ball - paddle)).astype(np.int32)


def test_following_the_ball_always_catches_it():
    assert (games(make_catch(range(50)), 20, follow) == 1).all()


def test_balls_fall_uniformly_and_independently():
    environment = make_catch(range(200))
    first = [columns(environment.reset())[0] // 10 for _ in range(50)]
    drawn = np.array(first)  # [50, 200]
    counts = np.bincount(drawn.ravel(), minlength=7)
    expected = drawn.size / 7
    assert len(counts) == 7
    # Chi-square, 6 degrees of freedom: 22.5 is exceeded once in a thousand.
    assert ((counts - expected) ** 2 / expected).sum() < 22.5
    for one, other in ((drawn[1:], drawn[:-1]), (drawn[:, 1:], drawn[:, :-1])):
        same = (one == other).mean()
        assert abs(same - 1 / 7) < 0.02


def test_game_takes_six_steps_within_the_pixels_that_the_encoder_sees():
    environment = make_catch([3])
    step = environment.reset()
    for t in range(6):
        assert not step.terminated[0]
        assert step.frame.shape == (1, 84, 84) and step.frame.dtype == np.uint8
        assert (step.frame == 255).sum() == 200  # two blocks of 10x10
        assert not step.frame[:, 70:].any() and not step.frame[:, :, 70:].any()
        rows = np.flatnonzero(step.frame[0, :60].any(axis=1))
        assert rows[0] == 10 * t and rows[-1] == 10 * t + 9
        step = environment.step(np.array([STAY], np.int32))
    assert step.terminated[0]


def test_paddle_moves_one_cell_and_stops_at_the_walls():
    environment = make_catch([3])
    environment.reset()
    for action, column in ((LEFT, 20), (LEFT, 10), (LEFT, 0), (LEFT, 0), (RIGHT, 10)):
        step = environment.step(np.array([action], np.int32))
        assert columns(step)[1][0] == column


def test_refuses_bad_actions_and_masks():
    environment = make_catch([0, 1])
    with pytest.raises(RuntimeError, match="first reset"):
        environment.reset(np.array([True, False]))
    environment.reset()
    for actions in ([3, 0], [-1, 0], [0], [[0, 0]]):
        with pytest.raises(ValueError, match="action"):
            environment.send(np.array(actions, np.int32))
    for mask in ([False, False], [True]):
        with pytest.raises(ValueError, match="mask"):
            environment.reset(np.array(mask))


CELL = 2


def cells(step):
    """Row and column of the ball, column of the paddle, [R] each."""
    grid = step.frame[:, ::CELL, ::CELL]
    np.testing.assert_array_equal(grid.repeat(CELL, 1).repeat(CELL, 2), step.frame)
    assert (grid[..., 2] == 64).all()
    ball, paddle = grid[..., 0] == 255, grid[..., 1] == 255
    assert (ball.sum((1, 2)) == 1).all() and (paddle.sum((1, 2)) == 1).all()
    assert not grid[..., 0][~ball].any() and not grid[..., 1][~paddle].any()
    assert paddle[:, -1].any(axis=1).all()
    return (*np.nonzero(ball)[1:], np.nonzero(paddle)[2])


def test_continuing_catch_equals_its_rules_written_anew():
    environment = make_continuing_catch(range(30), CELL)
    assert environment.spec.frame.shape == (14, 14, 3)
    generator = np.random.default_rng(0)
    row, column, paddle = cells(environment.reset())
    assert not row.any() and len({*column}) == 7 and (paddle == 3).all()
    for t in range(1, 100):
        actions = generator.integers(0, 3, 30).astype(np.int32)
        step = environment.step(actions)
        paddle = np.clip(paddle + actions - 1, 0, 6)
        if t % 7 == 0:
            column = (column + 3) % 7
        for found, expected in zip(cells(step), (t % 7, column, paddle), strict=True):
            np.testing.assert_array_equal(found, expected)
        caught = np.where(column == paddle, 1, -1)
        np.testing.assert_array_equal(step.reward, caught if t % 7 == 6 else 0 * caught)
        assert not step.terminated.any() and not step.truncated.any()
