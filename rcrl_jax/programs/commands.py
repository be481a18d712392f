"""The programs as commands of an environment: `rcrl-atari` is `python -m experiments.atari100k`.

`experiments` and `benchmarks` are packages of a clone alone, and `python -m` prefers those of the
current folder, where many projects have an `experiments`. A command does not look there.
"""

import pathlib
import re
import runpy
import sys

import rcrl_jax

PROGRAMS = {
    "rcrl-atari": "experiments.atari100k",
    "rcrl-dmc": "experiments.dmc",
    "rcrl-minatar": "experiments.minatar",
    "rcrl-train": "experiments.train",
    "rcrl-sweep": "experiments.sweep",
    "rcrl-evaluate": "experiments.evaluate",
    "rcrl-share": "experiments.share",
    "rcrl-doctor": "experiments.doctor",
    "rcrl-report": "benchmarks.report",
    "rcrl-compare": "benchmarks.compare",
    "rcrl-table1": "benchmarks.table1",
    "rcrl-table2": "benchmarks.table2",
    "rcrl-figure-dmc": "benchmarks.figure_dmc",
}
"""Command -> its name in a clone, whose last part names the module of this package."""


def run() -> None:
    """Runs the program that this process is named after."""
    start(PROGRAMS[pathlib.Path(sys.argv[0]).name].rpartition(".")[2])


def start(module: str) -> None:
    """Runs a module of this package as `python -m` would; --version needs no other package."""
    if "--version" in sys.argv[1:]:
        print(rcrl_jax.__version__)
        return
    runpy.run_module(f"{__package__}.{module}", run_name="__main__", alter_sys=True)


def as_typed(text: str) -> str:
    """`text`, in which names of programs in a clone become the names that the user typed."""
    # Not `sys.argv`, whose first item is the module's file while a module runs.
    is_command = any(pathlib.Path(word).name in PROGRAMS for word in sys.orig_argv[:2])
    is_module = any(word.startswith(f"{__package__}.") for word in sys.orig_argv)
    for command, program in PROGRAMS.items():
        pattern = rf"\b{re.escape(program)}\b(?!\.\w)"
        if is_command:
            text = re.sub(f"(python -m )?{pattern}", command, text)
        elif is_module:
            text = re.sub(pattern, f"{__package__}.{program.rpartition('.')[2]}", text)
    return text
