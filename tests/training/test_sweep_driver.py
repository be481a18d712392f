"""Fleets in parallel: a failing fleet stops no other, and no kill loses or repeats a run."""

import contextlib
import dataclasses
import fcntl
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from rcrl_jax.training import records
from rcrl_jax.training.sweep import child, collection, driver, fleets, launchers
from rcrl_jax.training.sweep.progress import read_progress
from rcrl_jax.training.sweep.spec import Fleet, SweepError
from tests.training import toy, toy_sweep
from tests.training.toy_sweep import alone

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="fleets end with their sweep on Linux alone"
)


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(driver, "_POLL_S", 0.02)
    monkeypatch.setattr(driver, "_SIGNAL_LAG_S", 0.1)


def carry_out(spec, directory, count=2, make_command=None, niceness=0, max_runs=1, attempts=1):
    """Runs a sweep in this process; returns its summary and the lines that it printed."""
    display = toy_sweep.Recorded()
    with driver.locked(directory / "runs"):
        planned = fleets.plan(spec, directory / "runs", max_runs)
        fleets.tidy(spec, directory / "runs")
        sweep = driver.Sweep(
            spec,
            planned,
            directory / "runs",
            toy_sweep.local(count, niceness),
            display,
            attempts=attempts,
            make_command=make_command or toy_sweep.fake_command(spec),
        )
        return sweep.run(), display.lines


