"""Checks that need eight devices; `test_fleet_devices.py` runs them in separate processes.

python -m tests.training.sharded_fleets [--without_kernels] CHECK ...
"""

import functools
import pathlib
import sys
import time

import jax
import numpy as np

from rcrl_jax import native, types
from rcrl_jax.agents.make_agent import make_agent
from rcrl_jax.config import fields
from rcrl_jax.config.presets import ATARI_PRESETS
from rcrl_jax.envs.catch import make_catch
from rcrl_jax.envs.protocol import discrete_spec
from rcrl_jax.training import build
from rcrl_jax.training.fleet import Fleet
from rcrl_jax.training.history import History
from rcrl_jax.training.plan import Plan, RunId
from tests.training import toy, toy_control

CONFIG = fields.replace(
    ATARI_PRESETS["rcrl"],
    {
        "learn_start": 20, "n_step": 3, "batch_size": 8, "hidden_size": 32, "target_period": 10,
        "learning_rate": 1e-3, "max_episode_steps": 100, "replay.capacity": 35,
        "return_contrast.batch_size": 8, "return_contrast.discriminator_hidden": 32,
    },
)  # fmt: skip
STEPS = 45  # 25 updates, two of the target network; the ring wraps
EARLY = 35  # 15 updates, one of the target network; rounding errors are still small
SEEDS = (3, 1, 4, 15, 9)


def _train(config, seeds, steps, make_environment, **options):
    """Parameters, priorities and actions of each run after `steps`, and parameters after EARLY."""
    runs = tuple(RunId("Catch", seed) for seed in seeds)
    plan = Plan("toy", config, runs, steps, pathlib.Path(), 1, make_environment, **options)
    environment, fleet = build.make_fleet(plan)
    replay = build.make_replay(fleet, plan.frame_store)
    history = History(len(seeds), steps, fleet.agent.action.shape)
    for step in toy.training(fleet, environment, steps, replay=replay, history=history):
        if step.state.step == EARLY:
            early = fleet.to_host(step.state.learner.params)
    params = fleet.to_host(step.state.learner.params)
    return params, replay.state.priorities, history.state.actions, early


@functools.cache
def train(seeds, max_num_actions=3, *, batching="map", devices=1, frame_store="host"):
    """Returns `_train` after STEPS steps of Catch."""

    def make_environment(_):
        environment = make_catch(np.array(seeds))
        environment.spec = discrete_spec((84, 84), max_num_actions)
        return environment

    return _train(
        CONFIG, seeds, STEPS, make_environment,
        batching=batching, num_devices=devices, frame_store=frame_store,
    )  # fmt: skip


PIXELS = toy_control.make_config("rcrl_curl_sac", {"replay.capacity": 30})
PIXEL_STEPS = 36  # 16 updates, 8 of the target networks; the ring wraps
PIXEL_SEEDS, COMPONENTS = (3, 1, 4), (2, 1, 3)


@functools.cache
def train_from_pixels(seeds, components, *, devices=1):
    """Parameters and actions of each run of SAC after PIXEL_STEPS steps of Reach."""

    def make_environment(_):
        return toy_control.Reach(np.array(seeds), components, "pixels")

    params, _, actions, _ = _train(
        PIXELS, seeds, PIXEL_STEPS, make_environment, num_devices=devices
    )
    return params, actions


def run_of(result, r):
    return jax.tree.map(lambda x: x[r], result)


def assert_equal(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


def alone():
    """The five runs, each in a separate fleet."""
    return [run_of(train((seed,)), 0) for seed in SEEDS]


def check_sharded_equals_alone():
    """Five runs on eight devices, where runs are repeated, equal, bit for bit, the runs alone."""
    whole = train(SEEDS, devices=8)
    for r, own in enumerate(alone()):
        assert_equal(run_of(whole, r), own)


def check_pixels_sharded_equal_alone():
    """Three runs of SAC on two devices, where one run is repeated, equal the runs alone."""
    whole = train_from_pixels(PIXEL_SEEDS, COMPONENTS, devices=2)
    for r, (seed, own) in enumerate(zip(PIXEL_SEEDS, COMPONENTS, strict=True)):
        assert_equal(run_of(whole, r), run_of(train_from_pixels((seed,), (own,)), 0))


def check_several_runs_on_a_device_equal_the_runs_alone():
    """On three devices, two of which have two runs; their frames lie on the devices."""
    whole = train(SEEDS, frame_store="device", devices=3)
    for r, own in enumerate(alone()):
        assert_equal(run_of(whole, r), own)


def check_vmap_equals_map():
    """Early actions are equal, and early parameters within rounding.

    Later, rounding can activate a unit in one of the two only. Their parameters then differ by
    whole steps of the optimiser.
    """
    batched = train(SEEDS[:2], batching="vmap")
    for r, own in enumerate(alone()[:2]):
        ours = run_of(batched, r)
        np.testing.assert_array_equal(own[2][:EARLY], ours[2][:EARLY])
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), own[3], ours[3]
        )


def check_padded_actions_are_unused():
    """Padding the action set changes no action, is never chosen, and is not learned."""
    seeds = (1, 2)
    own, padded = train(seeds[:1]), train(seeds, 7)
    assert padded[2].max() < 3
    np.testing.assert_array_equal(own[2], padded[2][:1])
    agent = make_agent(CONFIG, discrete_spec((84, 84), 7))
    constants = jax.tree.map(lambda x: np.repeat(x, 2), agent.run_constants("Catch"))
    start = Fleet(agent, seeds, types.RunSpec((3, 3), constants)).init()
    embedding = padded[0].agent["params"]["action_embedding"]
    initial = np.asarray(start.params.agent["params"]["action_embedding"])
    np.testing.assert_array_equal(embedding[0, 3:], initial[0, 3:])  # no gradient
    assert np.all(np.any(embedding[0, :3] != initial[0, :3], axis=-1))


if __name__ == "__main__":
    assert jax.device_count() == 8
    names = sys.argv[1:]
    if names[0] == "--without_kernels":
        native.get = lambda name: None
        del names[0]
    for name in names:
        started = time.perf_counter()
        globals()[name]()
        print(f"{name} passed in {time.perf_counter() - started:.1f} s", flush=True)
