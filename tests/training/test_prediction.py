"""The prediction of memory, disk space and time, and which fleets are refused."""

import datetime
import pathlib
import re
import resource
import shutil
import tracemalloc

import jax
import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rcrl_jax import types
from rcrl_jax.agents.agent import Schedule
from rcrl_jax.agents.make_agent import make_agent
from rcrl_jax.agents.simple.settings import Rounds
from rcrl_jax.config import fields
from rcrl_jax.config.presets import ATARI_PRESETS, DMC_PRESETS, all_presets
from rcrl_jax.envs import dmc
from rcrl_jax.envs.protocol import control_spec, discrete_spec
from rcrl_jax.return_contrast import instruments
from rcrl_jax.training import prediction
from rcrl_jax.training.environments import environment_of
from rcrl_jax.training.fleet import Fleet
from rcrl_jax.training.history import History
from rcrl_jax.training.plan import Plan, RunId
from tests.training import toy, toy_simple


def fleet_of(agent, runs: int, **options) -> Fleet:
    valid = np.full(runs, 6, np.int32)
    constants = jax.tree.map(lambda x: np.repeat(x, runs), agent.run_constants("Alien"))
    return Fleet(agent, range(runs), types.RunSpec(valid, constants), **options)


def test_a_fleet_that_does_not_fit_is_refused_with_the_numbers():
    memory = prediction.MemoryNeeds(10 * 2**30, 0, host_limit=4 * 2**30, device_limit=None)
    says = r"10\.0 GiB of host.* 4\.0 GiB free, enough for 8 runs"
    with pytest.raises(prediction.DoesNotFit, match=says):
        prediction.check(memory, 20, all_presets()["rcrl"])
    device = prediction.MemoryNeeds(2**30, 9 * 2**30, 4 * 2**30, 3 * 2**30)
    with pytest.raises(prediction.DoesNotFit, match=r"9\.0 GiB of device"):
        prediction.check(device, 3, all_presets()["rcrl"])
    fits = prediction.MemoryNeeds(2**30, 2**30, 2**30, 2**30)
    for config in all_presets().values():
        prediction.check(fits, 1, config)
        with pytest.raises(prediction.DoesNotFit) as raised:
            prediction.check(memory, 20, config)
        named = re.findall(r"--config\.([\w.]+)", str(raised.value))
        assert named and {*named} <= {*fields.values(config)}


def test_limits_of_control_groups_count(tmp_path, monkeypatch):
    machine = psutil.virtual_memory()._replace(available=1000)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: machine)
    assert prediction.available_bytes(tmp_path) == 1000  # no groups
    (tmp_path / "proc/self").mkdir(parents=True)
    own = tmp_path / "proc/self/cgroup"
    own.write_text("2:memory:/of_version_1\n")
    assert prediction.available_bytes(tmp_path) == 1000
    own.write_text("2:cpu:/x\n0::/job/step\n")
    job, step = tmp_path / "sys/fs/cgroup/job", tmp_path / "sys/fs/cgroup/job/step"
    step.mkdir(parents=True)
    for group, limit in ((job, "700"), (step, "max")):
        (group / "memory.max").write_text(f"{limit}\n")
        (group / "memory.current").write_text("500\n")
        (group / "memory.stat").write_text("anon 400\nactive_file 20\ninactive_file 40\n")
    assert prediction.available_bytes(tmp_path) == 700 - 500 + 60
    (step / "memory.max").write_text("510\n")
    assert prediction.available_bytes(tmp_path) == 510 - 500 + 60
    own.write_text("0::/\n")  # as a container sees its own group
    assert prediction.available_bytes(tmp_path) == 1000


@pytest.mark.parametrize("own", ["docker/x", ""], ids=["own", "namespaced"])
def test_memory_limits_of_groups_of_version_1_count(tmp_path, monkeypatch, own):
    """A container may see its own group at the top, under the path that its host knows."""
    machine = psutil.virtual_memory()._replace(available=1000)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: machine)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("4:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n")
    group = tmp_path / "sys/fs/cgroup/memory" / own
    group.mkdir(parents=True)
    (group / "memory.limit_in_bytes").write_text("700\n")
    (group / "memory.usage_in_bytes").write_text("500\n")
    (group / "memory.stat").write_text("cache 60\ntotal_active_file 20\ntotal_inactive_file 40\n")
    assert prediction.available_bytes(tmp_path) == 700 - 500 + 60
    (group / "memory.limit_in_bytes").write_text("9223372036854771712\n")  # none
    assert prediction.available_bytes(tmp_path) == 1000


def test_the_limit_of_a_shell_counts(tmp_path, monkeypatch):
    """XLA aborts beyond `ulimit -v`."""
    used = psutil.Process().memory_info().vms
    monkeypatch.setattr(resource, "getrlimit", lambda which: (used + 2**30, -1))
    assert prediction.available_bytes(tmp_path) == pytest.approx(2**30, abs=2**28)


