"""A program starts whatever its shell has set; a program that imports it keeps its settings."""

import os
import signal
import subprocess
import sys

import pytest

from rcrl_jax import signals, starting
from tests.training import toy

NOTEBOOK = {"MPLBACKEND": "module://matplotlib_inline.not_installed_here"}


def test_importing_programs_changes_neither_handlers_nor_variables(monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "svg")
    monkeypatch.setenv("JAX_ENABLE_X64", "1")
    handlers = [signal.getsignal(number) for number in signals.STOP_SIGNALS]
    variables = dict(os.environ)
    starting.begin_program()
    assert [signal.getsignal(number) for number in signals.STOP_SIGNALS] == handlers
    assert dict(os.environ) == variables


def test_a_starting_program_ends_at_a_signal():
    program = (
        "import sys; sys.argv = ['-m']; import experiments, signal; "
        "signal.raise_signal(signal.SIGTERM)"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=toy.ROOT, capture_output=True)
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGTERM, b"stopped by SIGTERM\n")


@pytest.mark.parametrize("module", ["benchmarks.table1", "benchmarks.compare"])
def test_the_canvas_of_a_notebook_does_not_matter(module):
    """Jupyter hands MPLBACKEND on to every program that a cell starts."""
    ended = subprocess.run(
        [sys.executable, "-m", module, "--help"], cwd=toy.ROOT, env=os.environ | NOTEBOOK,
        capture_output=True, text=True,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, "") and "--results" in ended.stdout


def test_emulators_and_curves_are_imported_whatever_canvas_a_notebook_names():
    program = (
        "import sys; sys.argv = ['-m']; import experiments, envpool; "
        "from rcrl_jax.training import curves"
    )
    subprocess.run(
        [sys.executable, "-c", program], cwd=toy.ROOT, env=os.environ | NOTEBOOK, check=True
    )


def test_what_the_shell_asks_of_jax_for_other_programs_does_not_reach_this_one():
    program = (
        "import sys; sys.argv = ['-m']; import experiments, jax; c = jax.config; "
        "assert not c.jax_enable_x64 and c.jax_numpy_dtype_promotion == 'standard'; "
        "assert c.jax_transfer_guard == 'allow'"
    )
    wishes = {
        "JAX_ENABLE_X64": "1",
        "JAX_NUMPY_DTYPE_PROMOTION": "strict",
        "JAX_TRANSFER_GUARD": "disallow",
    }
    subprocess.run(
        [sys.executable, "-c", program], cwd=toy.ROOT, env=os.environ | wishes, check=True
    )
