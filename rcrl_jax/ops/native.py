"""Which compiled kernels of `ops/kernels` can run on this processor.

The kernels are optional: without a compiler, on another processor, or without that folder, XLA and
NumPy do the same more slowly. Callers ask for a kernel by name and fall back if it is missing.
"""

import contextlib
import functools
import importlib.metadata
import json
import pathlib
import shlex
import sys
import types
import urllib.parse

import jax

FOLDER = pathlib.Path(__file__).with_name("kernels")

_GENERATOR = "threefry2x32"

# Kernel -> what computes where the kernel is missing.
KERNELS = {
    "convolution": "XLA",
    "encoder": "XLA",
    "adam": "XLA",
    "sum_tree": "NumPy",
    "stacks": "NumPy",
}


@functools.cache
def load(name: str) -> types.ModuleType | None:
    """A module of the folder, if it was compiled when the package was installed."""
    try:
        return importlib.import_module(f"rcrl_jax.ops.kernels.{name}")
    except (ImportError, RuntimeError):  # not compiled, or for another version of JAX or libc
        return None


def get(name: str) -> types.ModuleType | None:
    """A kernel's module, if it was compiled and this processor can run it."""
    kernel = load(name)
    return kernel if kernel and getattr(kernel, "INSTRUCTIONS", True) else None


def describe() -> dict[str, str]:
    """What computes on this CPU: a kernel ('Avx512', 'Avx2', 'compiled'), XLA or NumPy."""
    kernels = {name: get(name) for name in KERNELS}
    return {
        name: getattr(kernel, "INSTRUCTIONS", "compiled") if kernel else KERNELS[name]
        for name, kernel in kernels.items()
    }


def advice() -> str | None:
    """One line that says what to do about kernels that were not compiled, or do not load.

    None if all load, or if somebody has deleted their folder.
    """
    missing = [name for name in KERNELS if load(name) is None]
    if not missing or not FOLDER.exists():
        return None
    broken = {name: _error(name) for name in missing if any(FOLDER.glob(f"*{name}.*so"))}
    absent = ", ".join(name for name in missing if name not in broken)
    problems = [f"{absent} not compiled"] if absent else []
    problems += [f"{name} does not load ({error})" for name, error in broken.items()]
    compiler = (
        "install a C++ compiler and Python's headers (Debian, Ubuntu: apt install g++ "
        "python3-dev), then "
    )
    where, source = _sources()
    pip = f"{shlex.quote(sys.executable)} -m pip install"
    return (
        f"{', '.join(problems)}, so training is slower: {compiler if absent else ''}{where}run "
        f"{pip} 'setuptools>=70.1' && {pip} --no-build-isolation --no-deps --force-reinstall "
        f"{source}"
    )


def _sources() -> tuple[str, str]:
    """Where pip must run to install the package as it was installed, and what it must install."""
    root = FOLDER.parents[2]
    if (root / "setup.py").exists():
        return "", f"-e {shlex.quote(str(root))}"
    with contextlib.suppress(importlib.metadata.PackageNotFoundError, ValueError, KeyError):
        of_pip = importlib.metadata.distribution("rcrl-jax").read_text("direct_url.json") or "{}"
        url, vcs = json.loads(of_pip)["url"], json.loads(of_pip).get("vcs_info")
        if vcs:
            return "", shlex.quote(f"{vcs['vcs']}+{url}@{vcs['commit_id']}")
        folder = pathlib.Path(urllib.parse.unquote(urllib.parse.urlsplit(url).path))
        if (folder / "setup.py").exists():
            return "", shlex.quote(str(folder))
    return "in a clone of its repository ", "."


def _error(name: str) -> str:
    """Why a kernel does not load, in a line."""
    try:
        importlib.import_module(f"rcrl_jax.ops.kernels.{name}")
    except (ImportError, RuntimeError) as error:
        return str(error).partition("\n")[0]
    return "it does now"


def key_data(seed: int) -> jax.Array:
    """The data `[2] uint32` of a seed's key, independent of JAX's default generator."""
    return jax.random.key_data(jax.random.key(seed, impl=_GENERATOR))


def wrap_key(key_data: jax.Array) -> jax.Array:
    """A key for `jax.random`, from its data `[..., 2] uint32`; draws the numbers that JAX draws."""
    # `threefry.py` is plain Python. It is in the kernels' folder because it serves only CPUs.
    threefry = get("threefry")
    if threefry:
        return threefry.wrap(key_data)
    return jax.random.wrap_key_data(key_data, impl=_GENERATOR)
