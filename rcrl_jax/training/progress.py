"""Shows how far a program is."""

import contextlib
import datetime
import os
import sys
import time
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar
from rich.table import Column

_LINE_EVERY_S = 30.0
_BAR_EVERY_S = 0.1


class Progress(contextlib.AbstractContextManager):
    """Shows how far training is: a bar on a terminal, elsewhere a plain line every 30 seconds.

    Both count agent steps, or another unit, and show their rate, the time left and the last score.
    The rate is a mean over the whole measured time, because steps and updates may come in long
    series, and a mean over a short time would be misleading.
    """

    def __init__(
        self,
        steps: int,
        *,
        start: int = 0,
        measured_from: int = 0,
        unit: str = "steps",
        file: TextIO | None = None,
    ):
        """Shows the first state.

        Args:
            steps: agent steps of the whole training.
            start: agent steps already done by the checkpoint that training continues from.
            measured_from: agent steps after which rate and time left are measured and shown;
                earlier steps make no update or include compilation.
            unit: what is counted instead of steps.
            file: where to show it; standard error if None.
        """
        self._file = file or sys.stderr
        self._unit, self._measured_from = unit, measured_from
        self._last_score = self._updates = ""
        self._first_update: tuple[int, float] | None = None  # shown in this step: number, time [s]
        self._is_closed = False
        self._origin = start, time.monotonic()  # of the rate: steps, seconds
        console = _Console(file=self._file)
        self._is_drawn = _has_room(self._file) and not console.is_dumb_terminal
        self._bar = Bar(
            BarColumn(bar_width=None),
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
            console=console,
            auto_refresh=False,
            expand=True,
            redirect_stdout=False,  # standard output may be a file
            get_time=time.monotonic,
        )
        self._task = self._bar.add_task("", total=steps, completed=start)
        if self._is_drawn:
            self._bar.start()
        self._show()

    def advance(
        self,
        steps: int = 1,
        *,
        last_score: float | None = None,
        updates: tuple[int, int] | None = None,
    ) -> None:
        """Counts `steps` more agent steps.

        Args:
            steps: agent steps since the last call.
            last_score: a score to show from now on, if there is a new one.
            updates: updates made before the next step, and updates due.
        """
        if last_score is not None:
            self._last_score = f", last score {last_score:.1f}"
        self._updates = self._text_of_updates(*updates) if updates else ""
        if not updates:
            self._first_update = None
        self._bar.update(self._task, advance=steps)
        (task,) = self._bar.tasks
        if self._measured_from and task.completed >= self._measured_from:
            self._origin = task.completed, time.monotonic()
            self._measured_from = 0
        if time.monotonic() - self._shown_s >= (_BAR_EVERY_S if self._is_drawn else _LINE_EVERY_S):
            self._show()

    def _show(self) -> None:
        """Shows the present state; ignores a terminal that is gone."""
        with contextlib.suppress(OSError):
            self._print()

    def _print(self) -> None:
        self._shown_s = time.monotonic()
        (task,) = self._bar.tasks
        done, elapsed_s = task.completed - self._origin[0], self._shown_s - self._origin[1]
        rate = left = "?"
        if done and elapsed_s and not self._measured_from:
            per_s = done / elapsed_s
            rate, left = f"{per_s:.2f}", _duration((task.total - task.completed) / per_s)
        text = (
            f"{task.completed}/{task.total} {self._unit}, {task.percentage:.1f} %, {self._updates}"
            f"{rate} {self._unit}/s, {left} left{self._last_score}"
        )
        if self._is_drawn:
            self._bar.update(self._task, description=text, refresh=True)
        else:
            print(text, file=self._file, flush=True)

    def _text_of_updates(self, made: int, due: int) -> str:
        """Progress within a step: SLAC's model learns for hours before the next agent step."""
        now = time.monotonic()
        first, start_s = self._first_update = self._first_update or (made, now)
        left = ""
        if made > first:
            left = f" ({_duration((due - made) * (now - start_s) / (made - first))} more)"
        return f"update {made} of {due} at this step{left}, "

    def close(self) -> None:
        """Shows the last state, once."""
        if not self._is_closed:
            self._is_closed = True
            self._show()
            with contextlib.suppress(OSError):
                self._bar.stop()

    def __exit__(self, *exception: object) -> None:
        """Shows the last state, after an exception too."""
        self.close()


def _duration(seconds: float) -> str:
    return str(datetime.timedelta(seconds=round(seconds)))


def _has_room(file: TextIO) -> bool:
    """Whether `file` is a terminal on which a bar fits; some report 0 rows and columns."""
    try:
        size = os.get_terminal_size(file.fileno())
        return size.columns > 0 and size.lines > 1
    except OSError:
        return False


class _Console(Console):
    """A console that never hides the cursor: a killed program would leave it hidden."""

    def show_cursor(self, show: bool = True) -> bool:
        return False
