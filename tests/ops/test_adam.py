"""Adam, by the kernel on the CPU and by optax elsewhere."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rcrl_jax.ops import adam, native

needs_kernel = pytest.mark.skipif(native.get("adam") is None, reason="adam.cc is not compiled")
SHAPES = {"kernel": (130, 128), "bias": (3,), "scale": ()}  # more numbers than one task has


@pytest.fixture(params=[pytest.param("kernel", marks=needs_kernel), "optax"])
def path(request, monkeypatch) -> str:
    if request.param == "optax":
        monkeypatch.setattr(native, "get", lambda name: None)
    return request.param


def draw(seed: int, scale: float = 1.0):
    rng = np.random.default_rng(seed)
    return {k: jnp.asarray(scale * rng.normal(size=s), jnp.float32) for k, s in SHAPES.items()}


def assert_equal(found, expected):
    jax.tree.map(np.testing.assert_array_equal, found, expected)


class Slow:
    """Adam of one array in float64, as its paper writes it."""

    def __init__(self, params, learning_rate=0.01, b1=0.9, b2=0.999, eps=1e-8, max_norm=math.inf):
        self.params = np.asarray(params, np.float64)
        self.mu, self.nu, self.count = np.zeros_like(self.params), np.zeros_like(self.params), 0
        self.constants = learning_rate, b1, b2, eps, max_norm

    def step(self, gradients) -> float:
        learning_rate, b1, b2, eps, max_norm = self.constants
        g = np.asarray(gradients, np.float64)
        norm = np.sqrt(np.sum(g**2))
        g = g * min(1.0, max_norm / norm)
        self.count += 1
        self.mu = b1 * self.mu + (1 - b1) * g
        self.nu = b2 * self.nu + (1 - b2) * g**2
        mu_hat, nu_hat = self.mu / (1 - b1**self.count), self.nu / (1 - b2**self.count)
        self.params = self.params - learning_rate * mu_hat / (np.sqrt(nu_hat) + eps)
        return norm


def flat(tree) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


@pytest.mark.parametrize(
    "constants",
    [
        {},
        {"max_norm": 50.0},  # the gradients below have norms of 13, 129 and 1290
        {"b1": 0.5, "b2": 0.9, "eps": 1.5e-4, "max_norm": 10.0},
    ],
)
def test_steps_are_those_of_the_paper(path, constants):
    params = draw(0)
    optimizer = adam.make_adam(0.01, **constants)
    slow, state, step = (
        Slow(flat(params), **constants),
        optimizer.init(params),
        jax.jit(optimizer.step),
    )
    for i, scale in enumerate((0.1, 1.0, 10.0, 1.0, 0.1)):
        gradients = draw(1 + i, scale)
        params, state, norm = step(gradients, state, params)
        np.testing.assert_allclose(norm, slow.step(flat(gradients)), rtol=1e-6)
        # Optax computes the corrections of the moments in float32; a step is 0.01.
        error = 1e-7 if path == "kernel" else 1e-6
        np.testing.assert_allclose(flat(params), slow.params, rtol=2e-7, atol=error)
        np.testing.assert_allclose(flat(optax.tree.get(state, "mu")), slow.mu, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(flat(optax.tree.get(state, "nu")), slow.nu, rtol=1e-5, atol=1e-9)
        assert optax.tree.get(state, "count") == i + 1


def test_the_state_is_that_of_optax():
    params = draw(0)
    plain = optax.adam(0.1)
    clipped = optax.chain(optax.clip_by_global_norm(1.0), plain)
    for made, right in ((adam.make_adam(0.1), plain), (adam.make_adam(0.1, max_norm=1.0), clipped)):
        state = made.init(params)
        assert jax.tree.structure(state) == jax.tree.structure(right.init(params))
        _, after, _ = made.step(draw(1), state, params)
        assert jax.tree.structure(after) == jax.tree.structure(state)


def test_steps_after_a_restart_of_the_count_by_hand():
    """Two gradients of 1, a restart, a third: without the restart each step would be 1."""
    optimizer = adam.make_tensorflow_adam(1.0, eps=1e-20, b1=0.5, b2=0.75, max_norm=10.0)
    params, state = jnp.zeros(()), optimizer.init(jnp.zeros(()))
    for _ in range(2):
        params, state, _ = optimizer.step(jnp.ones(()), state, params)
    assert params == pytest.approx(-2.0)
    kept, again = (adam.restart_count(state, jnp.bool_(due)) for due in (False, True))
    assert_equal(kept, state)
    assert optax.tree.get(again, "mu") == 0.75 and optax.tree.get(again, "nu") == 0.4375
    after, again, _ = optimizer.step(jnp.ones(()), again, params)
    # m = 0.875, v = 0.578125, and sqrt(1 - 0.75) / (1 - 0.5) = 1.
    assert after - params == pytest.approx(-0.875 / 0.578125**0.5)
    assert optax.tree.get(again, "count") == 1


def test_a_restarted_phase_of_simple_takes_shorter_steps():
    """The factor of an old state's steps is 0.365 at first, 0.30 over 58, 0.97 over 7000."""
    optimizer = adam.make_tensorflow_adam(1.0, eps=1e-20, b1=0.85, b2=0.997)
    start = jnp.zeros(())
    old = optax.tree.set(
        optimizer.init(start), count=jnp.int32(10**6), mu=jnp.ones(()), nu=jnp.ones(())
    )

    def step(carried, _):
        params, state, _ = optimizer.step(jnp.ones(()), carried[1], carried[0])
        return (params, state), params

    _, path = jax.lax.scan(step, (start, adam.restart_count(old, jnp.bool_(True))), length=7000)
    assert path[0] == pytest.approx(-np.sqrt(0.003) / 0.15, rel=1e-4)
    assert path[57] / 58 == pytest.approx(-0.30, abs=0.005)
    assert path[-1] / 7000 == pytest.approx(-0.97, abs=0.005)
    _, path = jax.lax.scan(step, (start, old), length=58)
    assert path[-1] == pytest.approx(-58, rel=1e-4)


