"""Keeps compiled programs on disk, so that a second start of the same program does not compile."""

import contextlib
import fcntl
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
_WRITES = "/jax/compilation_cache/cache_misses"  # JAX's event before it writes a program


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
    """Keeps what JAX compiles from now on, unless the environment names another folder.

    Beyond a gibibyte, the least recently used programs are deleted. JAX's variables take
    precedence: `JAX_ENABLE_COMPILATION_CACHE=false` keeps nothing, `JAX_COMPILATION_CACHE_DIR`
    names a folder.
    """
    import jax  # late: tests call `folder` before JAX reads the environment

    if jax.config.jax_compilation_cache_dir is not None:
        return
    try:
        caches = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
        own = folder(caches / "rcrl_jax")
        own.mkdir(parents=True, exist_ok=True)
        _delete_orphans(own)
    except (OSError, RuntimeError):  # no writable home or no locks: every start compiles
        return
    jax.config.update("jax_compilation_cache_dir", str(own))
    for name, value in (
        ("jax_compilation_cache_max_size", 2**30),
        ("jax_persistent_cache_min_compile_time_secs", 0),
    ):
        if name.upper() not in os.environ:
            jax.config.update(name, value)

    def before_a_write(event: str, **about: str | int) -> None:
        if event == _WRITES:
            with contextlib.suppress(OSError):
                _delete_orphans(own)

    jax.monitoring.register_event_listener(before_a_write)


def _delete_orphans(own: pathlib.Path) -> None:
    """Deletes programs without a time of use, which a process killed while writing leaves.

    JAX's cache stores nothing new while it holds such a program.

    Raises:
      OSError: the folder cannot be written or locked.
    """
    with open(own / ".lockfile", "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # as JAX does while it writes
        except BlockingIOError:  # another process writes; the next write deletes them
            return
        for program in own.glob("*-cache"):
            if not program.with_name(f"{program.name.removesuffix('-cache')}-atime").exists():
                program.unlink(missing_ok=True)
