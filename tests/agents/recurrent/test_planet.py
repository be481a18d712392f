"""The planner finds the optimum of known objectives, within the bounds and the run's components."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rcrl_jax.agents.recurrent.planet import cross_entropy_method

SIZES = {"horizon": 3, "iterations": 10, "candidates": 500, "best": 50}
TARGET = np.float32([[0.5, -0.3], [-0.7, 0.1], [0.0, 0.9]])


def plan(objective, mask=(True, True), key=0, **changes):
    make = functools.partial(cross_entropy_method, objective, **(SIZES | changes))
    return jax.jit(make)(jax.random.key(key), jnp.array(mask))


def quadratic(actions, key):
    del key
    return -jnp.sum(jnp.square(actions - TARGET[None]), axis=(1, 2))


def test_the_optimum_of_a_quadratic_is_found():
    np.testing.assert_allclose(plan(quadratic), TARGET, atol=0.02)


def test_candidates_are_clipped():
    seen = []

    def outwards(actions, key):
        jax.debug.callback(lambda x: seen.append(np.abs(x).max()), actions)
        return jnp.sum(actions, axis=(1, 2))

    np.testing.assert_allclose(plan(outwards), 1.0, atol=0.01)
    jax.effects_barrier()
    assert len(seen) == SIZES["iterations"] and max(seen) == 1.0


def test_components_that_a_run_lacks_stay_zero():
    found = plan(quadratic, mask=(True, False))
    np.testing.assert_allclose(found[:, 0], TARGET[:, 0], atol=0.02)
    assert not found[:, 1].any()


@pytest.mark.parametrize("best", [1, 4, 8])
def test_every_plan_starts_from_the_same_normal_and_fits_the_best_alone(best):
    """One iteration fits the best of standard normal draws: no earlier plan enters."""
    first = plan(quadratic, iterations=1, candidates=8, best=best)
    keys = jax.random.split(jax.random.split(jax.random.key(0), 1)[0])
    drawn = np.clip(jax.random.normal(keys[0], (8, 3, 2)), -1, 1)
    order = np.argsort(-np.asarray(quadratic(drawn, None)))
    np.testing.assert_allclose(first, drawn[order[:best]].mean(0), atol=1e-6)
