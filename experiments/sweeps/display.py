"""Shows how far a sweep is: lines that are drawn again in place, or plain lines that stay."""

import time
from collections.abc import Sequence

from rich.console import Console
from rich.live import Live
from rich.text import Text

_LINE_EVERY_S = 60.0


class Display:
    """Tells the user about a sweep. A context: what is shown ends with it."""

    def __init__(self, console: Console | None = None):
        """Shows nothing yet.

        Args:
            console: where to; standard output if None.
        """
        self._console = console or Console()
        self._said_s = time.monotonic()
        self._live = None
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._live = Live(console=self._console, auto_refresh=False)

    def __enter__(self) -> "Display":
        """Takes over the last lines of a terminal."""
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        """Leaves the last state on the terminal."""
        if self._live:
            self._live.stop()

    def say(self, line: str) -> None:
        """Prints a line that stays."""
        self._console.print(Text(line), soft_wrap=True)

    def update(self, lines: Sequence[str]) -> None:
        """Shows the present state: at once on a terminal, else as one line a minute."""
        if self._live:
            text = Text("\n".join(lines), no_wrap=True, overflow="ellipsis")
            self._live.update(text, refresh=True)
        elif time.monotonic() - self._said_s >= _LINE_EVERY_S:
            self.say("; ".join(lines))
            self._said_s = time.monotonic()
