"""How the C library treats memory that compiled programs free."""

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -2, -3, -8  # from malloc.h
_LARGEST = 2**31 - 1  # mallopt takes an int
_HEAP = 2**26  # bytes; an arena that is not the main one consists of heaps of this size


def is_late() -> bool:
    """Whether JAX has started its threads, as it does at the first array or query of devices.

    Importing JAX starts none.
    """
    bridge = sys.modules.get("jax._src.xla_bridge")  # JAX says this nowhere else
    return bridge is not None and bridge.backends_are_initialized()


def keep_freed_memory(*, large_blocks: bool) -> None:
    """Makes glibc keep freed memory instead of returning it to the operating system.

    On the CPU every execution of an update allocates its temporary arrays (40 MB for one RCRL
    update) and frees them. By default glibc maps such a block anew each time, and the kernel
    zeroes all its pages again. An update then costs 9,800 page faults and 15 ms of kernel time
    besides 22 ms of user time. With this setting it costs at most 400 page faults and 1.2 ms of
    kernel time (`python -m benchmarks.page_faults`, also with `--nokeep`; the benchmark is
    in commit c0e9065).

    glibc can keep blocks above 64 MB only in the main arena. If an update needs such blocks, all
    threads share that arena. Otherwise each thread has its own, because compilation leaves tens of
    thousands of free pieces in a shared arena, and threads search them one at a time. A shared
    arena cuts an update of `rainbow` from 64 to 40 ms, and raises one of `rcrl` from 12 to 16 ms.

    A thread's arena consists of heaps. A heap goes back to the system when all of it is free,
    independent of the threshold for trimming. The padding (`M_TOP_PAD`) prevents that. Without
    padding, two of three runs of `rcrl` began a new heap in each update, with 100,000 page faults
    and 9 to 15 steps a second. With padding there is less than one page fault an update and there
    are 17 steps a second (3,000 steps of Qbert, AVX2, the other core in use).

    The free end of the main arena goes back to the system, too, if it is larger than the threshold
    for trimming. The largest threshold is 2 GiB, and updates of `slac` free more. So we switch
    trimming off.

    Call this function before JAX starts its threads (`is_late`). The function acts only on Linux
    with glibc.

    Args:
      large_blocks: whether an update allocates blocks above 64 MB.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library
        return
    if large_blocks:
        mallopt(_M_ARENA_MAX, 1)
    mallopt(_M_MMAP_THRESHOLD, _LARGEST)
    mallopt(_M_TRIM_THRESHOLD, -1)  # never: as an unsigned size, -1 is the largest
    mallopt(_M_TOP_PAD, _HEAP)
