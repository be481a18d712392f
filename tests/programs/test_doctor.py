"""The doctor's lines and exit code, with everything there and with things missing."""

import subprocess
import sys
import types

import pytest

from rcrl_jax.envs import atari, dmc_rendering
from rcrl_jax.ops import native
from rcrl_jax.programs import doctor
from rcrl_jax.training import video
from tests.programs import programs
from tests.programs.test_command_line import ROOT, assert_refused

NAMES = [
    "Python", "JAX", "packages", "device", "emulators", "ROMs", "kernels", "dm_control", "renderer",
    "ffmpeg",
]  # fmt: skip


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs the doctor on two games and without looking for a renderer; exit code and lines."""
    load, idle = native.load, types.SimpleNamespace(INSTRUCTIONS="")  # compiled all the same
    monkeypatch.setattr(native, "load", lambda name: load(name) or idle)
    monkeypatch.setattr(dmc_rendering, "find_renderer", lambda: "egl")
    monkeypatch.setattr(atari, "ATARI_GAMES", ("Alien", "UpNDown"))

    def run() -> tuple[int, dict[str, str]]:
        code = doctor.main([])
        *lines, last = capsys.readouterr().out.splitlines()
        assert last.startswith("Atari training can run" if code == 0 else "Atari training cannot")
        return code, {line.split()[0]: line.split(maxsplit=1)[1] for line in lines}

    return run


def raising(error):
    def find(*arguments, **options):
        raise error

    return find


def test_where_atari_training_runs_the_exit_code_is_0(run):
    code, lines = run()
    assert code == 0
    assert list(lines) == NAMES
    assert all(line.startswith("ok ") for line in lines.values())
    assert "all 2 games start" in lines["ROMs"]
    assert all(f"{kernel}: {by}" in lines["kernels"] for kernel, by in native.describe().items())


def test_what_atari_training_can_do_without_leaves_the_exit_code_alone(run, monkeypatch, tmp_path):
    unavailable = dmc_rendering.RendererUnavailable("nothing renders: run 'apt-get install x'")
    monkeypatch.setattr(dmc_rendering, "find_renderer", raising(unavailable))
    monkeypatch.setattr(video, "find_ffmpeg", raising(video.VideoFailed("no ffmpeg: reinstall")))
    monkeypatch.setattr(native, "FOLDER", tmp_path)  # the tests pass without kernels
    monkeypatch.setattr(native, "load", lambda name: None if name == "convolution" else native)
    code, lines = run()
    assert code == 0
    assert lines["kernels"].startswith("missing  convolution not compiled, so training is slower")
    assert lines["renderer"].startswith("missing  nothing renders: run 'apt-get install x'")
    assert lines["renderer"].endswith("(DMControl)")
    assert lines["ffmpeg"].startswith("missing  no ffmpeg") and lines["ffmpeg"].endswith("(videos)")


def test_without_what_atari_training_needs_the_exit_code_is_1(run, monkeypatch):
    monkeypatch.setattr(atari, "make_atari", raising(RuntimeError("no ROM")))
    code, lines = run()
    assert code == 1
    assert [missing for missing in NAMES if lines[missing].startswith("missing ")] == ["ROMs"]
    assert "Alien does not start: no ROM" in lines["ROMs"]


def test_a_platform_without_a_device_is_not_taken_for_a_missing_jax():
    ended = programs.run("experiments.doctor", JAX_PLATFORMS="cuda")
    lines = dict(line.split(maxsplit=1) for line in ended.stdout.splitlines())
    assert ended.returncode == 1 and lines["JAX"].startswith("ok ")
    assert lines["device"].startswith("missing ") and "JAX_PLATFORMS=cpu" in lines["device"]


def test_one_emulator_package_is_enough(run, monkeypatch, caplog, request):
    atari._default_backend.cache_clear()
    request.addfinalizer(atari._default_backend.cache_clear)
    monkeypatch.setitem(sys.modules, "envpool", None)  # cannot be imported
    monkeypatch.setitem(sys.modules, "rcrl_jax.envs.atari_envpool", None)
    code, lines = run()
    assert code == 0
    assert "ale_py" in lines["emulators"] and "envpool is missing" in lines["emulators"]
    assert caplog.text.count("using ale_py instead") == 1  # not once for each game
    monkeypatch.setitem(sys.modules, "ale_py", None)
    monkeypatch.setitem(sys.modules, "rcrl_jax.envs.atari_ale", None)
    code, lines = run()
    assert code == 1
    assert lines["emulators"].startswith("missing ") and "make trial" in lines["emulators"]


def test_it_runs_where_no_package_is_installed(tmp_path):
    """And takes no arguments but --help."""
    bare = [sys.executable, "-S", "-m", "experiments.doctor"]
    ended = subprocess.run(bare, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 1 and ended.stderr == ""
    *lines, _ = ended.stdout.splitlines()
    assert [line.split()[0] for line in lines] == NAMES
    assert all(line.split()[1] == "missing" for line in lines[1:])
    assert_refused(subprocess.run([*bare, "--game"], cwd=ROOT, capture_output=True, text=True))
    helped = subprocess.run([*bare, "--help"], cwd=ROOT, capture_output=True, text=True)
    assert helped.returncode == 0 and "Exit code 0 if Atari training can run" in helped.stdout
