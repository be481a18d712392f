"""Adafactor equals the equations of Tensor2Tensor's, written in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rcrl_jax.ops import adafactor


def rms(x):
    return np.sqrt(np.mean(np.square(x)))


def by_hand(gradients, parameter, rates):
    """Steps of one parameter; a matrix is factored over its last two axes."""
    rows = columns = whole = 0.0
    for step, (gradient, rate) in enumerate(zip(gradients, rates, strict=True)):
        keep = 1.0 - (step + 1.0) ** -0.8
        squares = np.square(gradient) + 1e-30
        if parameter.ndim < 2:
            whole = keep * whole + (1 - keep) * squares
            update = gradient / np.sqrt(whole)
        else:
            rows = keep * rows + (1 - keep) * squares.mean(-1)
            columns = keep * columns + (1 - keep) * squares.mean(-2)
            scale = rows / rows.mean(-1, keepdims=True)
            update = gradient / np.sqrt(scale[..., None] * columns[..., None, :])
        update = update / max(1.0, rms(update))
        parameter = parameter - rate * max(rms(parameter), 1e-3) * update
    return parameter


def schedule(step):
    return 0.1 * (step + 1)


@pytest.mark.parametrize("shape", [(7,), (2, 3), (4, 4, 6, 8)])
def test_steps_equal_the_equations_and_every_matrix_is_factored(shape):
    rng = np.random.default_rng(0)
    parameter = rng.normal(size=shape)
    gradients = 1e-2 * rng.normal(size=(3, *shape))  # too small to be clipped
    optimizer = adafactor.make_adafactor(schedule, max_norm=1.0)
    found = jnp.asarray(parameter, jnp.float32)
    state, step = optimizer.init(found), jax.jit(optimizer.step)
    for gradient in gradients:
        found, state, norm = step(jnp.asarray(gradient, jnp.float32), state, found)
        assert norm == pytest.approx(np.linalg.norm(gradient), rel=1e-5)
    expected = by_hand(gradients, parameter, [0.1, 0.2, 0.3])
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=1e-6)
    sizes = [leaf.size for leaf in jax.tree.leaves(state)]
    if len(shape) > 1:
        assert max(sizes) < parameter.size


def test_the_norm_of_all_gradients_is_clipped_before_the_moments():
    """Only where a later gradient is smaller: a common factor of all has no effect."""
    rng = np.random.default_rng(0)
    parameter, gradients = rng.normal(size=6), rng.normal(size=(2, 6))
    gradients *= np.array([[100.0], [0.1]]) / np.linalg.norm(gradients, axis=1, keepdims=True)
    optimizer = adafactor.make_adafactor(schedule, max_norm=1.0)
    found = jnp.asarray(parameter, jnp.float32)
    state = optimizer.init(found)
    for gradient in gradients:
        found, state, _ = optimizer.step(jnp.asarray(gradient, jnp.float32), state, found)
    clipped = gradients * np.array([[0.01], [1.0]])
    np.testing.assert_allclose(found, by_hand(clipped, parameter, [0.1, 0.2]), rtol=1e-4)
