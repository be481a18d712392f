"""Signals that ask a program to stop: to save its state first, or at once if there is none.

Python runs signal handlers in the main thread, between two instructions. These can be minutes apart
while the main thread compiles or computes in C++. So a thread does what must happen at once; the C
part of Python's signal handling wakes it up.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import NoReturn

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
SAME_STOP_S = 3.0  # signals this soon after the first one are the same request


def end_starting_program() -> None:
    """From now on, a stop signal ends the program that is starting, in one line.

    An exception such as KeyboardInterrupt would be printed as a traceback, or swallowed by a
    library's import.
    """
    for number in STOP_SIGNALS:
        _handle(number, lambda signum, frame: _end(signum))


@contextlib.contextmanager
def ending_at_once() -> Iterator[None]:
    """A stop signal ends the program at once with one line, even while it computes in C++."""
    with _watching(_end):
        before = [(number, _handle(number, _ignore)) for number in STOP_SIGNALS]
        try:
            yield
        finally:
            for number, handler in before:
                signal.signal(number, handler)


@contextlib.contextmanager
def stop_signals(*, ends_after_s: float | None = None) -> Iterator[list[int]]:
    """Yields a list of received signals; stop signals do not end the process meanwhile.

    Args:
      ends_after_s: a signal more than this many seconds after the first one ends the process at
        once. Earlier repeats are ignored as the same request: a signal to a process group reaches
        every process in it, and parents such as `make` pass it on again. None collects all
        signals.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received  # signals reach the main thread alone
        return
    first_s: list[float] = []

    def remember(signum, frame):
        del frame
        if ends_after_s is None or not received:
            received.append(signum)

    def end_if_impatient(signum: int) -> None:
        first_s.append(time.monotonic())
        if first_s[-1] - first_s[0] > ends_after_s:
            _end(signum)

    with contextlib.ExitStack() as stack:
        if ends_after_s is not None:
            stack.enter_context(_watching(end_if_impatient))
        for number in STOP_SIGNALS:
            stack.callback(signal.signal, number, _handle(number, remember))
        yield received


def _handle(number: int, handler: Callable[..., None]) -> object:
    """Installs a handler and returns the one before; under `nohup`, hangups stay ignored."""
    before = signal.getsignal(number)
    if number == signal.SIGHUP and before is signal.SIG_IGN:
        return before
    return signal.signal(number, handler)


def _ignore(signum, frame) -> None:
    """A Python handler: without one, `_watching` is not woken up."""


def _end(signum: int) -> NoReturn:
    """Ends the process; no exception, and no cleaning up that waits for C++ threads."""
    with contextlib.suppress(OSError):  # a terminal may be gone
        os.write(2, f"stopped by {signal.Signals(signum).name}\n".encode())
    os._exit(128 + signum)


@contextlib.contextmanager
def _watching(on_signal: Callable[[int], None]) -> Iterator[None]:
    """Calls `on_signal` in a separate thread as soon as a stop signal comes."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def watch() -> None:
        while octets := os.read(reader, 64):
            for number in octets:
                if number in STOP_SIGNALS:
                    on_signal(number)

    thread = threading.Thread(target=watch, name="signals", daemon=True)
    thread.start()
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writer)  # `watch` reads to the end
        thread.join()
        os.close(reader)
