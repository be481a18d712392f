"""A stop signal ends a program with one line and 128 + its number, whatever the program does."""

import concurrent.futures
import os
import signal
import subprocess
import sys
import time
import types as python_types

import pytest

from rcrl_jax import signals
from tests.training import toy

# The main thread is in C for about a minute, as while XLA compiles.
IN_C = """
import hashlib
from rcrl_jax import signals
with {context}:
    print("started", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 200_000_000)
"""

SWALLOWING = """
import time
from rcrl_jax import signals
signals.end_starting_program()
while True:
    try:
        print("started", flush=True)
        time.sleep(60)
    except BaseException:
        pass
"""


def start(program: str, **options) -> subprocess.Popen:
    process = subprocess.Popen(
        [sys.executable, "-c", program], cwd=toy.ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options,
    )  # fmt: skip
    assert process.stdout.readline() == "started\n"
    return process


def test_a_signal_before_the_program_is_watched_ends_it_too():
    early = """
import contextlib, os, signal
from rcrl_jax import signals
watching = signals._watching
@contextlib.contextmanager
def late(on_signal):
    os.kill(os.getpid(), signal.SIGTERM)
    with watching(on_signal):
        yield
signals._watching = late
print("started", flush=True)
with signals.ending_at_once():
    print("not ended", flush=True)
"""
    process = start(early)
    output, _ = process.communicate(timeout=10)
    assert process.returncode == -signal.SIGTERM and output == ""


@pytest.mark.usefixtures("hangup")
@pytest.mark.parametrize("signum", signals.STOP_SIGNALS)
def test_computing_in_c_is_ended_at_once(signum):
    process = start(IN_C.format(context="signals.ending_at_once()"))
    process.send_signal(signum)
    _, error = process.communicate(timeout=10)
    assert process.returncode == 128 + signum
    assert error == f"stopped by {signal.Signals(signum).name}\n"


def test_an_impatient_second_signal_ends_computing_in_c():
    process = start(IN_C.format(context="signals.stop_signals(ends_after_s=1.0)"))
    try:
        for _ in range(2):  # a signal to a group, which the parent passes on
            process.send_signal(signal.SIGINT)
        time.sleep(2.0)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate(timeout=10)
    finally:
        process.kill()
    assert (process.returncode, error) == (128 + signal.SIGTERM, "stopped by SIGTERM\n")


def test_a_starting_program_cannot_swallow_a_signal():
    process = start(SWALLOWING)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=10)
    assert (process.returncode, error) == (128 + signal.SIGINT, "stopped by SIGINT\n")


def test_a_hangup_that_nohup_ignores_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals.ending_at_once():
            signal.raise_signal(signal.SIGHUP)
            with signals.stop_signals(ends_after_s=3.0) as received:
                signal.raise_signal(signal.SIGHUP)
                assert received == []
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hangup")
def test_repeats_of_a_signal_count_once_and_handlers_come_back(monkeypatch):
    ended = []
    monkeypatch.setattr(signals, "_end", ended.append)
    seconds = iter([7.0, 7.19, 7.21])  # of the three signals, which a thread reads
    clock = python_types.SimpleNamespace(monotonic=lambda: next(seconds))
    monkeypatch.setattr(signals, "time", clock)
    before = [signal.getsignal(number) for number in signals.STOP_SIGNALS]
    with signals.stop_signals(ends_after_s=0.2) as received:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        assert received == [signal.SIGINT] and ended == []
        os.kill(os.getpid(), signal.SIGHUP)
    assert received == [signal.SIGINT] and ended == [signal.SIGHUP]
    with signals.stop_signals() as received:
        for _ in range(2):
            signal.raise_signal(signal.SIGHUP)
    assert received == [signal.SIGHUP] * 2
    assert [signal.getsignal(number) for number in signals.STOP_SIGNALS] == before


def test_another_thread_than_the_main_one_handles_no_signals():
    with concurrent.futures.ThreadPoolExecutor(1) as pool:

        def watch():
            with signals.stop_signals(ends_after_s=3.0) as received:
                return received

        assert pool.submit(watch).result() == []
