"""The prediction of memory, disk space and time, and which fleets are refused."""

import datetime

import jax
import numpy as np
import pytest

from rcrl_jax import types
from rcrl_jax.agents.make_agent import make_agent
from rcrl_jax.config.presets import ATARI_PRESETS, DMC_PRESETS
from rcrl_jax.envs import dmc
from rcrl_jax.envs.protocol import control_spec, discrete_spec
from rcrl_jax.training import prediction
from rcrl_jax.training.fleet import Fleet


def fleet_of(agent, runs: int, **options) -> Fleet:
    valid = np.full(runs, 6, np.int32)
    constants = jax.tree.map(lambda x: np.repeat(x, runs), agent.run_constants("Alien"))
    return Fleet(agent, range(runs), types.RunSpec(valid, constants), **options)


def test_a_fleet_that_does_not_fit_is_refused_with_the_numbers():
    memory = prediction.Memory(host=10 * 2**30, device=0, host_limit=4 * 2**30, device_limit=None)
    with pytest.raises(prediction.DoesNotFit, match=r"10\.0 GiB of host.* 4\.0 GiB.*: 8 run"):
        prediction.check(memory, num_runs=20)
    device = prediction.Memory(2**30, 9 * 2**30, 4 * 2**30, 3 * 2**30)
    with pytest.raises(prediction.DoesNotFit, match=r"9\.0 GiB of device"):
        prediction.check(device, num_runs=3)
    prediction.check(prediction.Memory(2**30, 2**30, 2**30, 2**30), num_runs=1)


def test_predicted_memory_grows_with_the_runs():
    spec = discrete_spec((84, 84), 6)
    agent = make_agent(ATARI_PRESETS["rcrl"], spec)
    one, two = (
        prediction.predict_memory(fleet_of(agent, runs), spec, "host").host for runs in (1, 2)
    )
    frames = 100_002 * 225 * 25
    assert frames < one < 1.5 * frames
    # A CPU updates runs one after the other: it holds the activations of one run.
    assert 1.8 * one < two < 2 * one


def test_predicted_memory_holds_the_rendering_environments_of_evaluations():
    spec = control_spec((100, 100, 3), 6)._replace(host_bytes=dmc.RENDERER_BYTES)
    agent = make_agent(DMC_PRESETS["sac_aug"], spec)
    one, two = (
        prediction.predict_memory(fleet_of(agent, runs, batching="map"), spec, "host").host
        for runs in (1, 2)
    )
    assert two - one > 100_001 * 100 * 100 * 3 + 11 * dmc.RENDERER_BYTES


def test_the_disk_holds_three_checkpoints_of_every_learner():
    agent = make_agent(DMC_PRESETS["state_sac"], control_spec((24,), 6))
    fleet = fleet_of(agent, 3)
    learner = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(jax.eval_shape(fleet.init)))
    actions = 3 * 1000 * 6 * 4
    needed = prediction.predict_disk(fleet, 1000)
    assert 3 * (learner + actions) < needed < 3 * (learner + actions) + 3 * 64 * 2**20


def test_the_prediction_is_one_line():
    now = datetime.datetime(2026, 1, 31, 23, 0)
    on_host = prediction.describe(prediction.Memory(3 * 2**29, 0, 0, None), 0.018, 5000, now)
    assert on_host == (
        "predicted: 1.5 GiB of host memory; 18.0 ms an update, 2 min of updates to go: "
        "not before 23:01 (31 Jan)"
    )
    on_device = prediction.describe(prediction.Memory(2**30, 2**31, 0, None), 0.36, 20_000, now)
    assert "1.0 GiB of host memory and 2.0 GiB on each device" in on_device
    assert "not before 01:00 (01 Feb)" in on_device
