"""Measures SAC's convolutions on the CPU: our kernels beside XLA.

    python -m benchmarks.convolution
    taskset --cpu-list 0 python -m benchmarks.convolution --output=results/convolution/one_core

Prints the GFLOP/s of the forward pass and of both gradients for layers of the encoder, in turns,
and the rate of a large matrix product, and writes them to results/convolution/<device>.json.
Nothing else should be running meanwhile.
"""

import functools
import os
import statistics
import time
from collections.abc import Callable

from absl import app, flags

from benchmarks import device_file
from experiments import command_line
from rcrl_jax import files
from rcrl_jax.training import host_memory

FILTERS = 32
# Name of a layer -> height of its images, their channels, stride.
LAYERS = {"first": (84, 9, 2), "second": (41, FILTERS, 1), "last": (37, FILTERS, 1)}
_PRODUCT = 2048  # rows and columns of the large matrices
_IMAGES = 128  # in a batch
_ROUNDS = 11  # in which everything runs once


def measure(images: int, rounds: int) -> dict[str, dict[str, float]]:
    """GFLOP/s of the median round, by what is computed and by whom.

    Args:
      images: N, in a batch.
      rounds: in each, everything runs once.
    """
    import jax
    import numpy as np

    from rcrl_jax import native
    from rcrl_jax.networks import xla_cpu_convolution as xla

    ours = native.get("convolution")
    random = np.random.default_rng(0)

    def normal(*shape):
        return jax.device_put(random.normal(size=shape).astype(np.float32))

    programs: dict[str, dict[str, tuple[Callable, tuple]]] = {}
    flop: dict[str, int] = {}
    for name, (size, channels, stride) in LAYERS.items():
        out = (size - 3) // stride + 1
        x, kernel, bias = (
            normal(images, size, size, channels),
            normal(3, 3, channels, 32),
            normal(32),
        )
        y, g = normal(images, out, out, FILTERS), normal(images, out, out, FILTERS)
        forward, gradients = (x, kernel, bias), (x, kernel, g)
        calls = {
            "forward": {
                "ours": (functools.partial(ours.convolve, stride=stride, relu=True), forward),
                "xla": (functools.partial(_forward_by_xla, stride=stride), forward),
            },
            "kernel gradient": {
                "ours": (
                    functools.partial(ours.kernel_gradient, side=3, stride=stride, relu=True),
                    (x, y, g),
                ),
                "xla": (functools.partial(xla.kernel_gradient, stride=stride), gradients),
            },
        }
        if stride == 1:  # the first layer needs none
            calls["image gradient"] = {
                "ours": (functools.partial(ours.image_gradient, relu=True), (kernel, y, g)),
                "xla": (functools.partial(xla.image_gradient, stride=stride), gradients),
            }
        for what, by in calls.items():
            label = f"{name} layer, {what}"
            flop[label] = 2 * images * out**2 * 9 * channels * FILTERS
            programs[label] = {who: (jax.jit(call), arrays) for who, (call, arrays) in by.items()}
    matrix = normal(_PRODUCT, _PRODUCT)
    flop["matrix product"] = 2 * _PRODUCT**3
    programs["matrix product"] = {"xla": (jax.jit(lambda a: a @ a), (matrix,))}

    seconds = {label: {who: [] for who in by} for label, by in programs.items()}
    for round_ in range(1 + rounds):
        for label, by in programs.items():
            for who, (program, arrays) in by.items():
                start = time.perf_counter()
                jax.block_until_ready(program(*arrays))
                if round_:  # the first round compiles
                    seconds[label][who].append(time.perf_counter() - start)
    return {
        label: {who: flop[label] / statistics.median(own) / 1e9 for who, own in by.items()}
        for label, by in seconds.items()
    }


def _forward_by_xla(x, kernel, bias, *, stride):
    import jax

    from rcrl_jax.networks import xla_cpu_convolution

    y = xla_cpu_convolution.convolve(x, kernel, stride=stride) + bias[None, None, None]
    return jax.nn.relu(y)


def report(rates: dict[str, dict[str, float]]) -> str:
    """The table as text."""
    columns = list(next(iter(rates.values())))
    lines = [f"{'GFLOP/s':<32}" + "".join(f"{who:>15}" for who in columns)]
    for label, by in rates.items():
        cells = [f"{by[who]:15.0f}" if who in by else " " * 15 for who in columns]
        lines.append(f"{label:<32}" + "".join(cells))
    return "\n".join(lines)


def _define_flags() -> None:
    """Not at import: tests import this module beside others with flags of the same names."""
    flags.DEFINE_string("output", "results/convolution", "directory of the JSON file")


def main(argv: list[str]) -> None:
    """Measures, prints and writes."""
    del argv
    host_memory.keep_freed_memory(large_blocks=True)
    from rcrl_jax import native
    from rcrl_jax.runs import manifest

    try:
        if native.get("convolution") is None:
            raise ValueError(
                "convolution.cc is not compiled: run 'python setup.py build_ext --inplace', which "
                "needs a C++ compiler and Python's headers, and a processor with AVX2"
            )
        path = device_file.prepare(flags.FLAGS.output)
    except (ValueError, OSError) as error:
        command_line.refuse(str(error))
    rates = measure(_IMAGES, _ROUNDS)
    print(report(rates))
    measured = {
        "images": _IMAGES,
        "cores": len(os.sched_getaffinity(0)),
        "gflop_per_s": rates,
        **manifest.circumstances(),
    }
    files.write_json_atomically(path, measured)
    print(f"written to {path}")


if __name__ == "__main__":
    _define_flags()
    app.run(main, flags_parser=command_line.parse)
