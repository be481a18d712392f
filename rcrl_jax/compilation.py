"""Keeps compiled programs on disk, so that a second start of the same program does not compile."""

import hashlib
import importlib.metadata
import json
import os
import pathlib
import platform

_IDENTITY = (
    "model name", "cpu family", "model", "stepping", "flags",  # x86
    "CPU implementer", "CPU variant", "CPU part", "CPU revision", "Features",  # ARM
)  # fmt: skip


def processor() -> dict[str, str]:
    """What compiled code, and its rounding, may depend on; little is known outside Linux."""
    found = {"machine": platform.machine(), "model name": platform.processor()}
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return found
    for name, _, value in (line.partition(":") for line in lines):
        if name.strip() in _IDENTITY:
            found[name.strip()] = value.strip()
    caches = sorted(pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"))
    return found | {path.parent.name: path.read_text().strip() for path in caches}


def folder(parent: pathlib.Path) -> pathlib.Path:
    """The folder below `parent` for programs that this processor and this jaxlib compiled."""
    identity = json.dumps([processor(), importlib.metadata.version("jaxlib")])
    return parent / hashlib.sha256(identity.encode()).hexdigest()[:16]


def keep_programs() -> None:
    """Keeps what JAX compiles from now on, unless the environment names a folder of its own.

    The least recently used programs are deleted beyond a gibibyte. JAX's own variables come first:
    `JAX_ENABLE_COMPILATION_CACHE=false` keeps nothing, `JAX_COMPILATION_CACHE_DIR` names a folder.
    """
    import jax  # late: tests find their folder before JAX reads the environment

    if jax.config.jax_compilation_cache_dir is not None:
        return
    try:
        caches = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
        own = folder(caches / "rcrl_jax")
        own.mkdir(parents=True, exist_ok=True)
        # JAX's cache takes nothing new while it holds a program without its time of use, as a
        # process leaves one that is killed while it writes.
        for program in own.glob("*-cache"):
            if not program.with_name(f"{program.name.removesuffix('-cache')}-atime").exists():
                program.unlink(missing_ok=True)
    except (OSError, RuntimeError):  # no home, or none to write to: every start compiles
        return
    jax.config.update("jax_compilation_cache_dir", str(own))
    jax.config.update("jax_compilation_cache_max_size", 2**30)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
