"""Sends the records of runs to Weights & Biases: each once, however often a run is resumed.

What is sent is read from the files of a run, so a finished run can be sent, too. While a run
trains, steps are sent at its checkpoints, and only those before the current one: later records of a
step would be a second row. Records of one agent step, such as those of updates before the first
action, become one row with their last values. A file says what was sent:

<run>/wandb.json   {"id": W&B's name of the run, "next_step": agent steps of the first row to send}

Without a network (WANDB_MODE=offline), each process writes a separate part with the same id.
"""

import contextlib
import importlib.util
import math
import os
import pathlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rcrl_jax import files, words
from rcrl_jax.runs import manifest, records
from rcrl_jax.runs.paths import RunPaths

if TYPE_CHECKING:
    import wandb

_UNITS = ("agent_steps", "env_steps", "frames")

Publish = Callable[[float], None]
"""Sends all rows before a number of agent steps."""


class NotTracked(ValueError):
    """W&B is not installed or cannot be used; the message is one line."""


def check_installed() -> None:
    """Raises NotTracked unless W&B is installed."""
    if importlib.util.find_spec("wandb") is None:
        raise NotTracked("tracking needs W&B: pip install 'rcrl-jax[wandb]'")


@contextlib.contextmanager
def tracked(paths: Sequence[RunPaths], say: Callable[[str], None]) -> Iterator[Publish]:
    """Opens the runs at W&B while the block lasts; yields a function that sends their rows.

    Args:
        paths: of the runs, whose manifests are there.
        say: prints a line for the user.

    Raises:
        NotTracked: W&B is not installed, or refuses, as where nobody is logged in.
        Damaged, OSError: a file of a run cannot be read.
    """
    check_installed()
    if os.environ.get("WANDB_MODE") == "disabled":  # W&B would take the rows and send none
        say("W&B: nothing is sent, because WANDB_MODE=disabled")
        yield lambda before: None
        return
    with contextlib.ExitStack() as stack:
        opened = [own for own in map(_Tracked, paths) if not own.is_done()]
        for own in opened:
            own.open()
            stack.callback(own.close)
        if opened:
            say(f"W&B: {opened[0].where()}, {words.count('run', len(opened))}")

        def publish(before: float) -> None:
            for own in opened:
                own.publish(before)

        yield publish


class _Tracked:
    """One run at W&B."""

    def __init__(self, paths: RunPaths) -> None:
        """Reads what was sent so far."""
        self._paths, self._state = paths, paths.directory / records.TRACKED
        self._is_new = not self._state.exists()
        state = {"id": secrets.token_hex(8), "next_step": 0}
        if not self._is_new:
            state = files.read_json(self._state, _check)
        self._id, self._next_step = state["id"], state["next_step"]
        self._rows: dict[int, dict[str, float]] = {}  # read and not sent: numbers by name, by step
        self._lines_read = dict.fromkeys((paths.metrics, paths.evaluations), 0)
        self._run: wandb.Run | None = None

    def is_done(self) -> bool:
        """Whether the run is finished and was sent."""
        return self._paths.scores.exists() and not self._unsent(math.inf)

    def open(self) -> None:
        """Opens the run; the first time, also sends its configuration."""
        import wandb

        described = manifest.read(self._paths.manifest)
        run = described["run"]
        config = {**run.pop("config"), **run, "versions": described["versions"]}
        try:
            self._run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", "rcrl-jax"),
                id=self._id,
                name=f"{self._paths.preset}-{self._paths.game}-{self._paths.seed}",
                group=self._paths.preset,
                config=config if self._is_new else None,
                # W&B joins offline parts by their id.
                resume=None if os.environ.get("WANDB_MODE") == "offline" else "allow",
                reinit="create_new",
                settings=wandb.Settings(console="off", silent=True),
            )
        except wandb.errors.Error as error:
            raise NotTracked(f"W&B: {words.one_line(error)}") from error
        self._save()

    def where(self) -> str:
        """Where the run can be seen."""
        if self._run.offline:
            folder = pathlib.Path(self._run.settings.sync_dir)
            return (
                f"offline in {folder}; wandb sync --append {folder.parent}/offline-run-* sends it"
            )
        return self._run.url

    def publish(self, before: float) -> None:
        """Sends the rows before a number of agent steps that were not sent."""
        steps = self._unsent(before)
        for step in steps:
            self._run.log(self._rows.pop(step), step=step)
        if steps:
            self._next_step = steps[-1] + 1
            self._save()

    def _unsent(self, before: float) -> list[int]:
        """Reads what was recorded since the last call; the steps to send, in order."""
        for group, path, check in (
            ("training", self._paths.metrics, records.check_metrics),
            ("evaluation", self._paths.evaluations, records.check_evaluation),
        ):
            lines = records.read_lines(path, check, self._lines_read[path])
            for _, record in lines if path.exists() or records.packed(path).exists() else ():
                self._lines_read[path] += 1
                if record["agent_steps"] >= self._next_step:
                    self._rows.setdefault(record["agent_steps"], {}).update(
                        (name if name in _UNITS else f"{group}/{name}", value)
                        for name, value in record.items()
                        if isinstance(value, int | float)
                    )
        return sorted(step for step in self._rows if step < before)

    def close(self) -> None:
        """Waits until all is sent."""
        self._run.finish()

    def _save(self) -> None:
        files.write_json_atomically(self._state, {"id": self._id, "next_step": self._next_step})


def _check(state: Any) -> Any:
    if type(state["id"]) is not str or type(state["next_step"]) is not int:
        raise ValueError("it holds no id, or no number of steps")
    return state
