"""How the C library treats the memory that compiled programs give back."""

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # from malloc.h
_LARGEST = 2**31 - 1  # mallopt takes an int


def keep_freed_memory() -> None:
    """Makes glibc keep freed memory instead of returning it to the operating system.

    On the CPU every execution of an update allocates its temporary arrays (40 MB for one RCRL
    update) and frees them. By default glibc maps such a block anew each time, and the kernel
    zeroes every page of it again: 9,800 page faults and 24 ms of kernel time an update, a third
    of the whole, against 230 faults and 0.4 ms with this setting (`benchmarks/page_faults.py`).

    Call it before JAX starts its threads. Elsewhere than on Linux with glibc it does nothing.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library
        return
    # Threads' own arenas are limited in size and would map large blocks all the same.
    mallopt(_M_ARENA_MAX, 1)
    mallopt(_M_MMAP_THRESHOLD, _LARGEST)
    mallopt(_M_TRIM_THRESHOLD, _LARGEST)
