"""The settings of the C library's memory allocation, by preset."""

import ctypes
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
    assert asked[MMAP_THRESHOLD] == asked[TRIM_THRESHOLD] == 2**31 - 1


def test_without_glibc_nothing_is_set(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda _: types.SimpleNamespace())  # not glibc
    host_memory.keep_freed_memory(large_blocks=True)
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(ctypes, "CDLL", None)
    host_memory.keep_freed_memory(large_blocks=True)
