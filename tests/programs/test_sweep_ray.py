"""Sweeps on a real Ray cluster of two nodes: the death of a node or of the driver loses no run."""

import contextlib
import os
import pathlib
import re
import signal
import sys
import types

import pytest

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # Ray reads it when it starts
ray = pytest.importorskip("ray")
from ray.cluster_utils import Cluster  # noqa: E402

from rcrl_jax.programs.sweeps import ray_launcher, work  # noqa: E402
from rcrl_jax.programs.sweeps.spec import SweepError  # noqa: E402
from tests.programs import toy_sweep  # noqa: E402
from tests.programs.toy_sweep import finish, history, step, wait_until  # noqa: E402

NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
STEPS = 40


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
    # Three seconds after its last sign of life a node counts as dead.
    quick = {
        "health_check_initial_delay_ms": 0,
        "health_check_period_ms": 100,
        "health_check_timeout_ms": 3000,
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


def start(directory, cluster):
    """Starts a sweep of fleets of two runs in a separate process.

    Its steps are long, so that a busy machine does not miss the moment to interrupt it.
    """
    flags = ("--max_runs=2", f"--ray={cluster.address}", "--step_s=0.1")
    return toy_sweep.start(directory, *flags)


def test_a_sweep_survives_the_death_of_a_node(tmp_path, cluster, second_node):
    spec = toy_sweep.make_spec(tmp_path, steps=STEPS)
    planned = work.plan(spec, tmp_path / "runs", 2)
    sweep = start(tmp_path, cluster)
    wait_until(sweep, lambda: all(step(tmp_path, fleet) > 12 for fleet in planned[:2]))
    cluster.remove_node(second_node, allow_graceful=False)
    said = sweep.communicate(timeout=120)[0]
    assert sweep.returncode == 0, said
    assert len(toy_sweep.scores(spec)) == 6
    lines = said.splitlines()
    assert "state-dump" not in said and len(lines) < 20, said  # Ray's, of the dead node
    (again,) = [line.split()[2] for line in lines if line.startswith("start again ")]
    waiting = next(i for i, line in enumerate(lines) if line.startswith(f"start {planned[2].name}"))
    assert any(line.startswith("finished ") for line in lines[:waiting]), said
    begun = [
        [line for line in history(tmp_path, fleet) if line.startswith("begin")] for fleet in planned
    ]
    assert not any("overlap" in history(tmp_path, fleet) for fleet in planned)
    assert sorted(map(len, begun)) == [1, 1, 2]  # the fleet of the lost node
    assert again == f"{planned[[len(own) for own in begun].index(2)].name},"
    assert int(max(begun, key=len)[1].split()[1]) >= 10  # goes on from its checkpoint


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_a_sweep_whose_driver_ends_early_goes_on(tmp_path, cluster, second_node, signum):
    spec = toy_sweep.make_spec(tmp_path, steps=STEPS)
    planned = work.plan(spec, tmp_path / "runs", 2)
    sweep = start(tmp_path, cluster)
    wait_until(sweep, lambda: all(step(tmp_path, fleet) > 12 for fleet in planned[:2]))
    sweep.send_signal(signum)
    code = finish(sweep)
    if signum == signal.SIGTERM:
        assert code == 128 + signum
        for fleet in planned[:2]:
            last = history(tmp_path, fleet)[-1]
            assert last == f"saved {step(tmp_path, fleet)}"  # not a step is lost
        assert not any(history(tmp_path, fleet) for fleet in planned[2:])
    flags = ("--max_runs=2", f"--ray={cluster.address}")
    assert toy_sweep.main([str(tmp_path), *flags]) == 0
    assert len(toy_sweep.scores(spec)) == 6
    for fleet in planned[:2]:
        assert "overlap" not in history(tmp_path, fleet)
        begun = [line for line in history(tmp_path, fleet) if line.startswith("begin")]
        assert len(begun) == 2 and int(begun[1].split()[1]) >= 10


def test_a_fleet_that_fits_no_node_is_announced(cluster, capsys):
    with ray_launcher.connected(cluster.address, cpus=1, gpus=1, niceness=0):
        assert "no node has 1 CPUs and 1 GPUs now" in capsys.readouterr().out


@pytest.mark.parametrize("gpus, platforms", [(0, "cpu"), (1, None)])
def test_fleets_without_a_gpu_do_not_take_one_that_ray_shows_them(gpus, platforms, monkeypatch):
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    settings = []
    run = types.SimpleNamespace(remote=lambda *given: settings.append(given[-1]))
    monkeypatch.setattr(ray, "init", lambda *_, **__: None)
    monkeypatch.setattr(ray, "nodes", list)
    monkeypatch.setattr(ray, "remote", lambda **_: lambda function: run)
    with ray_launcher.connected("local", cpus=1, gpus=gpus, niceness=0) as start:
        start(["true"], pathlib.Path("log"))
    assert settings[0].get("JAX_PLATFORMS") == platforms


@pytest.mark.parametrize("address", ["127.0.0.1:nonsense", "nonsense"])
def test_a_cluster_that_is_not_there_is_refused_in_one_line(address):
    with pytest.raises(SweepError, match="--ray: no Ray cluster at") as raised:
        with ray_launcher.connected(address, cpus=1, gpus=0, niceness=0):
            pass
    assert "\n" not in str(raised.value)


def test_a_cluster_of_this_machine_has_a_folder_that_nobody_else_can_read(monkeypatch):
    modes = []

    def init(address, *, _temp_dir, **settings):
        modes.append(pathlib.Path(_temp_dir).parent.stat().st_mode & 0o777)
        raise RuntimeError("seen")

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(SweepError), ray_launcher.connected("local", cpus=1, gpus=0, niceness=0):
        pass
    assert modes == [0o700]


def test_without_ray_one_line_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SweepError, match=r"pip install 'rcrl-jax\[ray\]'"):
        with ray_launcher.connected("auto", cpus=1, gpus=0, niceness=0):
            pass


def test_the_guide_names_options_of_ray_start():
    guide = pathlib.Path(__file__).parents[2] / "docs" / "sweeps.md"
    named = set(re.findall(r"^ray start .*?(--\w+)", guide.read_text(), re.M))
    from ray.scripts.scripts import start

    assert named == {"--head", "--address"}
    assert named <= {option for own in start.params for option in own.opts}
