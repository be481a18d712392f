"""Accelerators that programs are compiled for without having them: what their makers say of them.

`8xv5e` names eight chips of a kind, which share a fleet's runs.
"""

import os
import pathlib
import re
from typing import Any, NamedTuple

COMPILERS = pathlib.Path(__file__).parents[2] / ".compilers"
"""Where `make compilers` installs libtpu and JAX's CUDA plugin."""


class Missing(RuntimeError):
    """A compiler is not installed; the message is one line."""


class Kind(NamedTuple):
    """A kind of accelerator; figures of one chip, sparsity not used.

    Attributes:
        platform: 'tpu' or 'cuda'.
        flops: FLOP/s of matrix products by the operands' format. A TPU multiplies bfloat16 alone;
            finer formats take several passes, of which its bound counts one.
        memory: bytes.
        bandwidth: bytes/s of that memory.
        link: bytes/s from the host, one way.
        target: what the compiler must know of a GPU, see `_target`; None for a TPU.
        source: of these figures.
    """

    platform: str
    flops: dict[str, float]
    memory: float
    bandwidth: float
    link: float
    target: dict[str, Any] | None
    source: str


_GOOGLE = "docs.cloud.google.com/tpu/docs/{0}; link: jax-ml.github.io/scaling-book/tpus"
_AMPERE = {
    "core_count": 108, "fpus_per_core": 64, "clock_rate_ghz": 1.41,
    "shared_memory_per_core": 167_936, "shared_memory_per_block_optin": 166_912,
    "l2_cache_size": 41_943_040, "capability": 8, "description": "NVIDIA A100 SXM 80 GB",
}  # fmt: skip
_HOPPER = {
    "core_count": 132, "fpus_per_core": 128, "clock_rate_ghz": 1.98,
    "shared_memory_per_core": 233_472, "shared_memory_per_block_optin": 232_448,
    "l2_cache_size": 52_428_800, "capability": 9, "description": "NVIDIA H100 SXM 80 GB",
}  # fmt: skip
_HOPPER_FLOPS = {"bfloat16": 989e12, "tf32": 494.7e12, "float32": 66.9e12}


def _tpu(flops: float, *rest: float, page: str) -> Kind:
    every_format = dict.fromkeys(("bfloat16", "tf32", "float32"), flops)
    return Kind("tpu", every_format, *rest, None, _GOOGLE.format(page))


KINDS = {
    "v5e": _tpu(197e12, 16e9, 819e9, 16e9, page="v5e"),
    "v5p": _tpu(459e12, 95e9, 2765e9, 16e9, page="v5p"),
    "v6e": _tpu(918e12, 32e9, 1640e9, 32e9, page="v6e"),
    "a100": Kind(
        "cuda",
        {"bfloat16": 312e12, "tf32": 156e12, "float32": 19.5e12},
        80e9, 2039e9, 31.5e9, _AMPERE, "NVIDIA A100 80GB data sheet, SXM; link: PCIe 4.0 x16",
    ),
    "h100": Kind(
        "cuda", _HOPPER_FLOPS,
        80e9, 3350e9, 63e9, _HOPPER, "NVIDIA H100 data sheet, SXM; link: PCIe 5.0 x16",
    ),
    "h200": Kind(
        "cuda", _HOPPER_FLOPS,
        141e9, 4800e9, 63e9, {**_HOPPER, "description": "NVIDIA H200"},
        "NVIDIA H200 data sheet, SXM; link: PCIe 5.0 x16",
    ),
}  # fmt: skip

# Number of chips -> shape of the smallest slice that has them, of which v5e and v6e use two
# dimensions, v5p three.
_SLICES = {1: (1, 1, 1), 4: (2, 2, 1), 8: (2, 4, 1)}


def parse(name: str) -> tuple[int, Kind]:
    """Number and kind of the devices that `v5e` or `8xv5e` names.

    Raises:
        ValueError: it names none.
    """
    match = re.fullmatch(r"(?:([1-9]\d?)x)?(\w+)", name)
    if not match or match[2] not in KINDS:
        raise ValueError(f"--devices: {name!r} is none of {', '.join(KINDS)}, or 8xv5e for eight")
    number = int(match[1] or 1)
    if KINDS[match[2]].platform == "tpu" and number not in _SLICES:
        numbers = ", ".join(str(n) for n in _SLICES)
        raise ValueError(f"--devices: {name!r}: TPUs come in {numbers}")
    return number, KINDS[match[2]]


def environment(kind: Kind) -> dict[str, str]:
    """The environment variables of a process that compiles for a kind.

    Raises:
        Missing: the compiler is not there.
    """
    if kind.platform == "tpu":
        _check(COMPILERS / "tpu" / "libtpu" / "libtpu.so")
        paths = [str(COMPILERS / "tpu"), os.environ.get("PYTHONPATH", "")]
        own = {
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "TPU_SKIP_MDS_QUERY": "1",  # this machine is no TPU's host
            "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # no device is used that needs a lock
        }
    else:
        tools = COMPILERS / "cuda" / "nvidia" / "cu13"
        for path in (tools / "bin" / "ptxas", tools / "nvvm" / "libdevice", _plugin()):
            _check(path)
        own = {"XLA_FLAGS": f"--xla_gpu_cuda_data_dir={tools}"}
    # Settings for this machine's programs must not change those for other devices, and XLA must not
    # tune on a device of this machine.
    others = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XLA_", "LIBTPU_"))}
    return {**others, "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "", **own}


def _plugin() -> pathlib.Path:
    return COMPILERS / "cuda" / "jax_plugins" / "xla_cuda13" / "xla_cuda_plugin.so"


def _check(path: pathlib.Path) -> None:
    if not path.exists():
        short = path.relative_to(COMPILERS.parent)
        raise Missing(f"{short} is missing: `make compilers` installs it")


def describe(name: str) -> list[Any]:
    """The devices that a name stands for, as JAX's compilers take them; see `environment`."""
    from jax._src import xla_bridge
    from jax.experimental import topologies

    number, kind = parse(name)
    if kind.platform == "tpu":
        sides = _SLICES[number]
        kind_name = name.rpartition("x")[2]
        shape = "x".join(str(n) for n in (sides if kind_name == "v5p" else sides[:2]))
        options = {"chips_per_host_bounds": list(sides)}
        topology = topologies.get_topology_desc(
            platform="tpu", topology_name=f"{kind_name}:{shape}", **options
        )
    else:
        xla_bridge.register_plugin("cuda", library_path=str(_plugin()))
        topology = topologies.get_topology_desc(
            platform="cuda", target_config=_target(kind), topology=f"1x1x{number}"
        )
    return list(topology.devices)[:number]


def _target(kind: Kind) -> str:
    """XLA's description of a GPU (`xla/stream_executor/device_description.proto`).

    Limits of threads and registers are those of compute capability 8 and 9 alike (CUDA programming
    guide, technical specifications).
    """
    t = kind.target
    return f"""
gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: {t["shared_memory_per_core"]}
  threads_per_core_limit: 2048
  core_count: {t["core_count"]}
  fpus_per_core: {t["fpus_per_core"]}
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: {int(kind.bandwidth)}
  l2_cache_size: {t["l2_cache_size"]}
  clock_rate_ghz: {t["clock_rate_ghz"]}
  device_memory_size: {int(kind.memory)}
  shared_memory_per_block_optin: {t["shared_memory_per_block_optin"]}
  cuda_compute_capability {{ major: {t["capability"]} }}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 12 }}
runtime_version {{ major: 13 }}
device_description_str: "{t["description"]}"
"""