def test_what_is_not_due_changes_nothing(path):
    params, optimizer = draw(0), adam.make_adam(0.1, max_norm=1.0)
    step = jax.jit(optimizer.step)
    params, state, _ = step(draw(1), optimizer.init(params), params, True)
    found = step(draw(2), state, params, False)
    assert_equal(found[:2], (params, state))
    assert found[2] > 0  # the norm is told all the same
    moved = step(draw(2), state, params, True)
    assert np.all(flat(moved[0]) != flat(params))
    assert optax.tree.get(moved[1], "count") == 2


def test_a_gradient_too_large_for_its_norm_is_not_clipped_without_a_limit(path):
    """The norm is infinite in float32; parameters whose gradients are ordinary step as ever."""
    params, optimizer = draw(0), adam.make_adam(0.25)
    gradients = draw(1) | {"scale": jnp.float32(1e30)}
    new, _, norm = optimizer.step(gradients, optimizer.init(params), params)
    assert np.isinf(norm)
    moved = np.abs(flat(new) - flat(params))
    np.testing.assert_allclose(moved[:-1], 0.25, rtol=1e-3)


def test_numbers_that_are_not_finite_show(path):
    params, optimizer = draw(0), adam.make_adam(0.1, max_norm=1.0)
    gradients = draw(1) | {"bias": jnp.array([0.0, jnp.nan, 0.0])}
    new, _, norm = optimizer.step(gradients, optimizer.init(params), params)
    assert np.isnan(norm) and np.all(np.isnan(flat(new)))


