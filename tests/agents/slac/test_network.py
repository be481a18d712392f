"""SLAC's networks: latents of first and following frames, what the actor reads."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from rcrl_jax.agents.slac import network as slac


def window():
    rng = np.random.default_rng(1)
    length, batch = 4, 2
    arrays = [rng.normal(size=(length, batch, n)).astype(np.float32) for n in (2, 8, 2, 3)]
    actions, features = (x.swapaxes(0, 1) for x in arrays[:2])
    is_first = np.zeros((batch, length), bool)
    is_first[1, 2] = True  # an episode starts within the second window
    return actions, features, is_first, slac.Latents(*arrays[2:])


def test_nothing_passes_from_an_episode_to_the_next():
    actions, features, is_first, noise = window()
    model = slac.LatentModel(filters=1, z1_size=2, z2_size=3, hidden=4)
    image, action = jnp.zeros((1, 64, 64, 3)), jnp.zeros((1, 2))
    params = jax.jit(model.init)(jax.random.key(0), image, action)
    run = jax.jit(functools.partial(slac.filter_window, model))
    before = jax.block_until_ready(run(params, actions, features, is_first, noise))
    actions[1, :3] += 1.0  # up to what led to the first frame
    features[1, :2] -= 1.0
    after = run(params, actions, features, is_first, noise)
    for x, y in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        np.testing.assert_array_equal(x[:, 0], y[:, 0])
        np.testing.assert_array_equal(x[2:, 1], y[2:, 1])
        assert np.any(x[:2, 1] != y[:2, 1])


def test_the_actor_reads_the_first_frame_in_place_of_those_before_it():
    features = np.arange(8, dtype=np.float32).reshape(2, 4, 1)
    actions = np.float32([[[1], [2], [3]], [[4], [5], [6]]])
    is_first = np.array([[True, False, True, False], [False] * 4])
    found, led_by = slac.from_first(features, actions, is_first)
    assert found[..., 0].tolist() == [[2, 2, 2, 3], [4, 5, 6, 7]]
    assert led_by[..., 0].tolist() == [[0, 0, 3], [4, 5, 6]]


def test_log_standard_deviations_are_clipped():
    actor = slac.Actor(4, 2, -0.5, 0.25)
    features, actions = np.zeros((1, 2, 3), np.float32), np.zeros((1, 1, 2), np.float32)
    params = jax.jit(actor.init)(jax.random.key(0), features, actions)
    params["params"]["Mlp_0"]["Dense_2"]["bias"] = jnp.float32([1.0, 2.0, 3.0, -3.0])
    policy = actor.apply(params, features, actions)
    assert policy.mean.tolist() == [[1.0, 2.0]] and policy.log_std.tolist() == [[0.25, -0.5]]
