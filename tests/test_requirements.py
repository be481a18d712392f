"""The versions that the tests run with lie in the ranges that setup.py promises."""

import pathlib
import re
import runpy

import pytest
import setuptools
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests import makefile

ROOT = pathlib.Path(__file__).parents[1]


@pytest.fixture(scope="module")
def package():
    """The arguments of setup.py."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(setuptools, "setup", lambda **settings: found.update(settings))
        found = {}
        runpy.run_path(str(ROOT / "setup.py"))
    return found


@pytest.fixture(scope="module")
def promised(package):
    """Requirements of setup.py, those of the extras included."""
    lines = sum(package["extras_require"].values(), package["install_requires"])
    return [Requirement(line) for line in lines]


def pinned(name: str) -> dict[str, str]:
    """Package -> version."""
    return dict(re.findall(r"(?m)^([\w.-]+)==(\S+)", (ROOT / name).read_text()))


@pytest.mark.parametrize("stem", ["requirements", "requirements-test"])
def test_every_pinned_file_has_its_hash(stem):
    assert pinned(f"{stem}.lock") == {
        canonicalize_name(name): version for name, version in pinned(f"{stem}.txt").items()
    }


def test_every_range_ends_and_holds_the_pinned_version(promised):
    pins = pinned("requirements.txt") | pinned("requirements-test.txt")
    pins = {canonicalize_name(name): version for name, version in pins.items()}
    for requirement in promised:
        assert any(bound.operator == "<" for bound in requirement.specifier), requirement
        assert pins[canonicalize_name(requirement.name)] in requirement.specifier, requirement


def test_what_the_dockerfile_names_exists(package):
    """It cannot be built here; what it names is the version, packages and targets of the others."""
    text = (ROOT / "Dockerfile").read_text()
    rules = (ROOT / "Makefile").read_text()
    (python,) = re.findall(r"^FROM python:(\S+)-slim-bookworm$", text, re.M)
    assert f"Programming Language :: Python :: {python}" in package["classifiers"]
    (installed,) = re.findall(r"--no-install-recommends \\\n *([\w +.-]+) &&", text)
    (renderer,) = re.findall(r"^RENDERER := (.+)$", rules, re.M)
    assert {*installed.split()} == {"g++", "make", "git", *renderer.split()}
    (target,) = re.findall(r"^RUN make (\S+)$", text, re.M)
    (gpu,) = re.findall(r'^ENTRYPOINT \["make", "GPU=(\w+)"\]$', text, re.M)
    assert target == f".venv/accelerator-{gpu}" and gpu in package["extras_require"]
    goals = re.findall(r'^CMD \["(\w+)"\]$', text, re.M) + re.findall(r" rcrl (\w+) \w+=", text)
    for goal in (target, *goals):
        done = makefile.would_do("--assume-new=.venv/installed", f"GPU={gpu}", goal)
        assert f"'jax[{gpu}]'" in done
    assert len(goals) == 2


def test_an_image_holds_no_compiled_part_of_another_machine():
    assert {".venv", "runs", "**/*.so"} <= {*(ROOT / ".dockerignore").read_text().split()}


def test_kernels_are_rebuilt_for_another_jaxlib_and_keep_the_order_of_sums(package):
    for extension in package["ext_modules"]:
        assert "-fno-fast-math" in extension.extra_compile_args
        is_for_jax = extension.language == "c++"
        assert any(path.endswith("ffi/api/ffi.h") for path in extension.depends) == is_for_jax