@needs_kernel
@settings(max_examples=20)
@given(st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_each_run_of_a_fleet_steps_as_if_alone(num_runs, seed):
    """Bit for bit, with a norm, a number of steps and a due step of its own."""
    optimizer = adam.make_adam(0.1, max_norm=100.0)
    runs = []
    for i in range(num_runs):
        params = draw((seed, i))
        state = optax.tree.set(optimizer.init(params), count=jnp.int32(i))
        runs.append((draw((seed, i, 1), 10.0**i), state, params, jnp.array(i != 2)))
    together = jax.vmap(optimizer.step)(*jax.tree.map(lambda *rows: jnp.stack(rows), *runs))
    for i, run in enumerate(runs):
        assert_equal(jax.tree.map(lambda x, i=i: x[i], together), optimizer.step(*run))


@needs_kernel
def test_what_does_not_fit_together_is_refused():
    call = jax.ffi.ffi_call(
        "rcrl_adam_step",
        [jax.ShapeDtypeStruct((), jnp.float32), *[jax.ShapeDtypeStruct((3,), jnp.float32)] * 3],
    )
    constants = dict.fromkeys(("learning_rate", "b1", "b2", "eps", "max_norm"), np.float64(0.5))

    def step(*arguments):  # an error may come after the call returns
        return jax.block_until_ready(call(*arguments, **constants))

    x = jnp.ones(3)
    with pytest.raises(Exception, match="four arrays a leaf"):
        step(jnp.int32(1), x, x, x)
    with pytest.raises(Exception, match="count must be int32"):
        step(jnp.float32(1), x, x, x, x)
    for count in (jnp.ones(2, jnp.int32), jnp.ones(0, jnp.int32)):
        with pytest.raises(Exception, match="each run needs a norm"):
            step(count, x, x, x, x)
    with pytest.raises(Exception, match="same shape"):
        step(jnp.int32(1), jnp.ones(2), x, x, x)
    with pytest.raises(Exception, match="float32"):
        step(jnp.int32(1), jnp.ones(3, jnp.int32), x, x, x)
    with pytest.raises(Exception, match="in place"):
        step(jnp.int32(1), x, x, x, x)


@needs_kernel
def test_the_kernel_is_for_the_cpu_alone():
    optimizer, params = adam.make_adam(0.1), draw(0)
    traced = jax.jit(optimizer.step).trace(draw(1), optimizer.init(params), params)
    assert "rcrl_adam_step" in traced.lower(lowering_platforms=("cpu",)).as_text()
    assert "rcrl_adam_step" not in traced.lower(lowering_platforms=("cuda",)).as_text()


@pytest.mark.parametrize(("b1", "b2"), [(0.9, 0.999), (0.85, 0.997)])
def test_tensorflow_s_epsilon_is_added_before_the_correction(b1, b2):
    """As optax with an epsilon that falls as the correction of the second moment does."""
    rng = np.random.default_rng(0)
    params = {"kernel": np.float32(rng.normal(size=(3, 4)))}
    mine = adam.make_tensorflow_adam(0.01, eps=1e-4, max_norm=1.0, b1=b1, b2=b2)
    state, found = mine.init(params), params
    m = v = np.zeros((3, 4))
    expected = params["kernel"].astype(np.float64)
    for t in range(1, 6):
        gradient = np.float32(rng.normal(size=(3, 4)) * 10.0 ** rng.integers(-5, 1))
        found, state, norm = mine.step({"kernel": gradient}, state, found)
        length = np.sqrt(np.sum(np.square(gradient.astype(np.float64))))
        assert norm == pytest.approx(length, rel=1e-5)
        clipped = gradient / max(length, 1.0)
        m, v = b1 * m + (1 - b1) * clipped, b2 * v + (1 - b2) * clipped**2
        eps = 1e-4 / np.sqrt(1 - b2**t)
        expected -= 0.01 * (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + eps)
        np.testing.assert_allclose(found["kernel"], expected, rtol=1e-4, atol=1e-6)


def test_tensorflow_s_adam_waits_until_a_step_is_due():
    params = {"kernel": np.ones((2, 2), np.float32)}
    made = adam.make_tensorflow_adam(0.1, eps=1e-7)
    start = made.init(params)
    found, state, _ = made.step(params, start, params, False)
    np.testing.assert_array_equal(found["kernel"], params["kernel"])
    assert state.count == 0
