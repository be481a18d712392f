"""What somebody sees who runs the program for the first time."""

import importlib.metadata
import os
import re
import shlex

import pytest

from rcrl_jax.envs import dmc_rendering
from tests import makefile
from tests.programs import programs
from tests.programs.test_command_line import ROOT, assert_mistake


@pytest.mark.parametrize("preset", ["state_sac", "rcrl_sac"])
def test_without_dm_control_the_program_says_how_to_install_it(tmp_path, monkeypatch, preset):
    def version(name):
        if name == "dm_control":
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    real = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", version)
    dmc_rendering.find_renderer.cache_clear()
    ended = programs.call("experiments.dmc", f"--preset={preset}", directory=tmp_path)
    assert_mistake(ended, ["dm_control is not installed", "requirements.txt"], tmp_path)


def make(*arguments: str) -> str:
    """What `make` would do where all but a renderer is installed."""
    return makefile.would_do(
        "--assume-old=.venv/installed", "--assume-new=.venv/renders", *arguments
    )


def test_make_asks_for_a_renderer_only_where_frames_are_rendered():
    renders = "rcrl_jax.envs.dmc_rendering"
    assert renders in make("dmc", "--always-make")
    assert renders not in make("dmc", "PRESET=state_sac", "--always-make")
    assert renders not in make("dmc", "ARGS=--preset=state_sac", "--always-make")
    assert renders in make("sweep", "ARGS=--experiment=dmc --games=all", "--always-make")
    assert renders not in make("sweep", "ARGS=--games=all", "--always-make")
    states = "ARGS=--experiment=dmc --presets=state_sac"
    assert renders not in make("sweep", states, "--always-make")


def test_make_trial_is_a_fleet_of_a_small_game_with_a_device_for_each_seed(tmp_path):
    (command,) = (line for line in make("trial").splitlines() if "experiments.minatar" in line)
    devices, _, _, program, *flags = shlex.split(command)
    assert devices == "JAX_NUM_CPU_DEVICES=4" and {"--nulls", "--video"} < {*flags}
    ended = programs.call(program, *flags, "--dry_run", directory=tmp_path)
    assert ended.stdout == "this can run: 4 runs of 7,000 agent steps, runs/trial\n"


def test_make_refuses_an_accelerator_that_jax_has_no_package_for():
    assert "--game=Pong" in make("atari", "GPU=cuda13")
    ended = makefile.start("--dry-run", "atari", "GPU=gpu")
    assert ended.returncode == 2 and not ended.stdout
    assert "GPU=gpu: expected cuda12, cuda13 or tpu" in ended.stderr
    assert makefile.would_do("clean", "GPU=gpu")


def test_make_passes_one_game_and_seed_unless_several_are_named():
    assert "--game=Pong --seed=0 --preset=rcrl" in make("atari")
    several = make("atari", "ARGS=--games=Pong,Alien --seeds=0:2")
    assert not re.search(r"--(game|seed)=", several)
    assert "--task=" not in make("dmc", "ARGS=--tasks=finger_spin,walker_walk")


STUBS = {
    # No renderer works, and the program refuses one task.
    "python": """
case "$*" in
  *dmc_rendering*) echo "nothing renders" >&2; exit 1;;
  *cheetah_rum*) echo "unknown task" >&2; exit 2;;
esac
""",
    "id": "echo 0",
    "apt-get": 'echo "$@" >>asked',
}


@pytest.fixture
def make_clone(tmp_path, monkeypatch):
    """Makes a clone of programs (shell code), which come first in the path, and of files."""

    def make(programs, *more):
        (tmp_path / ".venv/bin").mkdir(parents=True)
        for name, body in programs.items():
            path = tmp_path / (".venv/bin" if name == "python" else "") / name
            path.write_text(f"#!/bin/sh\n{body}\n")
            path.chmod(0o755)
        for name in ("requirements.lock", "setup.py", *more):
            (tmp_path / name).touch()
        (tmp_path / "Makefile").symlink_to(ROOT / "Makefile")
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        return tmp_path

    return make


@pytest.fixture
def bare_machine(make_clone):
    """A clone with its packages, on a machine of root without a renderer."""
    return make_clone(STUBS, ".venv/installed")


