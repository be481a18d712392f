"""Checks that need eight devices; `test_fleet_devices.py` runs them in a process of their own."""

import dataclasses
import functools
import sys

import jax
import numpy as np

from rcrl_jax.agents import families, rainbow
from rcrl_jax.config.presets import ATARI_PRESETS
from rcrl_jax.envs.agent_view import AgentEnvironment
from rcrl_jax.envs.catch import make_catch
from rcrl_jax.envs.protocol import EnvironmentSpec
from rcrl_jax.training import experiment, loop
from rcrl_jax.training.fleet import Fleet
from rcrl_jax.training.history import History
from tests.training import toy_control

CONFIG = dataclasses.replace(
    ATARI_PRESETS["rcrl"], learn_start=40, n_step=3, batch_size=8, contrast_batch_size=8,
    hidden_size=32, discriminator_hidden=32, replay_capacity=200, target_period=20,
    learning_rate=1e-3,
)  # fmt: skip
STEPS = 240  # 200 updates; the ring of 200 slots wraps
SEEDS, ACTIONS = (3, 1, 4, 15, 9), (3,) * 5


@functools.cache
def train(seeds, num_actions, padded_to, *, lift="map", devices=1, frame_store="host", steps=STEPS):
    """Parameters, priorities and actions of each run after so many steps of Catch."""
    environment = AgentEnvironment(
        make_catch(np.array(seeds)),
        stack_size=CONFIG.frame_stack,
        life_loss_ends_episode=True,
        clip_rewards=True,
        max_episode_steps=100,
    )
    agent = rainbow.make_agent(CONFIG, EnvironmentSpec((84, 84), padded_to))
    fleet = Fleet(agent, seeds, num_actions, lift=lift, devices=jax.devices()[:devices])
    replay = experiment.make_replay(CONFIG, fleet, seeds, frame_store)
    history = History(len(seeds), steps)
    start = loop.LoopState(0, fleet.init(), environment.reset(), None)
    *_, last = loop.train(
        start, fleet=fleet, environment=environment, replay=replay, history=history,
        config=CONFIG, total_steps=steps,
    )  # fmt: skip
    params = fleet.to_host(last.state.learner.params)
    return params, replay.state.priorities, history.state.actions


PIXELS = toy_control.make_config("rcrl_curl_sac", replay_capacity=30)
PIXEL_STEPS = 50  # 30 updates; the ring wraps
PIXEL_SEEDS, COMPONENTS = (3, 1, 4), (2, 1, 3)


@functools.cache
def train_from_pixels(seeds, components, *, devices=1):
    """Parameters and actions of each run of SAC after PIXEL_STEPS steps of Reach."""
    environment = AgentEnvironment(
        toy_control.Reach(np.array(seeds), components, "pixels"),
        stack_size=PIXELS.frame_stack,
        life_loss_ends_episode=False,
        clip_rewards=False,
        max_episode_steps=100,
    )
    agent = families.make_agent(PIXELS, environment.spec)
    fleet = Fleet(agent, seeds, components, devices=jax.devices()[:devices])
    replay = experiment.make_replay(PIXELS, fleet, seeds, "host")
    history = History(len(seeds), PIXEL_STEPS, agent.action.shape)
    start = loop.LoopState(0, fleet.init(), environment.reset(), None)
    *_, last = loop.train(
        start, fleet=fleet, environment=environment, replay=replay, history=history,
        config=PIXELS, total_steps=PIXEL_STEPS,
    )  # fmt: skip
    return fleet.to_host(last.state.learner.params), history.state.actions


def run_of(result, r):
    return jax.tree.map(lambda x: x[r], result)


def assert_equal(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


def same_actions(one, other, steps):
    """Whether two runs took the same first actions: rounding has not changed a choice yet."""
    return np.array_equal(one[2][..., :steps], other[2][..., :steps])


def check_sharded_equals_alone():
    """Five runs on eight and on three devices are, bit for bit, the five runs alone."""
    whole = train(SEEDS, ACTIONS, 3)
    for devices in (8, 3):
        assert_equal(whole, train(SEEDS, ACTIONS, 3, devices=devices))
    for r, seed in enumerate(SEEDS):
        assert_equal(run_of(whole, r), run_of(train((seed,), (3,), 3), 0))


def check_pixels_sharded_equal_alone():
    """Three runs of SAC on two devices, one of which has a run to spare, are the runs alone."""
    whole = train_from_pixels(PIXEL_SEEDS, COMPONENTS, devices=2)
    for r, (seed, own) in enumerate(zip(PIXEL_SEEDS, COMPONENTS, strict=True)):
        assert_equal(run_of(whole, r), run_of(train_from_pixels((seed,), (own,)), 0))


def check_company_does_not_matter():
    other = train((7, SEEDS[2]), (3, 3), 3)
    assert_equal(run_of(train(SEEDS, ACTIONS, 3), 2), run_of(other, 1))


def check_device_store_equals_host_store():
    stored_on_devices = train(SEEDS, ACTIONS, 3, frame_store="device", devices=3)
    assert_equal(train(SEEDS, ACTIONS, 3), stored_on_devices)


def check_vmap_equals_map():
    """Within rounding, for as long as rounding has not changed an action or switched a unit."""
    steps = CONFIG.learn_start + 50
    mapped, batched = (train(SEEDS, ACTIONS, 3, lift=lift, steps=steps) for lift in ("map", "vmap"))
    same = [same_actions(run_of(mapped, r), run_of(batched, r), steps) for r in range(5)]
    assert any(same)
    for r in np.nonzero(same)[0]:
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-2, atol=1e-3),
            run_of(mapped[0], r), run_of(batched[0], r),
        )  # fmt: skip


def check_padded_actions():
    """A run whose actions are padded is the run without padding, and never chooses the padding."""
    own = train((1,), (3,), 3)
    padded = train((1, 2), (3, 3), 7)
    assert padded[2].max() < 3
    assert same_actions(own, run_of(padded, slice(0, 1)), CONFIG.learn_start + 50)
    start = Fleet(rainbow.make_agent(CONFIG, EnvironmentSpec((84, 84), 7)), (1,), (3,)).init()
    embedding = padded[0].agent["params"]["action_embedding"]
    initial = np.asarray(start.params.agent["params"]["action_embedding"])
    np.testing.assert_array_equal(embedding[0, 3:], initial[0, 3:])  # no gradient
    assert np.all(np.any(embedding[0, :3] != initial[0, :3], axis=-1))


if __name__ == "__main__":
    assert jax.device_count() == 8
    for name in sys.argv[1:] or [name for name in globals() if name.startswith("check_")]:
        globals()[name]()
        print(name, "passed")
