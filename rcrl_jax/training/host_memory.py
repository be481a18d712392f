"""How the C library treats the memory that compiled programs give back."""

import ctypes
import sys

from rcrl_jax.config import Config, SacConfig

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # from malloc.h
_LARGEST = 2**31 - 1  # mallopt takes an int


def keep_freed_memory(settings: Config) -> None:
    """Makes glibc keep freed memory instead of returning it to the operating system.

    On the CPU every execution of an update allocates its temporary arrays (40 MB for one RCRL
    update) and frees them. By default glibc maps such a block anew each time, and the kernel
    zeroes every page of it again: 9,800 page faults and 15 ms of kernel time an update, beside 22
    of user time, against at most 400 and 1.2 ms with this setting (`benchmarks/page_faults.py`).

    Blocks above 64 MB can be kept in the main arena alone, so where an update needs them all
    threads share it. Elsewhere each thread keeps its own: compilation leaves tens of thousands of
    free pieces in a shared one, among which the threads then search for memory one at a time. One
    RCRL update took 16 ms instead of 12, and 40 instead of 64 ms of `rainbow` are what a shared
    arena saves.

    Call it before JAX starts its threads. Elsewhere than on Linux with glibc it does nothing.

    Args:
      settings: of the agents that will be trained.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library
        return
    if _needs_large_blocks(settings):
        mallopt(_M_ARENA_MAX, 1)
    mallopt(_M_MMAP_THRESHOLD, _LARGEST)
    mallopt(_M_TRIM_THRESHOLD, _LARGEST)


def _needs_large_blocks(settings: Config) -> bool:
    if isinstance(settings, SacConfig):
        return settings.observation == "pixels"
    return settings.encoder == "nature"
