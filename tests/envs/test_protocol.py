"""Specs, settings and checks that all environments share."""

import numpy as np
import pytest

from rcrl_jax.envs.protocol import (
    EnvironmentProtocol,
    control_spec,
    discrete_spec,
    validate_actions,
)


def test_evaluation_plays_whole_games_for_raw_rewards():
    protocol = EnvironmentProtocol(
        frame_stack=4, life_loss_ends_episode=True, clip_rewards=True, max_episode_steps=27_000,
        restart_period=6400,
    )  # fmt: skip
    assert protocol.for_evaluation() == EnvironmentProtocol(
        frame_stack=4, life_loss_ends_episode=False, clip_rewards=False, max_episode_steps=27_000
    )


def test_each_run_has_its_own_number_of_discrete_actions():
    spec, valid = discrete_spec((84, 84), 5), np.array([3, 5], np.int32)
    validate_actions(np.array([2, 4]), spec, valid)
    for bad in ([3, 4], [2, 5], [-1, 0]):
        with pytest.raises(ValueError, match="out of range"):
            validate_actions(np.array(bad), spec, valid)
    for bad in ([0], [[0, 0]]):
        with pytest.raises(ValueError, match=r"shape \(2,\)"):
            validate_actions(np.array(bad), spec, valid)


def test_continuous_actions_lie_within_one():
    spec, valid = control_spec((24,), 3), np.array([3, 2], np.int32)
    validate_actions(np.array([[-1, 1, 0], [0.5, 1, 0]], np.float32), spec, valid)
    for bad in (1.1, -1.1, np.nan):
        with pytest.raises(ValueError, match=r"out of range \[-1.0, 1.0\]"):
            validate_actions(np.array([[0, 0, 0], [0, bad, 0]], np.float32), spec, valid)
    with pytest.raises(ValueError, match=r"shape \(2, 3\)"):
        validate_actions(np.zeros((2, 2), np.float32), spec, valid)
