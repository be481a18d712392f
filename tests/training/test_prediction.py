"""What is said of a fleet before it starts, and which fleets are refused."""

import datetime

import jax
import numpy as np
import pytest

from rcrl_jax import config
from rcrl_jax.agents import families, rainbow
from rcrl_jax.envs.protocol import EnvironmentSpec
from rcrl_jax.training import prediction
from rcrl_jax.training.fleet import Fleet


def test_a_fleet_that_does_not_fit_is_refused_with_the_numbers():
    memory = prediction.Memory(host=10 * 2**30, device=0, host_limit=4 * 2**30, device_limit=None)
    with pytest.raises(prediction.DoesNotFit, match=r"10\.0 GiB of host.* 4\.0 GiB.*: 8 run"):
        prediction.check(memory, num_runs=20)
    device = prediction.Memory(2**30, 9 * 2**30, 4 * 2**30, 3 * 2**30)
    with pytest.raises(prediction.DoesNotFit, match=r"9\.0 GiB of device"):
        prediction.check(device, num_runs=3)
    prediction.check(prediction.Memory(2**30, 2**30, 2**30, 2**30), num_runs=1)


def test_predicted_memory_grows_with_the_runs_and_moves_with_the_frames():
    settings = config.ATARI_PRESETS["rcrl"]
    agent = rainbow.make_agent(settings, EnvironmentSpec((84, 84), 6))
    one, two = (
        prediction.predict_memory(settings, Fleet(agent, range(r), [6] * r), "host").host
        for r in (1, 2)
    )
    frames = 100_002 * 225 * 25
    assert frames < one < 1.5 * frames
    # The runs of a CPU are updated one after the other: activations are there once.
    assert 1.8 * one < two < 2 * one


def test_a_rendering_agent_s_memory_holds_the_environments_of_its_evaluations():
    settings = config.DMC_PRESETS["sac_aug"]
    agent = families.make_agent(settings, EnvironmentSpec(settings.frame_shape, 6))
    one, two = (
        prediction.predict_memory(settings, Fleet(agent, range(r), [6] * r, lift="map"), "host")
        for r in (1, 2)
    )
    a_renderer = 80 * 2**20
    assert two.host - one.host > 100_001 * 100 * 100 * 3 + 11 * a_renderer


def test_the_disk_holds_two_checkpoints_of_every_learner():
    settings = config.DMC_PRESETS["state_sac"]
    spec = EnvironmentSpec(settings.frame_shape, 6, np.float32)
    agent = families.make_agent(settings, spec)
    fleet = Fleet(agent, (0, 1, 2), [6] * 3)
    learner = sum(x.nbytes for x in jax.tree.leaves(fleet.to_host(fleet.init())))
    actions = 3 * 1000 * 6 * 4
    needed = prediction.predict_disk(fleet, 1000)
    assert 2 * (learner + actions) < needed < 2 * (learner + actions) + 3 * 64 * 2**20


def test_the_line_before_the_start():
    now = datetime.datetime(2026, 1, 31, 23, 0)
    on_host = prediction.describe(prediction.Memory(3 * 2**29, 0, 0, None), 0.018, 5000, now)
    assert on_host == (
        "predicted: 1.5 GiB of host memory; 18.0 ms an update, 2 min of updates to go: "
        "not before 23:01 (31 Jan)"
    )
    on_device = prediction.describe(prediction.Memory(2**30, 2**31, 0, None), 0.36, 20_000, now)
    assert "1.0 GiB of host memory and 2.0 GiB on each device" in on_device
    assert "not before 01:00 (01 Feb)" in on_device
