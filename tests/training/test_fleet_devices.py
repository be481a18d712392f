"""Fleets on eight simulated devices, and the update lowered for accelerators."""

import dataclasses
import functools
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
from tests.conftest import FAST_COMPILATION
from tests.training import sharded_fleets, toy_control

# Equality to the last bit is checked on fully optimised code, as users run it. XLA fuses more where
# it has no kernels of ours to call; there, a plain `lax.map` over runs fails the check.
PROCESSES = {
    "optimised": ("", "check_several_runs_on_a_device_equal_the_runs_alone"),
    "by XLA alone": ("", "--without_kernels", "check_pixels_sharded_equal_alone"),
    "others": (
        FAST_COMPILATION,
        "check_sharded_equals_alone",
        "check_vmap_equals_map",
        "check_padded_actions_are_unused",
    ),
}


@pytest.mark.parametrize("name", PROCESSES)
def test_fleets_on_eight_devices(name):
    """Runs checks of `sharded_fleets.py` in one process, where they share trained runs."""
    flags, *checks = PROCESSES[name]
    eight = f"{flags} --xla_force_host_platform_device_count=8"
    done = subprocess.run(
        [sys.executable, "-m", "tests.training.sharded_fleets", *checks],
        env={**os.environ, "XLA_FLAGS": eight}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


def test_every_check_of_sharded_fleets_runs():
    carried_out = {word for words in PROCESSES.values() for word in words if "check_" in word}
    assert carried_out == {name for name in vars(sharded_fleets) if "check_" in name}


@functools.cache
def agent_of(preset):
    """The agent of a preset. Its update is traced once, for frames stored here or there."""
    agent = make_agent(ATARI_PRESETS[preset], discrete_spec((84, 84), 18))
    return dataclasses.replace(agent, update=jax.jit(agent.update, inline=True))


@pytest.mark.parametrize("frame_store", ["host", "device"])
@pytest.mark.parametrize("preset", ["rainbow", "rcrl_curl", "der_plus_rcrl"])  # all layouts
def test_update_lowers_for_accelerators(preset, frame_store):
    runs = 2
    agent = agent_of(preset)
    constants = jax.tree.map(lambda x: np.repeat(x, runs), agent.run_constants("Pong"))
    specs = types.RunSpec([6, 18], constants)
    fleet = Fleet(agent, range(runs), specs, batching="vmap")
    batch = prediction.empty_batch(agent, runs, frame_store)
    size = device_frame_size(agent.observations.stored)
    frames = np.zeros((runs, 4, size), np.uint8) if frame_store == "device" else None
    exported = jax.export.export(fleet.programs.update, platforms=("tpu", "cuda"))(
        *fleet.update_arguments(jax.eval_shape(fleet.init), batch)[:-1], frames
    )
    assert set(exported.platforms) == {"tpu", "cuda"}


@pytest.mark.parametrize("batching", ["map", "vmap"])
def test_update_does_not_copy_stored_frames(batching):
    """The update needs less memory than the frames of one run."""
    settings, runs, slots = toy_control.make_config("sac_aug"), 3, 100_000
    shape = (toy_control.SIZE, toy_control.SIZE, 3)
    agent = make_agent(settings, control_spec(shape, toy_control.MAX_NUM_ACTIONS))
    fleet = Fleet(agent, range(runs), types.RunSpec([2] * runs), batching=batching)
    batch = prediction.empty_batch(agent, runs, "device")
    stored = agent.observations.stored
    frames = jax.ShapeDtypeStruct((runs, slots, device_frame_size(stored)), stored.dtype)
    compiled = fleet.programs.update.lower(
        *fleet.update_arguments(jax.eval_shape(fleet.init), batch)[:-1], frames
    ).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < frames.size // runs // 4


def test_bad_fleets_are_refused():
    agent = make_agent(ATARI_PRESETS["rcrl"], discrete_spec((84, 84), 6))
    with pytest.raises(ValueError, match="batching"):
        Fleet(agent, (0,), types.RunSpec((6,)), batching="pmap")
    with pytest.raises(ValueError, match=r"2 seeds for run specifications of \[1\] runs"):
        Fleet(agent, (0, 1), types.RunSpec((6,)))
    with pytest.raises(ValueError, match=r"2 seeds for run specifications of \[1, 2\] runs"):
        Fleet(agent, (0, 1), types.RunSpec((6, 6), {"curl": np.ones(1)}))
