"""Runs programs inside the test's process, which saves seconds, or starts them beside it.

Some fields of a plan have no flag, such as the steps between checkpoints. `call` and `start` take
them by name.
"""

import contextlib
import functools
import io
import os
import pathlib
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple, NoReturn

from absl import app, flags

from rcrl_jax import api
from rcrl_jax.return_contrast import instruments
from rcrl_jax.runs import checkpoints
from rcrl_jax.training import host_memory

_ROOT = pathlib.Path(__file__).parents[2]

_PACKAGES = ("experiments", "benchmarks", "rcrl_jax.programs")
# Define no flags when imported.
_LIBRARY = (
    "experiments.representation",
    "experiments.simple",
    "experiments.theory",
    "rcrl_jax.programs.command_line",
    "rcrl_jax.programs.sweeps",
    "benchmarks.compiled",
)
# How the flag library keeps flags, and who defined them.
_TABLES = ("__flags", "__flags_by_module", "__flags_by_module_id", "__key_flags_by_module")


class Ended(NamedTuple):
    """How a program has ended."""

    returncode: int
    stdout: str
    stderr: str


def call(
    module: str, *arguments: str, directory: os.PathLike | str = _ROOT, command: str = "", **fields
) -> Ended:
    """Runs `python -m module` with `arguments` in `directory`; `fields` are of its plans.

    The program takes `command` for what the user has typed, if there is one. An exception that
    would end the program with a traceback is raised.
    """
    stdout, stderr, code = io.StringIO(), io.StringIO(), 0
    typed = [command] if command else ["-m", module]
    with (
        nothing_imported(),
        _replaced(sys, "argv", [module, *arguments]),
        _replaced(sys, "orig_argv", [sys.executable, *typed, *arguments]),
        # The library's own would also set up logging for the whole process.
        _replaced(app, "run", _run),
        # Cannot be taken back.
        _replaced(host_memory, "keep_freed_memory", lambda large_blocks: None),
        _replaced(api, "Plan", functools.partial(api.Plan, **fields)),
        contextlib.chdir(directory),
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
    ):
        try:
            runpy.run_module(module, run_name="__main__")
        except SystemExit as end:
            code = end.code or 0
    return Ended(code, stdout.getvalue(), stderr.getvalue())


def run(
    module: str, *arguments: str, directory: os.PathLike | str = _ROOT, **variables: str
) -> Ended:
    """Runs `python -m module` as a process, with further environment variables."""
    ended = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=directory, env={**os.environ, "PYTHONPATH": str(_ROOT), **variables},
        capture_output=True, text=True,
    )  # fmt: skip
    return Ended(ended.returncode, ended.stdout, ended.stderr)


_START = """
import functools, runpy
from rcrl_jax import api
from rcrl_jax.return_contrast import instruments
instruments._PAIRS = {pairs!r}
api.Plan = functools.partial(api.Plan, **{fields!r})
runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
"""


def start(module: str, *arguments: str, **fields) -> subprocess.Popen:
    """Starts `python -m module` with `arguments`; `fields` are of its plans.

    Its evaluations compare as many pairs as those of this process, so that they can be equal.
    """
    program = _START.format(module=module, fields=fields, pairs=instruments._PAIRS)
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        cwd=_ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def finish(process: subprocess.Popen) -> Ended:
    """Waits for the end of what `start` has started."""
    stdout, stderr = process.communicate()
    return Ended(process.returncode, stdout, stderr)


def terminate() -> None:
    """Sends this process SIGTERM."""
    os.kill(os.getpid(), signal.SIGTERM)


@contextlib.contextmanager
def after_a_save(act: Callable[[], None] = terminate, step: int | None = None) -> Iterator[None]:
    """Meanwhile `act` follows the checkpoint of a step, or every checkpoint."""
    save = checkpoints.CheckpointStore.save

    def save_and_act(store, checkpoint):
        save(store, checkpoint)
        if step in (None, checkpoint.step):
            act()

    with _replaced(checkpoints.CheckpointStore, "save", save_and_act):
        yield


def _run(main: Callable, flags_parser: Callable) -> NoReturn:
    sys.exit(main(flags_parser(sys.argv)))


@contextlib.contextmanager
def nothing_imported() -> Iterator[None]:
    """Forgets all programs and their flags, because two programs define equal flags."""
    tables = flags.FLAGS.__dict__
    kept = {
        name: {
            key: list(own) if isinstance(own, list) else own for key, own in tables[name].items()
        }
        for name in _TABLES
    }
    parsed = tables["__flags_parsed"]
    programs = {name: module for name, module in sys.modules.items() if _is_program(name)}
    for module, own in flags.FLAGS.flags_by_module_dict().copy().items():
        for flag in own.copy() if _is_program(module) else ():
            delattr(flags.FLAGS, flag.name)
    _forget(programs)
    of_the_library = [flags.FLAGS[name] for name in flags.FLAGS]
    try:
        yield
    finally:
        _forget([name for name in sys.modules if _is_program(name)])
        tables.update(kept)
        for flag in of_the_library:
            flag.unparse()
        tables["__flags_parsed"] = parsed
        for name, module in programs.items():
            sys.modules[name] = module
            package, _, attribute = name.rpartition(".")
            setattr(sys.modules[package], attribute, module)


def _is_program(module: str) -> bool:
    return module.rpartition(".")[0] in _PACKAGES and module not in _LIBRARY


def _forget(modules) -> None:
    for name in modules:
        del sys.modules[name]
        package, _, attribute = name.rpartition(".")
        delattr(sys.modules[package], attribute)


@contextlib.contextmanager
def _replaced(owner, name, value) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
