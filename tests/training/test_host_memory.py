"""The settings of the C library's memory allocation, by preset."""

import ctypes
import platform
import subprocess
import sys
import types

import pytest

from rcrl_jax.config.presets import ATARI_PRESETS, DMC_PRESETS
from rcrl_jax.training import host_memory

ARENA_MAX, MMAP_THRESHOLD, TRIM_THRESHOLD = -8, -3, -1  # from malloc.h


@pytest.mark.parametrize(
    "settings, shares_an_arena",
    [
        (ATARI_PRESETS["rcrl"], False),
        (ATARI_PRESETS["rainbow"], True),
        (DMC_PRESETS["rcrl_sac"], True),
        (DMC_PRESETS["state_sac"], False),
    ],
    ids=["rcrl", "rainbow", "rcrl_sac", "state_sac"],
)
def test_threads_share_an_arena_where_blocks_are_large(monkeypatch, settings, shares_an_arena):
    asked = {}
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda _: types.SimpleNamespace(mallopt=asked.__setitem__))
    host_memory.keep_freed_memory(large_blocks=settings.needs_large_blocks)
    assert asked.get(ARENA_MAX) == (1 if shares_an_arena else None)
    assert (asked[MMAP_THRESHOLD], asked[TRIM_THRESHOLD]) == (2**31 - 1, -1)


def test_without_glibc_nothing_is_set(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda _: types.SimpleNamespace())  # not glibc
    host_memory.keep_freed_memory(large_blocks=True)
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(ctypes, "CDLL", None)
    host_memory.keep_freed_memory(large_blocks=True)


LATE = """
import sys
from rcrl_jax.training import host_memory
found = [host_memory.is_late()]
import jax
found.append(host_memory.is_late())
jax.devices()
print(found + [host_memory.is_late()])
"""


def test_settings_are_late_once_jax_has_started_and_not_once_it_is_imported():
    done = subprocess.run([sys.executable, "-c", LATE], check=True, capture_output=True, text=True)
    assert done.stdout == "[False, False, True]\n"


# Allocates two blocks of 40 MB in a thread, fills and frees them, three times; prints the page
# faults of each time. An arena's heap has 64 MB, so that the second block begins a new one.
FAULTS = """
import ctypes, resource, threading
from rcrl_jax.training import host_memory
host_memory.keep_freed_memory(large_blocks=False)
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]

def update():
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        blocks = [libc.malloc(40_000_000) for _ in range(2)]
        for block in blocks:
            libc.memset(block, 1, 40_000_000)
        for block in reversed(blocks):
            libc.free(block)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)

thread = threading.Thread(target=update)
thread.start()
thread.join()
"""


# Allocates and frees 2.4 GB in blocks, which it never touches; prints the bytes of the heap then.
HEAP = """
import ctypes, pathlib
from rcrl_jax.training import host_memory
host_memory.keep_freed_memory(large_blocks=True)
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
for block in [libc.malloc(60_000_000) for _ in range(40)]:
    libc.free(block)
(line,) = (x for x in pathlib.Path("/proc/self/maps").read_text().splitlines() if "[heap]" in x)
start, end = line.split()[0].split("-")
print(int(end, 16) - int(start, 16))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_more_than_two_gibibytes_are_kept_at_a_time():
    program = [sys.executable, "-c", HEAP]
    printed = subprocess.run(program, capture_output=True, text=True, check=True).stdout
    assert int(printed) > 2_400_000_000


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_a_thread_keeps_what_it_freed():
    program = [sys.executable, "-c", FAULTS]
    printed = subprocess.run(program, capture_output=True, text=True, check=True).stdout
    first, *later = map(int, printed.split())
    assert max(later) < first / 10  # the first time fills new pages, of whatever size
