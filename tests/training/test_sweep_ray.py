"""Sweeps on a real Ray cluster of two nodes: the death of a node or of the driver loses no run."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # Ray reads it when it starts
ray = pytest.importorskip("ray")
from ray.cluster_utils import Cluster  # noqa: E402

from rcrl_jax.training import records  # noqa: E402
from rcrl_jax.training.sweep import collection, driver, fleets, ray_launcher  # noqa: E402
from rcrl_jax.training.sweep.progress import read_progress  # noqa: E402
from rcrl_jax.training.sweep.spec import SweepError  # noqa: E402
from tests.training import toy, toy_sweep  # noqa: E402

NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
STEPS = 100


@contextlib.contextmanager
def in_the_background():
    """Processes that are started meanwhile ignore SIGINT, as those behind a shell's `&` do."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def cluster():
    """One node, which also keeps the cluster's state; tests add the second."""
    # Half a second after its last sign of life a node counts as dead.
    quick = {
        "health_check_initial_delay_ms": 0,
        "health_check_period_ms": 100,
        "health_check_timeout_ms": 500,
        "health_check_failure_threshold": 3,
    }
    head = {**NODE, "include_dashboard": False, "_system_config": quick}
    with in_the_background():
        cluster = Cluster(initialize_head=True, head_node_args=head)
    yield cluster
    cluster.shutdown()


@pytest.fixture
def second_node(cluster):
    with in_the_background():
        node = cluster.add_node(**NODE)
    yield node
    with contextlib.suppress(Exception):  # a test may have killed it
        cluster.remove_node(node)


