"""Encoders, tasks and ways of computing that are selected by name. This module needs no JAX."""

import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple

BATCHINGS = ("auto", "map", "vmap")
"""How a fleet computes; see `--batching`."""
FRAME_STORES = ("auto", "host", "device")
"""Where the replay keeps frames."""


class Encoder(NamedTuple):
    """What training must know of an encoder of C51 Rainbow."""

    network: str  # its Flax module, as `load` takes it
    meaning: str  # for `--help`
    psi_size: int  # width of psi(s)
    # 'patches' or whole 'frames' of 84 x 84 pixels, 'bits' of 10 x 10 cells, or 'vectors'
    reads: str
    bytes_an_image: int  # memory of an update for the gradients [bytes per image]
    large_blocks: bool  # whether an update on the CPU allocates arrays above 64 MB
    # Whether an accelerator would compute the runs of a fleet as slow grouped convolutions.
    convolves: bool = False
    is_small: bool = False  # whether the network computes as in `ops/products.py`


# For each image, an update holds its pixels and three arrays of the first layer's size in float32.
ENCODERS = {
    "data_efficient": Encoder(
        "agents.rainbow.encoders.data_efficient.DataEfficientEncoder",
        "two 5x5 convolutions",
        psi_size=576,
        reads="patches",
        bytes_an_image=4 * (225 * 25 * 4 + 3 * 225 * 32),
        large_blocks=False,
    ),
    # An update also holds the overlapping inputs of the first layer.
    "nature": Encoder(
        "agents.rainbow.encoders.nature.NatureEncoder",
        "three convolutions",
        psi_size=3136,
        reads="frames",
        bytes_an_image=4 * (84 * 84 * 4 * 5 + 3 * 20 * 20 * 32),
        large_blocks=True,
    ),
    # On a CPU, XLA allocates about ten arrays of the first layer's size.
    "impala": Encoder(
        "agents.rainbow.encoders.impala.ImpalaEncoder",
        "IMPALA's residual network",
        psi_size=3872,
        reads="frames",
        bytes_an_image=4 * 10 * 84 * 84 * 16,
        large_blocks=True,
        convolves=True,
    ),
    "minatar": Encoder(
        "agents.rainbow.encoders.minatar.MinAtarEncoder",
        "one 4x4 convolution on binary frames of 10 x 10 cells",
        psi_size=256,
        reads="bits",
        bytes_an_image=4 * (16 * 160 + 3 * 256),
        large_blocks=False,
        is_small=True,
    ),
    "dense": Encoder(
        "agents.rainbow.encoders.dense.DenseEncoder",
        "two dense layers on vectors",
        psi_size=256,
        reads="vectors",
        bytes_an_image=4 * 4 * 256,
        large_blocks=False,
        is_small=True,
    ),
}
"""The encoders of C51 Rainbow."""

_OF_IMAGES = tuple(name for name, one in ENCODERS.items() if one.reads in ("patches", "frames"))


class Task(NamedTuple):
    """What training must know of an auxiliary task that `auxiliary` may name."""

    make: str  # the function `(parts, config) -> AuxiliaryTask`, as `load` takes it
    families: tuple[str, ...]  # of the agents that take the task
    draws_samples: bool  # whether the fields of `return_contrast` say how its samples are drawn
    needs: Mapping[str, tuple[str, ...]] = {}  # field -> the values with which it works


TASKS = {
    "return_contrast": Task(
        "return_contrast.task.make_return_contrast",
        ("rainbow", "sac", "dreamer", "planet"),
        draws_samples=True,
        # The task trains phi(s, a), which only these heads have.
        needs={"head": ("state_action", "state_action_both", "state_action_single")},
    ),
    "curl": Task(
        "tasks.curl.make_curl",
        ("rainbow", "sac"),
        draws_samples=False,
        # CURL crops images.
        needs={"observation": ("pixels",), "encoder": _OF_IMAGES},
    ),
    "reconstruction": Task(
        "tasks.reconstruction.make_reconstruction",
        ("sac",),
        draws_samples=False,
        needs={"observation": ("pixels",)},
    ),
}
"""The auxiliary tasks."""


def load(path: str) -> Any:
    """What a module of this package defines: `tasks.curl.make_curl`."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(f"rcrl_jax.{module}"), name)