def start(directory, *options, **how) -> subprocess.Popen:
    """Starts a sweep in a separate process."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.training.toy_sweep", str(directory), *options],
        cwd=toy.ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **how,
    )  # fmt: skip


def assert_all_finished(spec, directory):
    """All results exist, and all work directories are deleted."""
    for unit in spec.units:
        assert collection.is_finished(spec, unit)
    assert not list(spec.results.rglob(".partial.*"))
    assert not [path for path in (directory / "runs").iterdir() if path.is_dir()]


def assert_no_work_lost(spec, directory, fleets_of_it=None):
    """Each process of a fleet began where the previous one ended, and none ran at the same time."""
    for fleet in fleets_of_it or map(alone, spec.units):
        lines = toy_sweep.history(directory, fleet)
        assert lines[-1] == "finished", lines
        steps = [line.split() for line in lines if line != "finished"]
        assert {words[0] for words in steps[0::2]} == {"begin"}, lines
        assert {words[0] for words in steps[1::2]} == {"saved"}, lines
        began, saved = ([words[1] for words in steps[i::2]] for i in (0, 1))
        assert began == ["0", *saved[:-1]] and saved[-1] == str(spec.steps), lines


def work_paths(directory, unit):
    return collection.work_paths(directory, alone(unit), unit)


def wait_until(process, condition):
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.01)


def test_finished_runs_are_skipped(tmp_path):
    spec = toy_sweep.make_spec(tmp_path)
    summary, lines = carry_out(spec, tmp_path)
    assert summary == (6, 0, 0, None)
    assert sum(line.startswith("finished") for line in lines) == 6
    assert_all_finished(spec, tmp_path)
    assert_no_work_lost(spec, tmp_path)

    longer = toy_sweep.make_spec(tmp_path, seeds="0:2")
    summary, lines = carry_out(longer, tmp_path)
    assert summary == (12, 0, 0, None)
    started = [line.split()[1].rstrip(",") for line in lines if line.startswith("started")]
    assert started == [unit.name for unit in longer.units if unit.seed == 1]
    assert_no_work_lost(longer, tmp_path)


def test_fleets_have_the_lowest_priority_and_one_core_each(tmp_path):
    spec, cores = toy_sweep.make_spec(tmp_path), launchers.available_cores()
    spec = dataclasses.replace(spec, units=spec.units[:3])
    carry_out(spec, tmp_path, count=len(cores) + 1, niceness=19)
    seen = set()
    for unit in spec.units:
        words = (tmp_path / "runs" / f"{unit.name}.history").read_text().split()
        assert words[0] == "core" and words[2:4] == ["nice", "19"]
        seen.add(int(words[1]))
    assert seen <= set(cores) and len(seen) >= min(len(cores), 2)


def test_a_failing_fleet_does_not_stop_the_rest_and_the_next_sweep_tries_it_again(tmp_path):
    spec = toy_sweep.make_spec(tmp_path)
    make_command = toy_sweep.fake_command(spec)

    def failing(fleet, workdir):
        if fleet == alone(spec.units[0]):
            return [sys.executable, "-c", "print('many words'); print('boom'); raise SystemExit(7)"]
        if fleet == alone(spec.units[1]):
            return [sys.executable, "-c", "pass"]  # success, but nothing to collect
        return make_command(fleet, workdir)

    summary, _ = carry_out(spec, tmp_path, make_command=failing)
    assert summary == (4, 2, 0, None)
    failures = records.read_records(tmp_path / "runs" / "failures.jsonl")
    first, second = sorted(failures, key=lambda failure: failure["fleet"])
    assert first["fleet"] == "erainbow_sa-Pong-0" and first["exit_code"] == 7
    assert first["log"] == ["many words", "boom"] and first["time_utc"]
    assert second["fleet"] == "rcrl-Pong-0" and second["exit_code"] == 0
    assert "is not a manifest" in second["why"]

    assert carry_out(spec, tmp_path)[0] == (6, 0, 0, None)
    assert_all_finished(spec, tmp_path)


def test_a_failed_fleet_is_started_again_after_the_others(tmp_path):
    spec = toy_sweep.make_spec(tmp_path)
    first = alone(spec.units[0])
    make_command, starts = toy_sweep.fake_command(spec), []

    def failing_once(fleet, workdir):
        starts.append(fleet)
        if starts == [first]:
            return [sys.executable, "-c", "print('boom'); raise SystemExit(7)"]
        return make_command(fleet, workdir)

    summary, lines = carry_out(spec, tmp_path, 1, failing_once, attempts=2)
    assert summary == (6, 0, 0, None)
    assert starts == [first, *map(alone, spec.units[1:]), first]
    (failure,) = records.read_records(tmp_path / "runs" / "failures.jsonl")
    assert (failure["fleet"], failure["attempt"]) == (first.name, 1)
    assert "tried again" in next(line for line in lines if line.startswith("failed"))
    assert_all_finished(spec, tmp_path)


@pytest.mark.parametrize("code, attempts", [(1, 3), (2, 1)])
def test_attempts_are_limited_and_a_refusal_is_not_repeated(tmp_path, code, attempts):
    spec = toy_sweep.make_spec(tmp_path)
    spec = dataclasses.replace(spec, units=spec.units[:1])
    failing = [sys.executable, "-c", f"raise SystemExit({code})"]
    summary, _ = carry_out(spec, tmp_path, 1, lambda fleet, workdir: failing, attempts=3)
    assert summary == (0, 1, 0, None)
    failures = records.read_records(tmp_path / "runs" / "failures.jsonl")
    assert [failure["attempt"] for failure in failures] == list(range(1, attempts + 1))


def test_fleets_of_several_runs_give_the_scores_of_single_runs(tmp_path):
    (tmp_path / "single").mkdir()
    single = toy_sweep.make_spec(tmp_path / "single", seeds="0:3")
    carry_out(single, tmp_path / "single")
    spec = toy_sweep.make_spec(tmp_path, seeds="0:3")
    summary, lines = carry_out(spec, tmp_path, max_runs=4)
    assert summary == (18, 0, 0, None)
    assert sum(line.startswith("started") for line in lines) == 6
    assert list(toy_sweep.scores(spec).values()) == list(toy_sweep.scores(single).values())
    assert len(set(map(str, toy_sweep.scores(spec).values()))) > 2
    assert_all_finished(spec, tmp_path)


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_a_half_done_fleet_resumes_and_new_fleets_train_what_was_added(tmp_path, signum):
    spec = toy_sweep.make_spec(tmp_path, seeds="0:2", steps=60)
    stopped = start(tmp_path, "--max_runs=4", "--step_s=0.1")
    begun = fleets.plan(spec, tmp_path / "runs", 4)
    assert [len(fleet.units) for fleet in begun] == [4, 4, 4]
    paths = [collection.work_paths(tmp_path / "runs", f, f.units[-1]) for f in begun[:2]]
    wait_until(stopped, lambda: all(read_progress(path).step > 5 for path in paths))
    stopped.send_signal(signum)
    stopped.communicate()
    assert stopped.returncode == (-signum if signum == signal.SIGKILL else 128 + signum)
    assert not toy_sweep.scores(spec)

    longer = toy_sweep.make_spec(tmp_path, seeds="0:3", steps=60)
    again = start(tmp_path, "--max_runs=8")
    assert again.wait() == 0, again.stderr.read()
    again.stderr.close()
    assert_all_finished(longer, tmp_path)
    assert len(toy_sweep.history(tmp_path, begun[0])) == 5  # begin, saved, begin, saved, finished
    grid = ("Pong", "Alien")
    added = [Fleet(fleet.arm, grid, (2,)) for fleet in begun[:2]]
    assert_no_work_lost(longer, tmp_path, [*begun[:2], *added])


def test_a_fleet_killed_from_outside_counts_as_failed(tmp_path):
    spec = toy_sweep.make_spec(tmp_path)
    spec = dataclasses.replace(spec, units=spec.units[:2])
    ending = [sys.executable, "-c", "import os; os.kill(os.getpid(), 15)"]
    summary, _ = carry_out(spec, tmp_path, make_command=lambda fleet, workdir: ending)
    assert summary == (0, 2, 0, None)


@pytest.mark.parametrize("moment", ["running", "-rename", "+rename", "-rmtree", "+rmtree"])
def test_a_killed_sweep_loses_no_finished_run_and_resumes_the_others(tmp_path, moment):
    spec = toy_sweep.make_spec(tmp_path, steps=40)
    how = "--step_s=0.05" if moment == "running" else f"--moment={moment}"
    killed = start(tmp_path, how)
    if moment == "running":
        finished = spec.result_paths(spec.units[0]).directory
        third = work_paths(tmp_path / "runs", spec.units[2])
        wait_until(killed, lambda: finished.exists() and read_progress(third).step > 5)
        killed.kill()
    assert killed.wait() == -signal.SIGKILL
    killed.stderr.close()
    finished = [unit for unit in spec.units if collection.is_finished(spec, unit)]
    assert len(finished) in ((0, 1) if moment == "-rename" else (1, 2))
    before = {unit: toy_sweep.history(tmp_path, alone(unit)) for unit in finished}

    again = start(tmp_path)
    assert again.wait() == 0, again.stderr.read()
    again.stderr.close()
    assert_all_finished(spec, tmp_path)
    assert_no_work_lost(spec, tmp_path)
    assert before == {unit: toy_sweep.history(tmp_path, alone(unit)) for unit in finished}
    processes = [len(toy_sweep.history(tmp_path, alone(unit))) for unit in spec.units]
    assert max(processes) > 3  # begin, saved, finished: some fleet was resumed, or asked again


@pytest.mark.parametrize("signum, to_the_group", [(signal.SIGTERM, True), (signal.SIGINT, False)])
def test_a_signal_saves_every_fleet_first(tmp_path, signum, to_the_group):
    spec = toy_sweep.make_spec(tmp_path, steps=200)
    stopped = start(tmp_path, "--step_s=0.1", start_new_session=True)
    paths = [work_paths(tmp_path / "runs", unit) for unit in spec.units[:2]]
    wait_until(stopped, lambda: all(read_progress(p).step > 5 for p in paths))
    (os.killpg if to_the_group else os.kill)(stopped.pid, signum)
    stderr = stopped.communicate()[1]
    assert stopped.returncode == 128 + signum, stderr
    for unit in spec.units[:2]:
        assert toy_sweep.history(tmp_path, alone(unit))[-1].startswith("saved")
    assert not (tmp_path / "runs" / "failures.jsonl").exists()


def test_a_sweep_and_its_fleets_are_paused_by_their_group(tmp_path):
    spec = toy_sweep.make_spec(tmp_path, steps=300)
    sweep = start(tmp_path, "--step_s=0.1", start_new_session=True)
    paths = work_paths(tmp_path / "runs", spec.units[0])
    wait_until(sweep, lambda: read_progress(paths).step > 5)
    os.killpg(sweep.pid, signal.SIGSTOP)
    os.waitpid(sweep.pid, os.WUNTRACED)
    wait_until(sweep, lambda: set(_group_states(sweep.pid)) == {"T"})
    os.killpg(sweep.pid, signal.SIGCONT)
    step = read_progress(paths).step
    wait_until(sweep, lambda: read_progress(paths).step > step)
    sweep.terminate()
    assert sweep.wait() == 128 + signal.SIGTERM
    sweep.stderr.close()


def _group_states(group):
    import psutil

    for process in [psutil.Process(group), *psutil.Process(group).children()]:
        stat = open(f"/proc/{process.pid}/stat").read().rpartition(")")[2].split()
        assert int(stat[2]) == group
        yield stat[0]


def test_a_second_sweep_is_refused_until_the_first_has_ended(tmp_path):
    spec = toy_sweep.make_spec(tmp_path)
    with driver.locked(tmp_path / "runs"):
        second = start(tmp_path)
        message = second.communicate()[1]
        assert second.returncode == 2
        assert message.count("\n") == 1
        assert f"in use by another sweep, process {os.getpid()}" in message
    assert not any(toy_sweep.history(tmp_path, alone(unit)) for unit in spec.units)
    with driver.locked(tmp_path / "runs"):
        with pytest.raises(SweepError):
            with driver.locked(tmp_path / "runs"):
                pass


def test_a_child_does_not_start_after_its_parent_has_ended(tmp_path):
    started = tmp_path / "started"
    arguments = ["1", child.ANY_CORE, "0", str(tmp_path / "log"), "touch", str(started)]
    assert os.getpid() != 1
    ended = subprocess.run([sys.executable, "-m", child.__name__, *arguments], cwd=toy.ROOT)
    assert ended.returncode == 128 + signal.SIGTERM and not started.exists()


def test_a_fleet_waits_for_an_older_process_of_its_own(tmp_path):
    log, started = tmp_path / "log", tmp_path / "started"
    arguments = [str(os.getpid()), child.ANY_CORE, "0", str(log), "touch", str(started)]
    with open(log, "w") as older:
        fcntl.flock(older, fcntl.LOCK_EX)
        newer = subprocess.Popen([sys.executable, "-m", child.__name__, *arguments], cwd=toy.ROOT)
        wait_until(newer, lambda: _has_open(newer, log))
        assert newer.poll() is None and not started.exists()
    assert newer.wait() == 0 and started.exists()


def _has_open(process, path):
    for handle in pathlib.Path(f"/proc/{process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it has been closed meanwhile
            if os.readlink(handle) == str(path):
                return True
    return False


@pytest.mark.skipif(
    not pathlib.Path("/proc/self/autogroup").exists(), reason="Linux does not schedule by session"
)
def test_a_sweep_with_its_own_session_gives_that_session_the_lowest_priority(tmp_path):
    """Niceness alone counts within a session: others would get no more time than the sweep."""
    child = [sys.executable, "-m", "rcrl_jax.training.sweep.child"]
    program = (
        "import os, subprocess\n"
        f"command = {child} + [str(os.getpid()), 'any', '19', {str(tmp_path / 'lock')!r},"
        " 'cat', '/proc/self/autogroup']\n"
        "subprocess.run(command, check=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=toy.ROOT, start_new_session=True,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split()[-2:] == ["nice", "19"]
