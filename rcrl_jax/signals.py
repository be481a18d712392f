"""Signals that ask a program to save its state and stop."""

import contextlib
import signal
import time
from collections.abc import Iterator

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def stop_signals(*, ends_after_s: float | None = None) -> Iterator[list[int]]:
    """Yields a list of received signals; SIGTERM and SIGINT do not end the process meanwhile.

    Args:
      ends_after_s: a signal more than this many seconds after the first one ends the process at
        once. Earlier repeats are ignored as the same request: a signal to a process group reaches
        every process in it, and parents such as `make` pass it on again. None collects all
        signals.
    """
    received: list[int] = []
    first_s = 0.0

    def remember(signum, frame):
        nonlocal first_s
        del frame
        now_s = time.monotonic()
        if ends_after_s is None or not received:
            first_s = now_s
            received.append(signum)
        elif now_s - first_s > ends_after_s:
            signal.signal(signum, signal.SIG_DFL)
            signal.raise_signal(signum)

    before = [signal.signal(number, remember) for number in STOP_SIGNALS]
    try:
        yield received
    finally:
        for number, handler in zip(STOP_SIGNALS, before, strict=True):
            signal.signal(number, handler)
