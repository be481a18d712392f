"""Signals that ask a program to save its state and stop."""

import contextlib
import signal
import time
from collections.abc import Iterator

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def stop_signals(*, ends_after_s: float | None = None) -> Iterator[list[int]]:
    """Yields a list that SIGTERM and SIGINT append themselves to, instead of ending the process.

    Args:
      ends_after_s: a signal that comes so long after the first one ends the process at once, and
        the list keeps the first one alone. Not sooner: whoever stops a process group signals every
        process in it, and those among them that start others, such as `make`, pass the signal on.
        None collects all signals.
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
