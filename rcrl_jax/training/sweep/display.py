"""Shows how far a sweep is: a live table on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rcrl_jax.training.sweep.progress import State, Status, seconds_left

_LINE_EVERY_S = 60.0
_OTHER_LINES = 7  # of the table: title, header, rules, caption; and the cursor's
_STYLES = {
    State.RUNNING: "cyan",
    State.FAILED: "red",
    State.WAITING: "",
    State.FINISHED: "green",
}
"""Style of each state, in the order of the table's rows."""


class Display(Protocol):
    """Tells the user about a sweep. A context: what is shown ends with it."""

    def __enter__(self) -> "Display":
        """Begins to show."""

    def __exit__(self, *exception: object) -> None:
        """Ends to show."""

    def say(self, line: str) -> None:
        """Prints a line that stays."""

    def update(self, statuses: Sequence[Status], runs: int) -> None:
        """Shows how far the sweep is.

        Args:
            statuses: of the fleets that were not finished at the start.
            runs: number of runs of the whole sweep.
        """


def open_display() -> Display:
    """A live table if standard output is a terminal, else plain lines."""
    console = Console()
    return LiveTable(console) if console.is_terminal and not console.is_dumb_terminal else Lines()


class Lines:
    """Prints plain lines, one about the whole sweep every minute."""

    def __init__(self):
        """Prints nothing yet."""
        self._said_s = time.monotonic()

    def __enter__(self) -> "Lines":
        """Does nothing: there is nothing to open."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Does nothing: lines stay."""

    def say(self, line: str) -> None:
        """Prints a line at once."""
        print(line, flush=True)

    def update(self, statuses: Sequence[Status], runs: int) -> None:
        """Prints a line, if the last one is a minute old."""
        if time.monotonic() - self._said_s >= _LINE_EVERY_S:
            self.say(describe(statuses, runs))
            self._said_s = time.monotonic()


class LiveTable:
    """Shows one table that is drawn again in place; lines appear above it."""

    def __init__(self, console: Console | None = None):
        """Draws nothing yet."""
        self._console = console or Console(file=sys.stdout)
        self._live = Live(console=self._console, auto_refresh=False, transient=False)

    def __enter__(self) -> "LiveTable":
        """Takes over the last lines."""
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leaves the last table on the terminal."""
        self._live.stop()

    def say(self, line: str) -> None:
        """Prints a line above the table."""
        self._console.print(Text(line))

    def update(self, statuses: Sequence[Status], runs: int) -> None:
        """Draws the table again."""
        table = make_table(statuses, runs, height=self._console.height)
        self._live.update(table, refresh=True)


def summarise(statuses: Sequence[Status], runs: int) -> str:
    """One line: how many runs are finished and how many failed, and the time left."""
    count = {
        state: sum(status.runs for status in statuses if status.state is state) for state in State
    }
    finished = runs - sum(count.values()) + count[State.FINISHED]
    line = f"{finished} of {runs} runs finished, {count[State.FAILED]} failed"
    left = seconds_left(statuses)
    return line if left is None else f"{line}, about {duration(left)} left"


def describe(statuses: Sequence[Status], runs: int) -> str:
    """One line: the whole sweep, then each running fleet."""
    parts = [summarise(statuses, runs)]
    for status in statuses:
        if status.state is State.RUNNING:
            parts.append(f"{status.fleet.name} at step {status.progress.step:,}")
            if status.progress.steps_per_s is not None:
                parts[-1] += f", {status.progress.steps_per_s:.1f} steps/s"
    return "; ".join(parts)


def make_table(statuses: Sequence[Status], runs: int, *, height: int) -> Table:
    """The fleets as a table that fits a terminal of `height` lines.

    Running fleets come first, then those that failed, wait and are finished. What does not fit is
    counted below.
    """
    order = list(_STYLES)
    rows = sorted(statuses, key=lambda status: order.index(status.state))
    shown = rows[: max(height - _OTHER_LINES, 1)]
    table = Table(title=summarise(statuses, runs), title_justify="left", expand=True)
    table.add_column("fleet", no_wrap=True, ratio=2)
    table.add_column("state", no_wrap=True)
    for name in ("step", "steps/s", "left", "attempts"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("failure", no_wrap=True, ratio=2)
    for status in shown:
        table.add_row(*_cells(status))
    if hidden := rows[len(shown) :]:
        counts = ", ".join(
            f"{number} {state}"
            for state in order
            if (number := sum(status.state is state for status in hidden))
        )
        table.caption = f"and {len(hidden)} more fleets: {counts}"
        table.caption_justify = "left"
    return table


def _cells(status: Status) -> list[Text]:
    step, steps_per_s, _ = status.progress
    running = status.state is State.RUNNING
    state = "evaluating" if running and step >= status.total_steps else status.state.value
    rate = left = ""
    if running and steps_per_s:
        rate = f"{steps_per_s:.1f}"
        left = duration((status.total_steps - step) / steps_per_s)
    return [
        Text(status.fleet.name),
        Text(state, style=_STYLES[status.state]),
        Text(f"{step:,} / {status.total_steps:,}"),
        Text(rate),
        Text(left),
        Text(str(status.attempts)),
        Text("".join(c for c in status.failure if c.isprintable()), style="red"),
    ]


def duration(seconds: float) -> str:
    """A duration in two units at most: `40 s`, `12 min`, `3 h 05 min`, `2 d 04 h`."""
    minutes = round(seconds / 60)
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    hours = round(minutes / 60)
    return f"{hours // 24} d {hours % 24:02d} h"
