"""The versions that the tests run with lie in the ranges that setup.py promises."""

import pathlib
import re
import runpy

import pytest
import setuptools
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = pathlib.Path(__file__).parents[1]


@pytest.fixture(scope="module")
def promised():
    """Requirements of setup.py, those of the extras included."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(setuptools, "setup", lambda **settings: found.update(settings))
        found = {}
        runpy.run_path(str(ROOT / "setup.py"))
    extras = {k: v for k, v in found["extras_require"].items() if k != "test"}
    return [Requirement(line) for line in sum(extras.values(), found["install_requires"])]


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
