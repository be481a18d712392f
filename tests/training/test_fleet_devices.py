"""Fleets on eight simulated devices, and the update lowered for devices that are not here."""

import os
import subprocess
import sys

import jax
import numpy as np
import pytest

from rcrl_jax import observations
from rcrl_jax.agents import families, rainbow
from rcrl_jax.envs.protocol import EnvironmentSpec
from rcrl_jax.training import prediction
from rcrl_jax.training.fleet import Fleet
from tests.training import toy_control


def test_fleets_on_eight_devices():
    """Runs every check of `sharded_fleets.py`; they share what they train."""
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.training.sharded_fleets"],
        env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("preset", sorted(presets.ATARI_PRESETS))
@pytest.mark.parametrize("frame_store", ["host", "device"])
def test_the_update_lowers_for_accelerators(preset, frame_store):
    settings, runs = presets.ATARI_PRESETS[preset], 2
    agent = rainbow.make_agent(settings, EnvironmentSpec((84, 84), 18))
    fleet = Fleet(agent, range(runs), [6, 18], lift="vmap")
    batch = prediction.empty_batch(settings, agent, runs, frame_store)
    stored = observations.layouts_of(settings).stored.stored_shape
    frames = np.zeros((runs, 4, *stored), np.uint8) if frame_store == "device" else None
    exported = jax.export.export(fleet._update, platforms=("tpu", "cuda", "cpu"))(
        fleet._runs_here, fleet._runs, jax.eval_shape(fleet.init), batch, frames
    )
    assert set(exported.platforms) == {"tpu", "cuda", "cpu"}


@pytest.mark.parametrize("lift", ["map", "vmap"])
def test_stored_frames_are_read_where_they_are(lift):
    """No run's frames are copied for an update, let alone those of all."""
    settings, runs, slots = toy_control.make_config("sac_aug"), 3, 100_000
    spec = EnvironmentSpec(settings.frame_shape, toy_control.ROOM)
    fleet = Fleet(families.make_agent(settings, spec), range(runs), [2] * runs, lift=lift)
    batch = prediction.empty_batch(settings, fleet.agent, runs, "device")
    stored = observations.layouts_of(settings).stored
    frames = jax.ShapeDtypeStruct((runs, slots, *stored.stored_shape), stored.dtype)
    compiled = fleet._update.lower(
        fleet._runs_here, fleet._runs, jax.eval_shape(fleet.init), batch, frames
    ).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < frames.size // runs // 4


def test_bad_fleets_are_refused():
    agent = rainbow.make_agent(presets.ATARI_PRESETS["rcrl"], EnvironmentSpec((84, 84), 6))
    with pytest.raises(ValueError, match="lift"):
        Fleet(agent, (0,), (6,), lift="pmap")
    with pytest.raises(ValueError, match="2 seeds for 1"):
        Fleet(agent, (0, 1), (6,))
