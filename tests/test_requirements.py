"""The lock names the files of exactly the versions in requirements.txt."""

import importlib.metadata
import pathlib
import re

import pytest
from packaging.specifiers import SpecifierSet

ROOT = pathlib.Path(__file__).parents[1]


def pins(text: str) -> dict[str, tuple[str, str]]:
    """Name -> version and condition, spelled as pip compares them."""
    found = {}
    for line in re.sub(r" *#.*", "", text.replace("\\\n", " ")).splitlines():
        requirement, _, condition = line.partition("--hash")[0].partition(";")
        if requirement.strip():
            name, version = requirement.strip().split("==")
            condition = condition.strip().replace("_full_", "_").replace("'", '"')
            found[re.sub(r"[-_.]+", "-", name).lower()] = version.strip(), condition
    return found


def test_the_lock_has_every_version_of_the_requirements_and_no_other():
    required = pins((ROOT / "requirements.txt").read_text())
    assert len(required) > 90
    assert pins((ROOT / "requirements.lock").read_text()) == required


@pytest.mark.parametrize("name", ["", "-tpu", "-cuda"])
def test_every_locked_version_has_hashes_and_none_names_where_it_comes_from(name):
    lock = (ROOT / f"requirements{name}.lock").read_text()
    locked = re.split(r"^(?=[a-z])", lock, flags=re.MULTILINE)[1:]
    assert len(locked) == len(pins(lock))
    for version in locked:
        hashes = re.findall(r"--hash=sha256:([0-9a-f]{64})\b", version)
        assert hashes and len(set(hashes)) == len(hashes), version
    assert "://" not in lock and "index-url" not in lock and "find-links" not in lock


def test_make_installs_only_what_is_locked():
    makefile = (ROOT / "Makefile").read_text()
    assert "--require-hashes -r requirements.lock" in makefile
    assert "requirements-%.lock" in makefile and "--require-hashes -r $<" in makefile
    # The package itself: nothing is fetched to build it.
    assert "--no-build-isolation --editable ." in makefile


def test_compilers_are_those_of_jax():
    required = pins((ROOT / "requirements.txt").read_text())
    compilers = pins((ROOT / "requirements-cuda.lock").read_text())
    own = {name: version for name, version in compilers.items() if name.startswith("jax-")}
    assert len(own) == 2 and set(own.values()) == {required["jax"]}
    extras = importlib.metadata.requires("jax")
    libtpu = pins((ROOT / "requirements-tpu.lock").read_text())["libtpu"][0]
    (wanted,) = {line.partition(";")[0].strip() for line in extras if line.startswith("libtpu")}
    assert libtpu in SpecifierSet(wanted.removeprefix("libtpu"))