def test_predicted_memory_grows_with_the_runs():
    spec = discrete_spec((84, 84), 6)
    agent = make_agent(ATARI_PRESETS["rcrl"], spec)
    one, two = (
        prediction.predict_memory(fleet_of(agent, runs), spec, "host", 1000).host for runs in (1, 2)
    )
    frames = 100_002 * 225 * 25
    assert frames < one < 1.5 * frames
    # A CPU updates runs one after the other: it holds the activations of one run.
    assert 1.8 * one < two < 2 * one


def test_predicted_memory_holds_the_rendering_environments_of_evaluations():
    spec = control_spec((100, 100, 3), 6)._replace(host_bytes=dmc.RENDERER_BYTES)
    agent = make_agent(DMC_PRESETS["sac_aug"], spec)
    one, two = (
        prediction.predict_memory(fleet_of(agent, runs, batching="map"), spec, "host", 1000).host
        for runs in (1, 2)
    )
    needed = 100_001 * 100 * 100 * 3 + 11 * dmc.RENDERER_BYTES
    assert needed < two - one < 1.25 * needed


def test_predicted_memory_holds_the_recorded_games_of_final_evaluations():
    """However many are recorded of periodic ones."""
    spec, needed = discrete_spec((84, 84), 6), set()
    for episodes in (1, 10):
        config = fields.replace(ATARI_PRESETS["rcrl"], {"periodic_episodes": episodes})
        fleet = fleet_of(make_agent(config, spec), 1)
        needed.add(prediction.predict_memory(fleet, spec, "device", 100_000).host)
    assert len(needed) == 1 and needed.pop() > 10 * instruments.MOST_BYTES


@pytest.mark.parametrize("batching", ["map", "vmap"])
def test_each_device_needs_what_a_fleet_of_its_runs_needs(batching, monkeypatch):
    spec = discrete_spec((84, 84), 6)
    agent = make_agent(ATARI_PRESETS["rcrl"], spec)
    own, shared = (fleet_of(agent, runs, batching=batching) for runs in (2, 4))
    monkeypatch.setattr(shared, "num_devices", 2)
    for store in ("host", "device"):
        needed = prediction.predict_update_memory(own, store)
        assert prediction.predict_update_memory(shared, store) == needed


def test_the_disk_holds_three_checkpoints_of_every_learner():
    agent = make_agent(DMC_PRESETS["state_sac"], control_spec((24,), 6))
    fleet = fleet_of(agent, 3)
    learner = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(jax.eval_shape(fleet.init)))
    priorities = 3 * agent.replay.capacity * 8
    records = 3 * 32 * 2**20
    needed = prediction.predict_disk(fleet, 1000)
    assert needed == 3 * (learner + priorities + 3 * 1000 * 6 * 4) + records


def test_the_log_holds_a_byte_for_each_discrete_action():
    agent = make_agent(ATARI_PRESETS["rcrl"], discrete_spec((84, 84), 6))
    fleet, more = fleet_of(agent, 1), 10**6
    assert prediction.predict_disk(fleet, 2 * more) - prediction.predict_disk(fleet, more) == (
        3 * more
    )
    first, second = (
        prediction.predict_memory(fleet, discrete_spec((84, 84), 6), "host", steps).host
        for steps in (more, 2 * more)
    )
    assert second - first == 2 * more
    log = History(1, 2 * more).state.actions.nbytes - History(1, more).state.actions.nbytes
    assert log == more


def test_the_disk_holds_logged_frames_only_where_they_are_stored():
    needed = {}
    for source in ("stored", "rendered"):
        config = fields.replace(DMC_PRESETS["sac_aug"], {"replay.resumed_frames": source})
        agent = make_agent(config, control_spec((100, 100, 3), 6))
        needed[source] = prediction.predict_disk(fleet_of(agent, 2), 1000)
        logged = prediction.predict_disk(fleet_of(agent, 2), 1000, logs_steps=True)
        assert logged == needed["stored"]
    assert needed["stored"] - needed["rendered"] == 2 * 1000 * 100 * 100 * 3 * 3 // 10


