"""Dreamer's returns and policy by hand-worked numbers and against slow references."""

import math

import numpy as np

from rcrl_jax.agents.recurrent import loss as losses
from rcrl_jax.networks.policy import Policy


def slow_returns(reward, discount, next_value, lambda_):
    """The definition, as a mean of n-step returns."""
    returns = []
    for t in range(len(reward)):
        total, left = 0.0, 1.0
        n_step, factor = 0.0, 1.0
        for k in range(t, len(reward)):
            n_step += factor * reward[k]
            factor *= discount
            share = left if k == len(reward) - 1 else left * (1 - lambda_)
            total += share * (n_step + factor * next_value[k])
            left *= lambda_
        returns.append(total)
    return returns


def test_lambda_returns_by_hand_and_against_a_slow_mean():
    reward, value = np.float32([[1.0], [2.0]]), np.float32([[10.0], [20.0]])
    # The last is 2 + 0.5 * 20 = 12; the first 1 + 0.5 * (0.75 * 10 + 0.25 * 12) = 6.25.
    np.testing.assert_allclose(losses.lambda_returns(reward, 0.5, value, 0.25), [[6.25], [12.0]])
    rng = np.random.default_rng(0)
    reward, value = rng.normal(size=(2, 14, 3)).astype(np.float32)
    found = losses.lambda_returns(reward, 0.99, value, 0.95)
    for b in range(3):
        expected = slow_returns(reward[:, b], 0.99, value[:, b], 0.95)
        np.testing.assert_allclose(found[:, b], expected, rtol=1e-5)


def test_weights_of_imagined_states():
    np.testing.assert_allclose(losses.discount_weights(3, 0.5), [1.0, 0.5, 0.25])


def test_dreamers_policy_by_hand():
    policy = losses.dreamer_policy(np.float32([0.0, 100.0, 0.0, 1.0]), 5.0, 5.0)
    np.testing.assert_allclose(policy.mean, [0.0, 5.0], rtol=1e-6)
    # At the start the standard deviation is 5, to 1e-4.
    wider = np.log1p(np.exp(1.0 + np.log(np.expm1(5.0))))
    np.testing.assert_allclose(np.exp(policy.log_std), [5.0001, wider + 1e-4], rtol=1e-5)
    wide = losses.dreamer_policy(np.float32([0.0, 0.0]), 5.0, 1000.0)
    np.testing.assert_allclose(np.exp(wide.log_std), [1000.0], rtol=1e-5)


def test_the_mode_of_each_row_is_its_own():
    policy = Policy(np.float32([[0.0, 0.0], [2.0, 0.0]]), np.full((2, 2), -1.0, np.float32))
    mask = np.array([True, False])
    noise = np.float32([[[0.0, 0.0], [1.0, 9.0]], [[3.0, 1.0], [0.0, 1.0]]])
    found = losses.most_likely_action(policy, noise, mask)
    # Row 0: the mean. Row 1: the tanh crowds samples near 1, so the larger one is denser there.
    pre_tanh = 2.0 + math.exp(-1.0)
    np.testing.assert_allclose(found, [[0.0, 0.0], [math.tanh(pre_tanh), 0.0]], rtol=1e-5)
