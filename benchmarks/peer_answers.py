"""How a peer's program answers `benchmarks.peers`, in the Python that has its PyTorch."""

import sys
import time
from collections.abc import Iterator


def answer(training: Iterator) -> None:
    """Says that it is ready; then takes as many steps as each line of standard input names.

    Prints "ready" with the version of PyTorch, and the seconds that the steps of each line took.
    """
    import torch

    print(f"ready {torch.__version__}", flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        for _ in range(int(line)):
            next(training)
        print(time.perf_counter() - start, flush=True)
