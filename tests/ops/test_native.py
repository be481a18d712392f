"""The registry of kernels, and what there is without them."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import types

import pytest

from rcrl_jax.ops import native
from tests.training.toy import ROOT


def test_without_their_folder_xla_and_numpy_compute():
    program = (
        "import json, sys; sys.modules['rcrl_jax.ops.kernels'] = None\n"
        "from rcrl_jax.ops import native\n"
        "print(json.dumps([native.describe(), native.get('threefry')]))"
    )
    done = subprocess.check_output([sys.executable, "-c", program], cwd=ROOT)
    assert json.loads(done) == [native.KERNELS, None]


@pytest.mark.skipif(
    not all(map(shutil.which, ("cc", "c++")))
    or not pathlib.Path(sysconfig.get_path("include"), "Python.h").exists(),
    reason="no compiler, or no headers of Python",
)
def test_where_there_is_a_compiler_all_kernels_are_compiled():
    """Otherwise the tests of kernels are skipped, and nobody notices."""
    assert native.advice() is None


def test_only_the_registry_imports_the_kernels():
    rooms = [ROOT / name for name in ("rcrl_jax", "experiments", "benchmarks")]
    outside = [
        path
        for room in rooms
        for path in room.rglob("*.py")
        if "kernels" not in path.parts and re.search(r"rcrl_jax\.ops\.kernels", path.read_text())
    ]
    assert outside == [ROOT / "rcrl_jax" / "ops" / "native.py"]


def test_a_kernel_that_this_processor_cannot_run_is_left_alone(monkeypatch):
    modules = {
        "convolution": types.SimpleNamespace(INSTRUCTIONS="Avx2"),
        "encoder": types.SimpleNamespace(INSTRUCTIONS=""),
        "stacks": types.SimpleNamespace(),
    }
    monkeypatch.setattr(native, "load", modules.get)
    assert native.get("encoder") is None and native.load("encoder") is not None
    assert native.describe() == native.KERNELS | {"convolution": "Avx2", "stacks": "compiled"}


def test_a_compiled_kernel_that_does_not_load_is_not_said_to_be_missing(monkeypatch, tmp_path):
    folder = tmp_path / "rcrl_jax" / "ops" / "kernels"
    folder.mkdir(parents=True)
    (folder / "_adam.abi3.so").write_bytes(b"of another machine")
    monkeypatch.setattr(native, "FOLDER", folder)
    monkeypatch.setattr(native, "load", lambda name: None if name == "adam" else types)

    def fail(name):
        raise ImportError(f"{name}: GLIBCXX_9 not found\nsecond line")

    monkeypatch.setattr(native.importlib, "import_module", fail)
    advice = native.advice()
    assert advice.startswith(
        "adam does not load (rcrl_jax.ops.kernels.adam: GLIBCXX_9 not found), so training is slower"
    )
    assert "compiler" not in advice and "\n" not in advice
    monkeypatch.setattr(native, "load", lambda name: None)
    assert native.advice().startswith("convolution, encoder, sum_tree, stacks not compiled, adam ")


@pytest.mark.parametrize(
    "direct_url, where, source",
    [
        (None, "in a clone of its repository run ", "."),
        ({"url": "file:///gone/rcrl_jax-1.whl", "archive_info": {}}, "in a clone of", "."),
        ({"url": "file://{folder}", "dir_info": {}}, "then run ", "'{folder}'"),
        (
            {"url": "https://host/x.git", "vcs_info": {"vcs": "git", "commit_id": "12ab"}},
            "then run ",
            "git+https://host/x.git@12ab",
        ),
    ],
    ids=["unknown", "wheel", "folder", "git"],
)
def test_advice_reinstalls_as_pip_has_installed(monkeypatch, tmp_path, direct_url, where, source):
    """Not an editable installation where pip has copied the package."""
    clone = tmp_path / "a clone"
    clone.mkdir()
    (clone / "setup.py").touch()
    content = json.dumps(direct_url).replace("{folder}", str(clone).replace(" ", "%20"))
    installed = types.SimpleNamespace(read_text=lambda name: direct_url and content)
    monkeypatch.setattr(native.importlib.metadata, "distribution", lambda name: installed)
    monkeypatch.setattr(native, "FOLDER", tmp_path / "rcrl_jax" / "ops" / "kernels")
    native.FOLDER.mkdir(parents=True)
    monkeypatch.setattr(native, "load", lambda name: None)
    advice = native.advice()
    assert where in advice
    assert advice.endswith(f" --force-reinstall {source.format(folder=clone)}")


def test_advice_for_a_clone_is_an_editable_installation(monkeypatch, tmp_path):
    monkeypatch.setattr(native, "FOLDER", tmp_path / "rcrl_jax" / "ops" / "kernels")
    native.FOLDER.mkdir(parents=True)
    monkeypatch.setattr(native, "load", lambda name: None)
    (tmp_path / "setup.py").touch()
    assert native.advice().endswith(f" --force-reinstall -e {tmp_path}")
