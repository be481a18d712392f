"""Checks the theory of RCRL, Z^pi-irrelevance and Z-learning, on finite MDPs.

    python -m experiments.theory --quick
    python -m experiments.theory --output=results/theory --page=docs/theory.md

Writes `<output>/theory.json` and four PNG figures. `--page` also rewrites the tables of that page.
"""

import dataclasses
import os
import pathlib
import platform
import sys
import time

import jax
import numpy as np
from absl import app, flags

from experiments.theory import figures, page, problems
from experiments.theory.studies import abstraction, learning, segments
from rcrl_jax import files
from rcrl_jax.programs import command_line

STUDIES = {
    "representation": abstraction.proposition_representation,
    "coarseness": abstraction.coarseness,
    "pi_bisimulation": abstraction.pi_bisimulation,
    "theorem": learning.theorem_fixed,
    "rare_probe": learning.theorem_rare_probe,
    "corollary": learning.corollary,
    "segment_sampling": segments.segment_sampling,
    "segment_returns": segments.segment_returns,
}

_QUICK = flags.DEFINE_bool("quick", False, "run a small version of every study, below a minute")
_OUTPUT = flags.DEFINE_string(
    "output", None,
    "folder of the JSON and the figures [default: results/theory, with --quick runs/theory-quick]",
)  # fmt: skip
_PAGE = flags.DEFINE_string(
    "page", None, "a Markdown page whose measured tables are rewritten [default: none]"
)


def main(argv: list[str]) -> None:
    """Runs every study and writes its output."""
    del argv
    scale = problems.QUICK if _QUICK.value else problems.FULL
    # The repository tracks results/theory: a trial must not overwrite it.
    default = "runs/theory-quick" if _QUICK.value else "results/theory"
    output = pathlib.Path(_OUTPUT.value or default)
    try:
        # Fail on a wrong folder or page before the studies run, which takes minutes.
        if _PAGE.value is not None:
            page.check(pathlib.Path(_PAGE.value), STUDIES)
        command_line.count_devices()
        files.make_writable(output)
    except (OSError, ValueError) as error:
        command_line.refuse(str(error))

    results, seconds = {}, {}
    for name, study in STUDIES.items():
        start = time.perf_counter()
        results[name] = study(scale)
        seconds[name] = round(time.perf_counter() - start, 1)
        print(f"{name}: {seconds[name]} s", flush=True)
    manifest = {
        "command": " ".join(["python -m experiments.theory", *sys.argv[1:]]),
        "scale": dataclasses.asdict(scale),
        "versions": {
            "python": platform.python_version(),
            "jax": jax.__version__,
            "numpy": np.__version__,
        },
        "device": f"{jax.devices()[0].device_kind}, {os.cpu_count()} cores",
        "seconds": seconds,
    }
    report = files.to_json_value({"manifest": manifest, "results": results})
    files.write_json_atomically(output / "theory.json", report)
    figures.draw_all(results, output)
    if _PAGE.value is not None:
        page.fill(pathlib.Path(_PAGE.value), report)
    print(f"wrote {output}/theory.json and figures, {sum(seconds.values()):.0f} s in all")


if __name__ == "__main__":
    app.run(main, flags_parser=command_line.parse)
