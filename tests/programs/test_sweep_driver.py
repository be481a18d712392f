"""Fleets in parallel: a failing fleet stops no other, and no kill loses or repeats a run."""

import fcntl
import functools
import json
import os
import signal
import subprocess
import sys

import psutil
import pytest

from rcrl_jax.programs.sweeps import driver, local, work
from rcrl_jax.programs.sweeps.spec import FleetPlan
from tests.programs import toy_sweep
from tests.programs.toy_sweep import alone, assert_complete, carry_out, finish, start, wait_until

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="fleets end with their sweep on Linux alone"
)


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(driver, "_SIGNAL_LAG_S", 0.1)
    monkeypatch.setattr(driver, "_RETRY_S", 0.1)


def test_fleets_have_the_lowest_priority_and_one_core_each(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # the cores of other tests are none of its business
    spec, cores = toy_sweep.make_spec(tmp_path), os.sched_getaffinity(0)
    launch = functools.partial(local.start_process, cores=1, niceness=19)
    carry_out(spec, tmp_path, start=launch, workers=len(cores))
    seen = set()
    for unit in spec.units:
        words = (tmp_path / "runs" / f"{unit.name}.history").read_text().split()
        assert words[0] == "core" and words[2:4] == ["nice", "19"]
        seen.add(int(words[1]))
    assert seen <= cores and len(seen) >= min(len(cores), 2)


def test_fleets_of_a_machine_get_different_cores(tmp_path, monkeypatch):
    monkeypatch.setattr(local.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {2, 5, 7})
    given = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cores: given.append(cores))
    for count in (0, 1, 3, 2):  # of three, one is taken
        local._reserve_cores(count)
    assert given == [[2]]


