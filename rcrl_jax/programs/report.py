r"""Builds one self-contained HTML page of every run below some directories.

    python -m benchmarks.report --results=results --output=report.html
    python -m benchmarks.report --results=results,runs/rcrl-Pong-0

The page has scores of your arms by game, estimates over the games, learning curves, what runs
measured beside scores, your runs beside the paper's claims and tables, and every run with its
manifest. It makes no request to any network. What is left out is listed in the page and on standard
error, one line each.
"""

import datetime
import pathlib
import sys

from absl import flags

from rcrl_jax import files
from rcrl_jax.programs import command_line
from rcrl_jax.runs import manifest
from rcrl_jax.tables import page

flags.DEFINE_list("results", ["results"], "directories of runs, at any depth")
flags.DEFINE_string("output", "report.html", "the page to write")


def write(given: flags.FlagValues) -> None:
    """Writes the page."""
    output = pathlib.Path(given.output)
    if output.is_dir():
        raise ValueError(f"--output: {output} is a directory; name the page in it")
    files.check_writable(output.parent)  # before the runs are read, which takes seconds
    built = page.build(
        [pathlib.Path(root) for root in given.results],
        output,
        date=f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC",
        commit=manifest.git_commit(),
    )
    output.parent.mkdir(parents=True, exist_ok=True)
    with files.replacing(output) as partial:
        partial.write_text(built.html, encoding="utf-8")
    for line in built.problems:
        print(line, file=sys.stderr)
    print(f"{output}: runs: {built.runs}, left out: {len(built.problems)}")


if __name__ == "__main__":
    command_line.run(write)
