"""The programs as commands of an environment: `rcrl-atari` is `python -m experiments.atari100k`.

`python -m` prefers packages of the current folder, and many projects have one named `experiments`.
A command does not look there.
"""

import pathlib
import runpy
import sys

PROGRAMS = {
    "rcrl-atari": "experiments.atari100k",
    "rcrl-dmc": "experiments.dmc",
    "rcrl-minatar": "experiments.minatar",
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