def test_space_that_a_run_has_filled_is_not_needed_again(tmp_path, monkeypatch):
    plan = toy.make_plan(tmp_path)
    spec = toy.make_catch(np.zeros((1, 1), np.int64)).spec
    fleet = prediction.fleet_of(plan, spec)
    needed = prediction.predict_disk(fleet, plan.total_steps)
    disk = shutil.disk_usage("/")._replace(free=needed - 100_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: disk)
    with pytest.raises(OSError, match="no space left"):
        prediction.check_resources(plan, spec)
    (tmp_path / "of_another_program").write_bytes(bytes(200_000))
    with pytest.raises(OSError, match="no space left"):
        prediction.check_resources(plan, spec)
    (tmp_path / "frames.log").write_bytes(bytes(60_000))
    toy.paths_of(plan).directory.mkdir(parents=True)
    toy.paths_of(plan).metrics.write_bytes(bytes(30_000))
    with pytest.raises(OSError, match="no space left"):
        prediction.check_resources(plan, spec)
    left = toy.paths_of(plan).checkpoints / ".partial.12.7.ckpt"  # which the start deletes
    left.parent.mkdir(parents=True)
    left.write_bytes(bytes(10_000))
    prediction.check_resources(plan, spec)


def test_predicting_memory_allocates_nothing_of_what_it_predicts():
    spec = discrete_spec((84, 84), 6)
    config = fields.replace(ATARI_PRESETS["rcrl"], {"batch_size": 100_000})
    fleet = fleet_of(make_agent(config, spec), 50)
    tracemalloc.start()
    try:
        needed = prediction.predict_memory(fleet, spec, "host", 10**9).host
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    batches = 50 * 100_000 * 2 * 225 * 4 * 25
    history = 50 * 10**9
    assert needed > batches + history > 2**37
    assert peak < 2**24


@given(st.integers(1, 30), st.integers(1, 7), st.integers(0, 60), st.integers(0, 60))
def test_updates_to_go_are_those_of_the_loop(learn_start, period, start, end):
    in_loop = [s for s in range(start, end) if s >= learn_start and s % period == 0]
    assert Schedule(learn_start, period).counts(start, end) == (len(in_loop),)
    first = -(-learn_start // period) * period
    several = Schedule(learn_start, period, updates=3, first_updates=7)
    each = [several.due(step) for step in range(start, end)]
    assert [n for n in each if n] == [7 if step == first else 3 for step in in_loop]
    assert several.counts(start, end) == (sum(each),)


def test_updates_that_are_made_are_not_to_go():
    several = Schedule(10, 5, updates=3, first_updates=7)
    assert prediction.updates_to_go(several, 10, 0, 16) == [10]
    assert prediction.updates_to_go(several, 10, 6, 16) == [4]
    rounds = Rounds(toy_simple.make_config())  # at 24 one in the real game, 6 and 1 of others
    assert prediction.updates_to_go(rounds, 24, 0, 48) == [9, 3, 4]
    assert prediction.updates_to_go(rounds, 24, 3, 48) == [7, 2, 4]


def test_the_prediction_is_one_line():
    now = datetime.datetime(2026, 1, 31, 23, 0)
    on_host = prediction.describe(prediction.MemoryNeeds(3 * 2**29, 0, 0, None), 0.018, 5000, now)
    assert on_host == (
        "predicted: 1.5 GiB of host memory; 5,000 updates of 18.0 ms to go, 90 s: "
        "not before 23:01 (31 Jan)"
    )
    needs = prediction.MemoryNeeds(2**30, 2**31, 0, None)
    on_device = prediction.describe(needs, 0.36, 20_000, now)
    assert "1.0 GiB of host memory and 2.0 GiB on each device" in on_device
    assert "20,000 updates of 360.0 ms to go, 120 min: not before 01:00 (01 Feb)" in on_device


def test_accelerators_update_all_runs_at_once_except_from_pixels_of_control():
    cases = {
        "rcrl": (ATARI_PRESETS, discrete_spec((84, 84), 6), True),
        "state_sac": (DMC_PRESETS, control_spec((24,), 6), True),
        "rcrl_sac": (DMC_PRESETS, control_spec((100, 100, 3), 6), False),
    }
    for preset, (presets, spec, at_once) in cases.items():
        assert make_agent(presets[preset], spec).resources.batches_over_runs == at_once, preset
    impala = fields.replace(ATARI_PRESETS["rcrl"], {"encoder": "impala"})
    assert not make_agent(impala, discrete_spec((84, 84), 6)).resources.batches_over_runs


def test_the_guide_names_the_memory_that_is_predicted():
    text = (pathlib.Path(__file__).parents[2] / "docs" / "install.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+) \| (\w+) \|$", text, re.MULTILINE)
    for preset, told, game in rows:
        config = all_presets()[preset]
        benchmark = environment_of(config, game)
        steps = benchmark.steps(config) // benchmark.action_repeat(game, config)
        plan = Plan(
            preset=preset,
            config=config,
            runs=(RunId(game, 0),),
            total_steps=steps,
            workdir=pathlib.Path("nowhere"),
            eval_episodes=1,
            make_environment=None,
        )
        spec = benchmark.spec(config, (game,))
        needed = prediction.predict_memory(prediction.fleet_of(plan, spec), spec, "host", steps)
        assert f"{needed.host / 2**30:.1f}" == told, preset
    assert len(rows) == 6
