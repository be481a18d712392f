"""Fleets on two simulated devices, and the update lowered for accelerators."""

import os
import subprocess
import sys

import jax
import numpy as np
import pytest

from rcrl_jax import types
from rcrl_jax.agents.make_agent import make_agent
from rcrl_jax.config.presets import ATARI_PRESETS
from rcrl_jax.envs.protocol import control_spec, discrete_spec
from rcrl_jax.replay.frames import device_frame_size
from rcrl_jax.training import prediction
from rcrl_jax.training.fleet import Fleet
from tests.training import toy, toy_control


def test_fleets_on_two_devices():
    """Equality to the last bit is checked on fully optimised code, as users run it."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.training.sharded_fleets"],
        env={**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


def test_update_lowers_for_accelerators():
    """With frames of the host; `test_device_programs.py` lowers with those of the device."""
    runs = 2
    agent = make_agent(ATARI_PRESETS["rcrl_curl"], discrete_spec((84, 84), 18))
    constants = jax.tree.map(lambda x: np.repeat(x, runs), agent.run_constants("Pong"))
    specs = types.RunSpec([6, 18], constants)
    fleet = Fleet(agent, range(runs), specs, batching="vmap")
    batch = prediction.empty_batch(agent, runs, "host")
    toy.assert_lowers_for_accelerators(fleet, batch)


def test_update_does_not_copy_stored_frames():
    """The update needs less memory than the frames of one run."""
    settings, runs, slots = toy_control.make_config("sac_aug"), 3, 100_000
    shape = (toy_control.SIZE, toy_control.SIZE, 3)
    agent = make_agent(settings, control_spec(shape, toy_control.MAX_NUM_ACTIONS))
    fleet = Fleet(agent, range(runs), types.RunSpec([2] * runs), batching="map")
    batch = prediction.empty_batch(agent, runs, "device")
    stored = agent.observations.stored
    frames = jax.ShapeDtypeStruct((runs, slots, device_frame_size(stored)), stored.dtype)
    compiled = (
        fleet.programs.update[0]
        .lower(*fleet.update_arguments(jax.eval_shape(fleet.init), batch)[:-1], frames)
        .compile()
    )
    assert compiled.memory_analysis().temp_size_in_bytes < frames.size // runs // 4


@pytest.mark.parametrize("platform, batching", [("cpu", "map"), ("gpu", "vmap")])
def test_runs_are_batched_by_default_on_an_accelerator_alone(platform, batching):
    device = type("Device", (), {"platform": platform})()
    agent = make_agent(ATARI_PRESETS["rcrl"], discrete_spec((84, 84), 6))
    assert Fleet(agent, (0, 1), types.RunSpec((6, 6)), devices=[device]).batching == batching


def test_bad_fleets_are_refused():
    agent = make_agent(ATARI_PRESETS["rcrl"], discrete_spec((84, 84), 6))
    with pytest.raises(ValueError, match=r"2 seeds for run specifications of \[1\] runs"):
        Fleet(agent, (0, 1), types.RunSpec((6,)))
    with pytest.raises(ValueError, match=r"2 seeds for run specifications of \[1, 2\] runs"):
        Fleet(agent, (0, 1), types.RunSpec((6, 6), {"curl": np.ones(1)}))
