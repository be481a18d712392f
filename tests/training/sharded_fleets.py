"""Checks that need two devices; `test_fleet_devices.py` runs them in a process of their own."""

import pathlib

import jax
import numpy as np

from rcrl_jax import native
from rcrl_jax.envs.catch import make_catch
from rcrl_jax.training import build
from rcrl_jax.training.history import History
from rcrl_jax.training.plan import Plan, RunId
from tests.training import toy, toy_control

CONFIG = toy.make_config("rcrl", {"learn_start": 20, "target_period": 10, "replay.capacity": 35})
STEPS = 45  # 25 updates, two of the target network; the ring wraps

CONTROL_STEPS = 36  # 16 updates, 8 of the target networks; the ring wraps
COMPONENTS = {3: 2, 1: 1, 4: 3}  # seed -> size of the run's actions

SEEDS = (3, 1, 4)  # the second device has the last run, and repeats it


def train(config, seeds, steps, make_environment, **options):
    """Parameters, priorities and actions of each run after `steps`."""
    runs = tuple(RunId("Catch", seed) for seed in seeds)
    plan = Plan("toy", config, runs, steps, pathlib.Path(), 1, make_environment, **options)
    environment, fleet = build.make_fleet(plan)
    replay = build.make_replay(fleet, plan.frame_store)
    history = History(len(seeds), steps, fleet.agent.action.shape)
    *_, last = toy.training(fleet, environment, steps, replay=replay, history=history)
    params = fleet.to_host(last.state.learner.params)
    return params, replay.state.priorities, history.state.actions


def train_rainbow(seeds, **options):
    return train(CONFIG, seeds, STEPS, lambda _: make_catch(np.array(seeds)), **options)


def train_control(seeds, **options):
    changes = {"replay.capacity": 30, "auxiliary": ("return_contrast",)}
    config = toy_control.make_config("state_sac", changes)

    def make_environment(_):
        own = [COMPONENTS[seed] for seed in seeds]
        return toy_control.Reach(np.array(seeds), own, config.observation)

    return train(config, seeds, CONTROL_STEPS, make_environment, **options)


def check_equals_alone(train, **options):
    """Three runs on two devices equal, bit for bit, the runs alone."""
    whole = train(SEEDS, num_devices=2, **options)
    for r, seed in enumerate(SEEDS):
        toy.assert_equal_trees(jax.tree.map(lambda x, r=r: x[r : r + 1], whole), train((seed,)))


if __name__ == "__main__":
    assert jax.device_count() == 2
    check_equals_alone(train_rainbow, frame_store="device")
    # XLA fuses more, and so rounds differently, where it has no kernels of ours to call.
    native.get = lambda name: None
    jax.clear_caches()
    check_equals_alone(train_control)
