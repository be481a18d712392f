"""The programs as commands of an environment: `rcrl-atari` is `python -m experiments.atari100k`.

`python -m` prefers packages of the current folder, and many projects have one named `experiments`.
A command does not look there.
"""

import pathlib
import re
import runpy
import sys

PROGRAMS = {
    "rcrl-atari": "experiments.atari100k",
    "rcrl-dmc": "experiments.dmc",
    "rcrl-minatar": "experiments.minatar",
    "rcrl-train": "experiments.train",
    "rcrl-sweep": "experiments.sweep",
    "rcrl-evaluate": "experiments.evaluate",
    "rcrl-theory": "experiments.theory",
    "rcrl-doctor": "experiments.doctor",
    "rcrl-report": "benchmarks.report",
    "rcrl-compare": "benchmarks.compare",
    "rcrl-table1": "benchmarks.table1",
    "rcrl-table2": "benchmarks.table2",
}


def run() -> None:
    """Runs the program that this process is named after, as `python -m` would."""
    module = PROGRAMS[pathlib.Path(sys.argv[0]).name]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def as_typed(text: str) -> str:
    """`text` that names programs as commands, if this process was started as one."""
    # Not `sys.argv`, whose first is the module's file while a module runs.
    if not any(pathlib.Path(word).name in PROGRAMS for word in sys.orig_argv[:2]):
        return text
    for command, module in PROGRAMS.items():
        text = re.sub(rf"(python -m )?\b{re.escape(module)}\b(?!\.\w)", command, text)
    return text