def start(directory, cluster, step_s=0.01) -> subprocess.Popen:
    """Starts a sweep of fleets of two runs in a separate process.

    A test that interrupts it takes longer steps, so that a busy machine does not miss the moment.
    """
    return subprocess.Popen(
        [
            sys.executable, "-m", "tests.training.toy_sweep", str(directory),
            "--max_runs=2", f"--address={cluster.address}", f"--step_s={step_s}",
        ],
        cwd=toy.ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def wait_until(process, condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The scores of the same sweep without Ray, in single runs."""
    directory = tmp_path_factory.mktemp("undisturbed")
    spec = toy_sweep.make_spec(directory, seeds="0:2", steps=STEPS)
    with driver.locked(directory / "runs"):
        planned = fleets.plan(spec, directory / "runs", 1)
        sweep = driver.Sweep(
            spec,
            planned,
            directory / "runs",
            toy_sweep.local(4),
            toy_sweep.Recorded(),
            make_command=toy_sweep.fake_command(spec),
        )
        assert sweep.run() == (12, 0, 0, None)
    return list(toy_sweep.scores(spec).values())


def progress(spec, directory, fleet):
    return read_progress(collection.work_paths(directory / "runs", fleet, fleet.units[0])).step


def assert_complete(spec, directory, planned, undisturbed):
    """Every run has the score of the sweep that nobody disturbed, and no two processes met."""
    assert list(toy_sweep.scores(spec).values()) == undisturbed
    assert not [path for path in (directory / "runs").iterdir() if path.is_dir()]
    for fleet in planned:
        assert "overlap" not in toy_sweep.history(directory, fleet)


def test_a_sweep_survives_the_death_of_a_node(tmp_path, cluster, second_node, undisturbed):
    spec = toy_sweep.make_spec(tmp_path, seeds="0:2", steps=STEPS)
    planned = fleets.plan(spec, tmp_path / "runs", 2)
    sweep = start(tmp_path, cluster, step_s=0.03)
    wait_until(sweep, lambda: all(progress(spec, tmp_path, f) > 30 for f in planned[:2]))
    cluster.remove_node(second_node, allow_graceful=False)
    out = sweep.communicate(timeout=60)[0]
    assert sweep.returncode == 0, out
    assert_complete(spec, tmp_path, planned, undisturbed)
    begun = [
        [line for line in toy_sweep.history(tmp_path, fleet) if line.startswith("begin")]
        for fleet in planned
    ]
    assert sorted(map(len, begun)) == [1, 1, 1, 1, 1, 2]  # the fleet of the lost node
    assert int(max(begun, key=len)[1].split()[1]) >= 20  # goes on from its checkpoint
    assert not (tmp_path / "runs" / "failures.jsonl").exists()


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_a_sweep_whose_driver_ends_early_goes_on(
    tmp_path, cluster, second_node, undisturbed, signum
):
    spec = toy_sweep.make_spec(tmp_path, seeds="0:2", steps=STEPS)
    planned = fleets.plan(spec, tmp_path / "runs", 2)
    sweep = start(tmp_path, cluster, step_s=0.1)
    wait_until(sweep, lambda: all(progress(spec, tmp_path, f) > 30 for f in planned[:2]))
    sweep.send_signal(signum)
    out = sweep.communicate(timeout=60)[0]
    if signum == signal.SIGTERM:
        assert sweep.returncode == 128 + signum, out
        for fleet in planned[:2]:
            last = toy_sweep.history(tmp_path, fleet)[-1]
            assert last == f"saved {progress(spec, tmp_path, fleet)}"  # not a step is lost
        assert not any(toy_sweep.history(tmp_path, fleet) for fleet in planned[2:])
    sweep = start(tmp_path, cluster)
    out = sweep.communicate(timeout=60)[0]
    assert sweep.returncode == 0, out
    assert_complete(spec, tmp_path, planned, undisturbed)
    for fleet in planned[:2]:
        begun = [x for x in toy_sweep.history(tmp_path, fleet) if x.startswith("begin")]
        assert len(begun) == 2 and int(begun[1].split()[1]) >= 20


def test_a_failing_fleet_is_reported_and_the_others_finish(tmp_path, cluster, second_node):
    spec = toy_sweep.make_spec(tmp_path)
    planned = fleets.plan(spec, tmp_path / "runs", 2)
    make_command = toy_sweep.fake_command(spec)
    failing = [sys.executable, "-c", "print('many words'); print('boom'); raise SystemExit(7)"]
    display = toy_sweep.Recorded()
    with (
        driver.locked(tmp_path / "runs"),
        ray_launcher.connected(
            cluster.address, cpus=1, gpus=0, niceness=0, say=display.say
        ) as launcher,
    ):
        summary = driver.Sweep(
            spec,
            planned,
            tmp_path / "runs",
            launcher,
            display,
            attempts=2,
            make_command=lambda f, w: failing if f == planned[0] else make_command(f, w),
        ).run()
    assert summary == (4, 2, 0, None)
    failures = records.read_records(tmp_path / "runs" / "failures.jsonl")
    assert [failure["attempt"] for failure in failures] == [1, 2]
    assert failures[0]["exit_code"] == 7 and failures[0]["log"] == ["many words", "boom"]
    assert sum("started" in line and "node" in line for line in display.lines) == 4
    assert not list((tmp_path / "runs").glob(".*.place"))


def test_a_fleet_that_fits_no_node_is_announced(cluster):
    said = []
    with ray_launcher.connected(cluster.address, cpus=1, gpus=1, niceness=0, say=said.append):
        assert "no node has 1 CPUs and 1 GPUs now" in said[0]


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.0.0.1:nonsense", "nonsense"])
def test_a_cluster_that_is_not_there_is_refused_in_one_line(address):
    with pytest.raises(SweepError, match="--address: no Ray cluster at") as raised:
        with ray_launcher.connected(address, cpus=1, gpus=0, niceness=0, say=print):
            pass
    assert "\n" not in str(raised.value)


def test_without_ray_one_line_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SweepError, match=r"pip install 'rcrl-jax\[ray\]'"):
        with ray_launcher.connected("auto", cpus=1, gpus=0, niceness=0, say=print):
            pass


def test_fleets_on_one_node_get_different_cores(tmp_path, monkeypatch):
    monkeypatch.setattr(ray_launcher.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(ray_launcher, "available_cores", lambda: [2, 5, 7])
    reserved = ray_launcher.reserved_cores
    with reserved(1) as one, reserved(2) as two, reserved(1) as none_left:
        assert (one, two, none_left) == ("2", "5,7", "any")
    with reserved(2) as two, reserved(2) as too_many, reserved(1) as one, reserved(0) as unbound:
        assert (two, too_many, one, unbound) == ("2,5", "any", "any", "any")
    with reserved(3) as three:
        assert three == "2,5,7"
