"""`rcrl_jax` alone is installed and works anywhere, without the other rooms."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from rcrl_jax.programs import commands

ROOT = pathlib.Path(__file__).parents[1]
SPEC = """
experiment = "minatar"
steps = 90
eval_episodes = 2
results = "results"

[arms.small]
preset = "minatar_rcrl"
config = { learn_start = 40, batch_size = 4, max_episode_steps = 30, evaluation_period = 1000 }

[[blocks]]
arms = ["small"]
games = ["Breakout"]
seeds = [0]
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Where pip has installed the package, which it has built without kernels to compile."""
    source, site = (tmp_path_factory.mktemp(name) for name in ("source", "site"))
    left_out = shutil.ignore_patterns("__pycache__", "kernels")
    for name in ("rcrl_jax", "experiments", "benchmarks"):
        shutil.copytree(ROOT / name, source / name, ignore=left_out)
    for name in ("setup.py", "pyproject.toml", "README.md", "MANIFEST.in", "LICENSE"):
        shutil.copy(ROOT / name, source)
    alone = ["--no-index", "--no-deps", "--no-build-isolation", "--no-compile"]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *alone, "--quiet", f"--target={site}", source],
        check=True,
    )
    return site


@pytest.fixture
def call(installed, tmp_path):
    """Calls an installed command in a folder with packages of the same names, found first."""
    for name in ("experiments", "benchmarks"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('the wrong package')\n")
    path = os.pathsep.join(map(str, (tmp_path, installed)))

    def run(*command):
        ended = subprocess.run(
            command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": path},
            capture_output=True, text=True,
        )  # fmt: skip
        logs = "".join(log.read_text() for log in tmp_path.rglob("*.log"))
        assert ended.returncode == 0, ended.stdout + ended.stderr + logs
        return ended.stdout

    return run


def test_one_package_is_installed_with_a_command_for_each_program(installed):
    (about,) = installed.glob("rcrl_jax-*.dist-info")
    assert (about / "top_level.txt").read_text() == "rcrl_jax\n"
    points = re.findall(r"^(\S+) = (\S+)$", (about / "entry_points.txt").read_text(), re.M)
    assert dict(points) == dict.fromkeys(commands.PROGRAMS, "rcrl_jax.programs.commands:run")
    for name in commands.PROGRAMS.values():
        module = pathlib.PurePath(*name.split(".")).with_suffix(".py")
        assert (installed / "rcrl_jax" / "programs" / module.name).exists()
        assert (ROOT / module).exists()


def test_installed_commands_work_beside_packages_of_the_same_names(call, installed, tmp_path):
    where = call(sys.executable, "-c", "import rcrl_jax; print(rcrl_jax.__file__)")
    assert where.startswith(str(installed))
    command = (installed / "bin").joinpath
    (tmp_path / "mine.toml").write_text(SPEC)
    swept = call(command("rcrl-sweep"), "--spec=mine.toml", "--niceness=0")
    assert swept.splitlines()[-1] == "1 finished, 0 failed, 0 left"
    run = "results/small/minatar_rcrl/Breakout/seed_0"
    manifest = json.loads((tmp_path / run / "manifest.json").read_text())
    assert manifest["launch"]["command"].startswith("python -m rcrl_jax.programs.minatar --preset")
    scored = call(command("rcrl-evaluate"), f"--workdir={run}", "--episodes=2")
    assert "mean of 2 episodes" in scored
    reported = call(command("rcrl-report"), "--results=results", "--output=page.html")
    assert reported == "page.html: runs: 1, left out: 0\n"
    assert "Atari-100k: scores" in call(command("rcrl-table1"), "--results=results")
