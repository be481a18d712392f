"""Units in parallel: a failing unit stops no other, and no kill loses or repeats a run."""

import dataclasses
import fcntl
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from rcrl_jax.training import records
from rcrl_jax.training.campaign import child, results, workers
from rcrl_jax.training.campaign.spec import CampaignError
from tests.training import toy, toy_campaign

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="units end with their campaign on Linux alone"
)


def carry_out(spec, directory, count=2, make_command=None, niceness=0):
    """Runs a campaign in this process; returns its summary and the lines that it printed."""
    lines = []
    make_command = make_command or toy_campaign.fake_command(spec)
    with workers.locked(directory / "runs"):
        campaign = workers.Workers(
            spec,
            directory / "runs",
            count,
            niceness=niceness,
            make_command=make_command,
            say=lines.append,
        )
        return campaign.run(), lines


def start(directory, *moment, **options) -> subprocess.Popen:
    """Starts a campaign in a separate process."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.training.toy_campaign", str(directory), *moment],
        cwd=toy.ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip


def assert_all_finished(spec, directory):
    """All results exist, and all work directories are deleted."""
    for unit in spec.units:
        assert results.is_finished(spec, unit)
    assert not list(spec.results.rglob(".partial.*"))
    assert not [path for path in (directory / "runs").iterdir() if path.is_dir()]


def assert_no_work_lost(spec, directory):
    """Each process of a unit began where the previous one ended, and none ran at the same time."""
    for unit in spec.units:
        lines = toy_campaign.history(directory, unit)
        assert lines[-1] == "finished", lines
        steps = [line.split() for line in lines if line != "finished"]
        assert {words[0] for words in steps[0::2]} == {"begin"}, lines
        assert {words[0] for words in steps[1::2]} == {"saved"}, lines
        began, saved = ([words[1] for words in steps[i::2]] for i in (0, 1))
        assert began == ["0", *saved[:-1]] and saved[-1] == str(spec.steps), lines


def wait_until(process, condition):
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.01)


def test_finished_units_are_skipped(tmp_path):
    spec = toy_campaign.make_spec(tmp_path)
    summary, lines = carry_out(spec, tmp_path)
    assert summary == (6, 0, 0, None)
    assert sum(line.startswith("finished") for line in lines) == 6
    assert_all_finished(spec, tmp_path)
    assert_no_work_lost(spec, tmp_path)

    longer = toy_campaign.make_spec(tmp_path, seeds="0:2")
    summary, lines = carry_out(longer, tmp_path)
    assert summary == (12, 0, 0, None)
    started = [line.split()[1].rstrip(",") for line in lines if line.startswith("started")]
    assert started == [unit.name for unit in longer.units if unit.seed == 1]
    assert_no_work_lost(longer, tmp_path)


def test_units_have_the_lowest_priority_and_one_core_each(tmp_path):
    spec, cores = toy_campaign.make_spec(tmp_path), workers.available_cores()
    spec = dataclasses.replace(spec, units=spec.units[:3])
    carry_out(spec, tmp_path, count=len(cores) + 1, niceness=19)
    seen = set()
    for unit in spec.units:
        words = (tmp_path / "runs" / f"{unit.name}.history").read_text().split()
        assert words[0] == "core" and words[2:4] == ["nice", "19"]
        seen.add(int(words[1]))
    assert seen <= set(cores) and len(seen) >= min(len(cores), 2)


def test_a_failing_unit_does_not_stop_the_rest_and_is_tried_again(tmp_path):
    spec = toy_campaign.make_spec(tmp_path)
    make_command = toy_campaign.fake_command(spec)

    def failing(unit, workdir):
        if unit == spec.units[0]:
            return [sys.executable, "-c", "print('many words'); print('boom'); raise SystemExit(7)"]
        if unit == spec.units[1]:
            return [sys.executable, "-c", "pass"]  # success, but nothing to collect
        return make_command(unit, workdir)

    summary, _ = carry_out(spec, tmp_path, make_command=failing)
    assert summary == (4, 2, 0, None)
    failures = records.read_records(tmp_path / "runs" / "failures.jsonl")
    first, second = sorted(failures, key=lambda failure: failure["unit"])
    assert first["unit"] == "erainbow_sa-Pong-0" and first["exit_code"] == 7
    assert first["log"] == ["many words", "boom"] and first["time_utc"]
    assert second["unit"] == "rcrl-Pong-0" and second["exit_code"] == 0
    assert "is not a manifest" in second["why"]

    assert carry_out(spec, tmp_path)[0] == (6, 0, 0, None)
    assert_all_finished(spec, tmp_path)


def test_a_unit_killed_from_outside_counts_as_failed(tmp_path):
    spec = toy_campaign.make_spec(tmp_path)
    spec = dataclasses.replace(spec, units=spec.units[:2])
    ending = [sys.executable, "-c", "import os; os.kill(os.getpid(), 15)"]
    summary, _ = carry_out(spec, tmp_path, make_command=lambda unit, workdir: ending)
    assert summary == (0, 2, 0, None)


@pytest.mark.parametrize("moment", ["running", "-rename", "+rename", "-rmtree", "+rmtree"])
def test_a_killed_campaign_loses_no_finished_unit_and_resumes_the_others(tmp_path, moment):
    spec = toy_campaign.make_spec(tmp_path, steps=40)
    killed = start(tmp_path, *[moment] * (moment != "running"))
    if moment == "running":
        finished = spec.result_paths(spec.units[0]).directory
        third = results.work_paths(tmp_path / "runs", spec.units[2])
        wait_until(killed, lambda: finished.exists() and workers.read_progress(third).step > 5)
        killed.kill()
    assert killed.wait() == -signal.SIGKILL
    killed.stderr.close()
    finished = [unit for unit in spec.units if results.is_finished(spec, unit)]
    assert len(finished) in ((0, 1) if moment == "-rename" else (1, 2))
    before = {unit: toy_campaign.history(tmp_path, unit) for unit in finished}

    again = start(tmp_path)
    assert again.wait() == 0, again.stderr.read()
    again.stderr.close()
    assert_all_finished(spec, tmp_path)
    assert_no_work_lost(spec, tmp_path)
    assert before == {unit: toy_campaign.history(tmp_path, unit) for unit in finished}
    processes = [len(toy_campaign.history(tmp_path, unit)) for unit in spec.units]
    assert max(processes) > 3  # begin, saved, finished: some unit was resumed, or asked again


@pytest.mark.parametrize("signum, to_the_group", [(signal.SIGTERM, True), (signal.SIGINT, False)])
def test_a_signal_saves_every_unit_first(tmp_path, signum, to_the_group):
    spec = toy_campaign.make_spec(tmp_path, steps=200)
    stopped = start(tmp_path, start_new_session=True)
    paths = [results.work_paths(tmp_path / "runs", unit) for unit in spec.units[:2]]
    wait_until(stopped, lambda: all(workers.read_progress(p).step > 5 for p in paths))
    (os.killpg if to_the_group else os.kill)(stopped.pid, signum)
    stderr = stopped.communicate()[1]
    assert stopped.returncode == 128 + signum, stderr
    for unit in spec.units[:2]:
        assert toy_campaign.history(tmp_path, unit)[-1].startswith("saved")
    assert not (tmp_path / "runs" / "failures.jsonl").exists()


def test_a_campaign_and_its_units_are_paused_by_their_group(tmp_path):
    spec = toy_campaign.make_spec(tmp_path, steps=300)
    campaign = start(tmp_path, start_new_session=True)
    paths = results.work_paths(tmp_path / "runs", spec.units[0])
    wait_until(campaign, lambda: workers.read_progress(paths).step > 5)
    os.killpg(campaign.pid, signal.SIGSTOP)
    os.waitpid(campaign.pid, os.WUNTRACED)
    wait_until(campaign, lambda: set(_group_states(campaign.pid)) == {"T"})
    os.killpg(campaign.pid, signal.SIGCONT)
    step = workers.read_progress(paths).step
    wait_until(campaign, lambda: workers.read_progress(paths).step > step)
    campaign.terminate()
    assert campaign.wait() == 128 + signal.SIGTERM
    campaign.stderr.close()


def _group_states(group):
    import psutil

    for process in [psutil.Process(group), *psutil.Process(group).children()]:
        stat = open(f"/proc/{process.pid}/stat").read().rpartition(")")[2].split()
        assert int(stat[2]) == group
        yield stat[0]


def test_a_second_campaign_is_refused_until_the_first_has_ended(tmp_path):
    spec = toy_campaign.make_spec(tmp_path)
    with workers.locked(tmp_path / "runs"):
        second = start(tmp_path)
        message = second.communicate()[1]
        assert second.returncode == 2
        assert message.count("\n") == 1
        assert f"in use by another campaign, process {os.getpid()}" in message
    assert not any(toy_campaign.history(tmp_path, unit) for unit in spec.units)
    with workers.locked(tmp_path / "runs"):
        with pytest.raises(CampaignError):
            with workers.locked(tmp_path / "runs"):
                pass


def test_a_child_does_not_start_after_its_campaign_has_ended(tmp_path):
    started = tmp_path / "started"
    arguments = ["1", child.ANY_CORE, "0", str(tmp_path / "log"), "touch", str(started)]
    assert os.getpid() != 1
    ended = subprocess.run([sys.executable, "-m", child.__name__, *arguments], cwd=toy.ROOT)
    assert ended.returncode == 128 + signal.SIGTERM and not started.exists()


def test_a_unit_waits_for_an_older_process_of_its_own(tmp_path):
    log, started = tmp_path / "log", tmp_path / "started"
    arguments = [str(os.getpid()), child.ANY_CORE, "0", str(log), "touch", str(started)]
    with open(log, "w") as older:
        fcntl.flock(older, fcntl.LOCK_EX)
        newer = subprocess.Popen([sys.executable, "-m", child.__name__, *arguments], cwd=toy.ROOT)
        opened = pathlib.Path(f"/proc/{newer.pid}/fd")
        wait_until(newer, lambda: str(log) in {os.readlink(fd) for fd in _list(opened)})
        assert newer.poll() is None and not started.exists()
    assert newer.wait() == 0 and started.exists()


def _list(directory):
    return [path for path in directory.iterdir() if path.is_symlink()]


def test_the_status_line(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "_REPORT_EVERY_S", 0.0)
    spec = toy_campaign.make_spec(tmp_path, steps=50)
    spec = dataclasses.replace(spec, units=spec.units[:2])
    make_command = toy_campaign.fake_command(spec, step_s=0.02)
    _, lines = carry_out(spec, tmp_path, make_command=make_command)
    status = [line for line in lines if "steps/s" in line][0]
    assert status.startswith("0 of 2 finished, 0 failed; ")
    assert "erainbow_sa-Pong-0 at step " in status and "10.0 steps/s" in status
    assert status.endswith(" hours left")


def test_progress_is_that_of_the_last_complete_line(tmp_path):
    spec = toy_campaign.make_spec(tmp_path)
    paths = results.work_paths(tmp_path, spec.units[0])
    assert workers.read_progress(paths) == (0, None, 0.0)
    paths.directory.mkdir(parents=True)
    lines = io.StringIO()
    for step in range(1000):
        rate = {"steps_per_s": 2.5} if step == 900 else {}
        lines.write(json.dumps({"agent_steps": step, "wall_s": step / 2, **rate}) + "\n")
    paths.metrics.write_text(lines.getvalue() + '{"agent_steps": 10')
    assert workers.read_progress(paths) == (999, 2.5, 499.5)


@pytest.mark.skipif(
    not pathlib.Path("/proc/self/autogroup").exists(), reason="Linux does not schedule by session"
)
def test_a_campaign_with_its_own_session_gives_that_session_the_lowest_priority(tmp_path):
    """Niceness alone counts within a session: others would get no more time than the campaign."""
    child = [sys.executable, "-m", "rcrl_jax.training.campaign.child"]
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
