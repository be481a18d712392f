"""Densities of squashed Gaussians integrate to probabilities and equal SciPy's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from rcrl_jax.networks.policy import Policy, mean_action, sample_action

ACTION_MASK = np.array([True, True, False])
SAMPLE = jax.jit(sample_action)


def policy_of(mean, log_std) -> Policy:
    return Policy(jnp.asarray(mean, jnp.float32), jnp.asarray(log_std, jnp.float32))


def density_of(action: np.ndarray, mean: float, std: float) -> np.ndarray:
    """The density of tanh(u), u ~ N(mean, std), from `sample_action` with the matching noise."""
    noise = (np.arctanh(action) - mean) / std
    policy = policy_of(np.full((len(action), 1), mean), np.full((len(action), 1), np.log(std)))
    back, log_density = SAMPLE(policy, jnp.float32(noise[:, None]), np.array([True]))
    np.testing.assert_allclose(back[:, 0], action, atol=1e-4)
    return np.exp(np.asarray(log_density, np.float64))


@pytest.mark.parametrize("mean, std", [(0.0, 1.0), (0.7, 0.3), (-1.2, 0.6)])
def test_density_integrates_to_the_probability_of_an_interval(mean, std):
    for low, high in [(-1, 1), (-0.5, 0.2), (0.1, 0.95)]:
        # The substitution a = tanh(x) resolves the ends, where the density may be steep.
        x = np.linspace(np.arctanh(max(low, -0.99999)), np.arctanh(min(high, 0.99999)), 4001)
        mass = integrate.simpson(density_of(np.tanh(x), mean, std) / np.cosh(x) ** 2, x=x)
        ends = stats.norm(mean, std).cdf(x[[0, -1]])
        assert mass == pytest.approx(ends[1] - ends[0], abs=1e-3)


def test_density_equals_that_of_independent_components():
    rng = np.random.default_rng(0)
    mean, std = rng.normal(size=(5, 3)), np.exp(rng.normal(size=(5, 3)) * 0.3 - 1)
    noise = rng.normal(size=(5, 3)).astype(np.float32)
    everything = np.ones(3, bool)
    policy = policy_of(mean, np.log(std))
    action, log_density = SAMPLE(policy, noise, everything)
    u = mean + std * noise
    np.testing.assert_allclose(action, np.tanh(u), rtol=1e-5)
    normal = stats.norm(mean, std).logpdf(u).sum(axis=1)
    expected = normal - np.log(1 - np.tanh(u) ** 2).sum(axis=1)
    np.testing.assert_allclose(log_density, expected, rtol=1e-4, atol=1e-4)


def test_log_density_is_finite_where_tanh_rounds_to_one():
    policy = policy_of([[30.0]], [[-10.0]])
    value, gradient = jax.value_and_grad(
        lambda p: sample_action(p, jnp.ones((1, 1)), np.array([True]))[1][0]
    )(policy)
    # log N = -0.5 (1 + log 2 pi) + 10; the slope of tanh is 4 exp(-2 u) there.
    expected = -0.5 * (1 + np.log(2 * np.pi)) + 10 - (np.log(4) - 60)
    assert value == pytest.approx(expected, abs=1e-3)
    assert gradient.mean[0, 0] == pytest.approx(2.0)


def test_masked_components_have_no_effect():
    rng = np.random.default_rng(1)
    mean, log_std, noise = rng.normal(size=(3, 4, 3)).astype(np.float32)
    action, log_density = SAMPLE(policy_of(mean, log_std), noise, ACTION_MASK)
    fewer = policy_of(mean[:, :2], log_std[:, :2])
    fewer_action, fewer_density = SAMPLE(fewer, noise[:, :2], ACTION_MASK[:2])
    np.testing.assert_array_equal(action[:, :2], fewer_action)
    np.testing.assert_array_equal(action[:, 2], 0)
    np.testing.assert_allclose(log_density, fewer_density, rtol=1e-6)
    greedy = mean_action(policy_of(mean, log_std), ACTION_MASK)
    np.testing.assert_allclose(greedy[:, :2], np.tanh(mean[:, :2]), rtol=1e-6)
    assert greedy[:, 2].tolist() == [0] * 4

    def density(policy):
        return sample_action(policy, noise, ACTION_MASK)[1].sum()

    gradient = jax.jit(jax.grad(density))(policy_of(mean, log_std))
    assert not gradient.mean[:, 2].any() and not gradient.log_std[:, 2].any()
    assert gradient.mean[:, :2].all() and gradient.log_std[:, :2].all()