@pytest.mark.parametrize("task, asks", [("cheetah_rum", False), ("cheetah_run", True)])
@pytest.mark.parametrize("command", ["dmc TASK={}", "sweep ARGS=--experiment=dmc\\ --games={}"])
def test_make_installs_no_renderer_for_a_command_that_is_refused(bare_machine, command, task, asks):
    ended = makefile.start(*shlex.split(command.format(task)), directory=bare_machine)
    assert ended.returncode == 2
    assert ("nothing renders" if asks else "unknown task") in ended.stderr
    assert (bare_machine / "asked").exists() == asks


def test_a_dry_run_checks_the_command_without_a_renderer_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "nonsense")
    small = ("--dry_run", "--steps=8000", "--config.replay.capacity=1000")
    ended = programs.call("experiments.dmc", *small, directory=tmp_path)
    assert ended.returncode == 0 and ended.stdout.startswith("this can run: 1 run of 2,000 ")
    fleet = ("--games=Pong,Alien", "--seeds=0:2", "--dry_run", "--config.replay.capacity=1000")
    ended = programs.call("experiments.atari100k", *fleet, directory=tmp_path)
    assert ended.stdout.startswith("this can run: 4 runs of 100,000 agent steps")
    two = ("--presets=erainbow_sa,rcrl", *fleet[1:])
    ended = programs.call("experiments.representation", *two, directory=tmp_path)
    assert ended.returncode == 0
    assert ended.stdout == "this can run: 4 runs of 100,000 agent steps, runs/representation-Pong\n"
    # Tasks of two learning rates share a fleet where a flag sets one.
    both = ("--tasks=cheetah_run,reacher_easy", "--config.learning_rate=1e-4")
    ended = programs.call("experiments.dmc", *small, *both, directory=tmp_path)
    assert ended.returncode == 0 and ended.stdout.startswith("this can run: 2 runs of 2,000 ")
    assert not [*tmp_path.iterdir()]
    assert_mistake(
        programs.call("experiments.dmc", *small, "--steps=4", directory=tmp_path),
        ["first update"],
        tmp_path,
    )


def test_make_keeps_the_python_of_its_environment(make_clone):
    folder = make_clone({"python": "echo 3.12", "python3": "echo 3.11"})
    (folder / ".venv/pyvenv.cfg").write_text("version = 3.12.1\n")
    text = makefile.start("--dry-run", ".venv/installed", directory=folder).stdout
    assert re.search(r"^\.venv/bin/python -m venv +\.venv", text, re.M)
    assert "python3 -m venv" not in text
    # Its Python has no headers: the packages of kernels are named before what takes minutes.
    assert 0 < text.index("g++ python3-dev, then") < text.index("installing 2 GB")


@pytest.fixture
def clone(tmp_path, make_clone):
    """A clone with a complete environment but for kernels, and a compiler that came later."""
    python = f'case "$2" in *sysconfig*) echo {tmp_path};; *) echo 3.12;; esac'
    programs = {"python": python, "python3": "echo 3.12", "c++": "true"}
    make_clone(programs, "Python.h", ".venv/installed", ".venv/uncompiled")
    (tmp_path / ".venv/pyvenv.cfg").write_text("version = 3.12.1\n")
    for name in ("requirements.lock", "setup.py", ".venv/installed", ".venv/uncompiled"):
        os.utime(tmp_path / name, (10**9, 10**9))
    return tmp_path


def test_make_compiles_once_there_is_a_compiler(clone):
    text = makefile.start("--dry-run", ".venv/installed", directory=clone).stdout
    assert "--editable ." in text
    (clone / ".venv/uncompiled").unlink()
    text = makefile.start("--dry-run", ".venv/installed", directory=clone).stdout
    assert "--editable ." not in text


@pytest.mark.parametrize(
    ("goals", "made_by"),
    [
        (["clean", ".venv/installed"], "python3 -m venv"),
        (["PYTHON=no_such_python", ".venv/installed"], "no_such_python -m venv --clear"),
    ],
)
def test_make_makes_an_environment_with_the_python_that_it_is_told(clone, goals, made_by):
    (clone / ".venv/uncompiled").unlink()
    if "clean" in goals:
        (clone / ".venv/installed").unlink()
    assert made_by in makefile.start("--dry-run", *goals, directory=clone).stdout


def test_make_knows_three_accelerators():
    assert makefile.start("--dry-run", ".venv/accelerator-cuda").returncode == 2


def test_make_takes_one_accelerator_out_before_it_installs_another():
    text = makefile.would_do("--assume-new=.venv/installed", "GPU=cuda12", "atari")
    assert 0 < text.index("uninstall") < text.index("jax[cuda12]")
