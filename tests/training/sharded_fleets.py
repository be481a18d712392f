"""Checks that need two devices; `test_fleet_devices.py` runs them in a process of their own."""

import jax

from rcrl_jax.ops import native
from tests.training import toy, toy_control

SEEDS = (3, 1, 4)  # two on the first device; the second has the last run, and repeats it
STEPS = 45  # 25 updates of Rainbow, two of its target network; the ring wraps
CONTROL_STEPS = 36  # 16 updates of SAC, 8 of its target networks; the ring wraps
COMPONENTS = {3: 2, 1: 1, 4: 3}  # seed -> size of the run's actions


def rainbow_plan(seeds, **options):
    changes = {"learn_start": 20, "target_period": 10, "replay.capacity": 35}
    return toy.make_plan("", seeds=seeds, overrides=changes, **options)


def control_plan(seeds, **options):
    changes = {"replay.capacity": 30, "auxiliary": ("return_contrast",)}
    own = [COMPONENTS[seed] for seed in seeds]
    return toy_control.make_plan("", "state_sac", own, seeds, changes, **options)


def check_equals_alone(plan_of, steps, **options):
    """A run of either device equals, bit for bit, the run alone."""
    whole = toy.trained(plan_of(SEEDS, num_devices=2, **options), steps)
    for r in (0, 2):
        alone = toy.trained(plan_of((SEEDS[r],)), steps)
        toy.assert_equal_trees(jax.tree.map(lambda x, r=r: x[r : r + 1], whole), alone)


if __name__ == "__main__":
    assert jax.device_count() == 2
    check_equals_alone(rainbow_plan, STEPS, frame_store="device")
    # XLA fuses more, and so rounds differently, where it has no kernels of ours to call.
    native.get = lambda name: None
    jax.clear_caches()
    check_equals_alone(control_plan, CONTROL_STEPS)
