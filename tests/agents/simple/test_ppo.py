"""One update of PPO by hand: advantages over all steps but the last, clipping, entropy, order."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rcrl_jax.agents.simple import ppo


def rollout_of(reward, value, done=None):
    """One environment."""
    reward, value = (jnp.array(x, jnp.float32)[:, None] for x in (reward, value))
    done = jnp.zeros(reward.shape, bool) if done is None else jnp.array(done)[:, None]
    return ppo.Rollout(
        jnp.zeros(reward.shape, jnp.int32), reward, done, jnp.zeros_like(value), value
    )


def test_advantages_of_three_steps_by_hand():
    # Errors: 1 + 0.5 * 4 - 2 = 1 and 0 + 0.5 * 6 - 4 = -1; the third reward is never read.
    rollout = rollout_of([1.0, 0.0, 100.0], [2.0, 4.0, 6.0])
    found = ppo.generalised_advantages(rollout, discount=0.5, lambda_=0.5)
    np.testing.assert_allclose(found[:, 0], [1.0 + 0.25 * -1.0, -1.0], rtol=1e-6)


def test_a_step_counts_as_the_last_one_if_the_step_after_it_is():
    rollout = rollout_of([1.0, 2.0, 3.0, 4.0], [1.0, 1.0, 1.0, 1.0], [False, False, True, False])
    found = ppo.generalised_advantages(rollout, discount=0.5, lambda_=1.0)
    # Step 2 ended the episode: step 1 has no future, step 2 has that of step 3.
    last = 3.0 + 0.5 - 1.0
    np.testing.assert_allclose(found[:, 0], [1.0 + 0.5 - 1.0 + 0.5 * 1.0, 2.0 - 1.0, last])


@pytest.mark.parametrize("steps", [50, 200])
def test_advantages_equal_a_slow_sum(steps):
    rng = np.random.default_rng(0)
    reward, value = rng.normal(size=(2, steps)).astype(np.float32)
    found = ppo.generalised_advantages(rollout_of(reward, value), 0.99, 0.95)
    assert found.shape == (steps - 1, 1)
    errors = reward[:-1] + 0.99 * value[1:] - value[:-1]
    slow = [
        sum((0.99 * 0.95) ** (k - t) * errors[k] for k in range(t, steps - 1))
        for t in range(steps - 1)
    ]
    np.testing.assert_allclose(found[:, 0], slow, rtol=1e-3, atol=1e-4)


def test_targets_are_not_normalised_and_advantages_are():
    rollout = rollout_of([1.0, 0.0, 0.0], [2.0, 4.0, 6.0])
    taught = ppo.targets(rollout, 0.5, 0.5)
    np.testing.assert_allclose(taught.value[:, 0], [2.75, 3.0])
    np.testing.assert_allclose(taught.advantage[:, 0], [1.0, -1.0], rtol=1e-6)


@pytest.mark.parametrize(
    ("steps", "passes", "size", "number"), [(49, 3, 20, 7), (199, 3, 20, 29), (4, 1, 3, 1)]
)
def test_minibatches_are_shuffled_passes(steps, passes, size, number):
    found = np.asarray(ppo.minibatches(jax.random.key(0), steps, passes, size))
    assert found.shape == (number, size)
    flat = found.reshape(-1)
    for start in range(0, len(flat) - steps + 1, steps):
        assert sorted(flat[start : start + steps]) == list(range(steps))
    assert not np.array_equal(flat[:steps], np.arange(min(steps, len(flat))))
    if len(flat) >= 2 * steps:  # each pass has its own order
        assert np.any(flat[:steps] != flat[steps : 2 * steps])


def one_step(probability, old, advantage, value=0.0, target=0.0):
    """The loss of a step with two actions, the first of which was taken."""
    log = jnp.log(jnp.array([[probability, 1 - probability]]))
    rollout = ppo.Rollout(*(jnp.zeros(1, t) for t in (int, float, bool)), jnp.log(old)[None], None)
    taught = ppo.Targets(jnp.array([target]), jnp.array([advantage]))
    return ppo.loss(log, jnp.array([value]), rollout, taught, clip=0.1, entropy_weight=0.01)


@pytest.mark.parametrize(
    ("ratio", "advantage", "surrogate", "moves"),
    [
        (1.05, 2.0, 2.1, True),
        (1.5, 2.0, 2.2, False),  # no more is gained by a larger ratio
        (0.5, 2.0, 1.0, True),
        (1.5, -2.0, -3.0, True),
        (0.5, -2.0, -1.8, False),
    ],
)
def test_the_ratio_is_clipped_where_that_is_worse(ratio, advantage, surrogate, moves):
    def policy_loss(probability):
        return one_step(probability, 0.4, advantage)[1]["loss_policy"]

    value, slope = jax.value_and_grad(policy_loss)(0.4 * ratio)
    assert value == pytest.approx(-surrogate, rel=1e-5)
    assert bool(slope != 0) == moves


def test_the_loss_adds_squared_errors_of_the_value_and_subtracts_entropy():
    total, parts = one_step(0.25, 0.25, 3.0, value=1.0, target=-1.0)
    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    assert parts["loss_value"] == 4.0
    assert parts["entropy"] == pytest.approx(entropy, rel=1e-6)
    assert total == pytest.approx(-3.0 + 4.0 - 0.01 * entropy, rel=1e-6)


def test_actions_that_a_run_lacks_enter_neither_entropy_nor_gradients():
    def total(logits):
        masked = jnp.where(jnp.array([True, True, False]), logits, -jnp.inf)
        log = jax.nn.log_softmax(masked)[None]
        rollout = ppo.Rollout(*(jnp.zeros(1, t) for t in (int, float, bool)), jnp.zeros(1), None)
        taught = ppo.Targets(jnp.zeros(1), jnp.ones(1))
        return ppo.loss(log, jnp.zeros(1), rollout, taught, 0.1, 0.01)[0]

    value, slope = jax.value_and_grad(total)(jnp.array([0.0, 0.0, 9.0]))
    assert value == pytest.approx(-0.5 - 0.01 * math.log(2), rel=1e-6)
    assert np.isfinite(slope).all() and slope[2] == 0 and slope[0] < 0