@pytest.mark.parametrize("what", ["a link", "a file", "open to all"])
def test_a_list_of_cores_that_others_may_write_is_left_alone(what, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(local.tempfile, "gettempdir", lambda: str(tmp_path))
    folder, theirs = tmp_path / f"rcrl_jax_cores_{os.getuid()}", tmp_path / "theirs"
    theirs.mkdir(mode=0o700)
    if what == "a link":
        folder.symlink_to(theirs)
    elif what == "a file":
        folder.touch(mode=0o600)
    else:
        folder.mkdir()
        folder.chmod(0o777)
    local._reserve_cores(1)
    assert f"others may write to {folder}" in capsys.readouterr().out
    assert not [*theirs.iterdir()] and (what == "a file" or not [*folder.iterdir()])


def test_fleets_that_fail_are_named_with_their_log_and_stop_no_other(tmp_path):
    spec = toy_sweep.make_spec(tmp_path)
    once, empty, refused, killed, *_ = map(alone, spec.units)
    make_command, starts = toy_sweep.fake_command(spec), []
    programs = {
        once: "print('boom'); raise SystemExit(7)",
        empty: "pass",  # success, but nothing to collect
        refused: "raise SystemExit(2)",
        killed: "import os; os.kill(os.getpid(), 15)",
    }

    def failing(fleet, workdir):
        starts.append(fleet)
        if fleet in programs and not (fleet == once and starts.count(once) > 1):
            return [sys.executable, "-c", programs[fleet]]
        return make_command(fleet, workdir)

    summary, lines = carry_out(spec, tmp_path, make_command=failing, workers=1)
    assert summary == (3, 3, 0, None)
    # Another time after the others, unless refused.
    assert starts == [*map(alone, spec.units), once, empty, killed]
    log = tmp_path / "runs" / f"{once.name}.log"
    assert lines[:2] == [
        f"start {once.name}, log {log}",
        f"failed {once.name}: exit code 7; see {log}; it is tried again after the others",
    ]
    assert "boom\n" in log.read_text()
    said = [line for line in lines if line.startswith("failed")]
    assert ["tried again" in line for line in said] == [True, True, False, True, False, False]
    assert "is not a manifest" in said[1]

    # The same sweep again trains what is missing, and a longer one what was added.
    assert carry_out(spec, tmp_path)[0] == (6, 0, 0, None)
    assert_complete(spec, tmp_path, map(alone, spec.units))
    longer = toy_sweep.make_spec(tmp_path, seeds="0:2")
    summary, lines = carry_out(longer, tmp_path)
    assert summary == (12, 0, 0, None)
    started = {line.split()[1].rstrip(",") for line in lines if line.startswith("start ")}
    assert started == {unit.name for unit in longer.units if unit.seed == 1}
    assert_complete(longer, tmp_path, map(alone, longer.units))


def test_a_fleet_that_cannot_start_stops_no_other(tmp_path):
    spec = toy_sweep.make_spec(tmp_path)
    (tmp_path / "runs" / f"{alone(spec.units[0]).name}.log").mkdir(parents=True)
    summary, lines = carry_out(spec, tmp_path)
    assert summary == (5, 1, 0, None)
    first, second = [line for line in lines if line.startswith("failed")]
    assert first == f"{second}; it is tried again after the others"
    assert second.startswith(f"failed {alone(spec.units[0]).name}: it cannot start: ")


def test_an_error_of_half_a_minute_at_the_start_costs_one_attempt(tmp_path, monkeypatch):
    spec = toy_sweep.make_spec(tmp_path)
    now, starts = [0.0], []

    class Job:
        def poll(self):
            return 0

    def launch(command, log):
        starts.append(now[0])
        if now[0] < 30.0:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return Job()

    def sleep(seconds):
        now[0] += seconds

    sweep = driver.Sweep(
        spec, list(map(alone, spec.units)), tmp_path, start=launch, workers=3,
        make_command=lambda *of: [], say=lambda line: None,
    )  # fmt: skip
    monkeypatch.setattr(driver, "_RETRY_S", 60.0)
    monkeypatch.setattr(driver.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(driver.time, "sleep", sleep)
    monkeypatch.setattr(work, "collect", lambda *of: None)
    assert sweep.run() == (6, 0, 0, None)
    assert len(starts) == 7 and starts[1] >= 60.0


def test_a_half_done_fleet_resumes_and_new_fleets_train_what_was_added(tmp_path):
    spec = toy_sweep.make_spec(tmp_path, seeds="0:2", steps=60)
    stopped = start(tmp_path, "--max_runs=4", "--step_s=0.1")
    begun = work.plan(spec, tmp_path / "runs", 4)
    assert [len(fleet.units) for fleet in begun] == [4, 4, 4]
    wait_until(stopped, lambda: all(toy_sweep.step(tmp_path, fleet) > 5 for fleet in begun[:2]))
    stopped.kill()
    assert finish(stopped) == -signal.SIGKILL
    assert not toy_sweep.scores(spec)

    longer = toy_sweep.make_spec(tmp_path, seeds="0:3", steps=60)
    assert toy_sweep.main([str(tmp_path), "--max_runs=8"]) == 0
    assert len(toy_sweep.history(tmp_path, begun[0])) == 5  # begin, saved, begin, saved, finished
    added = [FleetPlan(fleet.arm, ("Pong", "Alien"), (2,)) for fleet in begun[:2]]
    assert_complete(longer, tmp_path, [*begun[:2], *added])


@pytest.mark.parametrize("signum, to_the_group", [(signal.SIGTERM, True), (signal.SIGINT, False)])
def test_a_signal_saves_every_fleet_first(tmp_path, signum, to_the_group):
    spec = toy_sweep.make_spec(tmp_path, steps=200)
    stopped = start(tmp_path, "--step_s=0.1", start_new_session=True)
    first = [alone(unit) for unit in spec.units[:2]]
    wait_until(stopped, lambda: all(toy_sweep.step(tmp_path, fleet) > 5 for fleet in first))
    # Fleets stay in the group, so that it can be paused.
    started = psutil.Process(stopped.pid).children()
    assert len(started) == 2 and {os.getpgid(p.pid) for p in started} == {stopped.pid}
    (os.killpg if to_the_group else os.kill)(stopped.pid, signum)
    output = stopped.communicate(timeout=60)[0]
    assert stopped.returncode == 128 + signum
    assert f"Summary(finished=0, failed=0, left=6, stopped_by={int(signum)})" in output
    assert "failed " not in output.replace("failed=", "")
    for fleet in first:
        assert toy_sweep.history(tmp_path, fleet)[-1] == f"saved {toy_sweep.step(tmp_path, fleet)}"


def test_a_process_does_not_start_after_its_parent_has_ended(tmp_path):
    started = tmp_path / "started"
    arguments = ["1", "0", "0", str(tmp_path / "log"), "touch", str(started)]
    assert os.getpid() != 1
    ended = subprocess.run([sys.executable, "-m", local.__name__, *arguments], cwd=toy_sweep.ROOT)
    assert ended.returncode == 128 + signal.SIGTERM and not started.exists()


def test_a_fleet_waits_for_an_older_process_of_its_own(tmp_path):
    log, started = tmp_path / "log", tmp_path / "started"
    with open(log, "w") as older:
        fcntl.flock(older, fcntl.LOCK_EX)
        newer = local.start_process(["touch", str(started)], log, 0, 0)
        # Its output and its lock.
        opened = psutil.Process(newer.pid).open_files
        wait_until(newer, lambda: [file.path for file in opened()].count(str(log)) > 2)
        assert newer.poll() is None and not started.exists()
    assert newer.wait() == 0 and started.exists()


def test_a_line_a_minute_tells_what_is_finished_how_fast_the_rest_is_and_where_the_logs_are(
    tmp_path, monkeypatch
):
    spec = toy_sweep.make_spec(tmp_path, steps=100)
    planned = list(map(alone, spec.units))
    now, lines = [0.0], []

    class Job:
        """Of a first fleet that has 40 steps after 20 seconds, and ends after 150."""

        def poll(self):
            now[0] += 10.0
            return 2 if now[0] >= 150.0 else None

    sweep = driver.Sweep(
        spec, planned, tmp_path, start=lambda *of: Job(), workers=1,
        make_command=lambda *of: [], say=lines.append,
    )  # fmt: skip
    paths = work.paths_of(tmp_path, planned[0], planned[0].units[0])
    paths.directory.mkdir(parents=True)
    torn = '\n{"agent_steps": 41'
    paths.metrics.write_text(json.dumps({"agent_steps": 40, "wall_s": 20.0}) + torn)
    monkeypatch.setattr(driver.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(driver.time, "sleep", lambda seconds: None)
    sweep.run()
    progress = [line for line in lines if "runs finished" in line]
    # To go: 60 steps of the first and 100 of five; 2 a second.
    rest = f"0 failed, 2.0 steps/s, about 0:04:40 left; logs: {tmp_path}/*.log"
    assert progress[:2] == [f"0 of 6 runs finished, {rest}"] * 2
    assert progress[2].startswith("0 of 6 runs finished, 4 failed; logs: ")
