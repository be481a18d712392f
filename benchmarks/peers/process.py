"""Steps another code base's training on command; `benchmarks.peers` starts this program.

    PYTHON benchmarks/peers/process.py NAME DIRECTORY

PYTHON needs the imports of the code in DIRECTORY, and nothing of this project. NAME is one of
`torch_peers.START` or `jax_peers.START`, which say what each needs.

The first answer, "ready" and the version of PyTorch or JAX, comes after the first updates. Then
each line of standard input is a number of steps to take, and the answer the seconds that they took
by the clock and by the process's own time; or the line is "program", and the answer the text of the
update's program before the compiler's passes, in JSON, null if it is unknown.
"""

import json
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

Advance = Callable[[int], None]  # takes that many steps, and waits for the results
Program = Callable[[], Any]  # the text of the update's program, and its known arguments


def serve(version: str, advance: Advance, program: Program) -> None:
    """Answers one line for each line read."""
    print(f"ready {version}", flush=True)
    for line in sys.stdin:
        if line.strip() == "program":
            print(json.dumps(program()), flush=True)
            continue
        wall, own = time.perf_counter(), time.process_time()
        advance(int(line))
        print(time.perf_counter() - wall, time.process_time() - own, flush=True)


def main() -> None:
    """Starts the code base that the command line names, and serves."""
    name, directory = sys.argv[1:]
    import jax_peers
    import torch_peers

    start = {**torch_peers.START, **jax_peers.START}[name]
    serve(*start(pathlib.Path(directory)))


if __name__ == "__main__":
    main()
