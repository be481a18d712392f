"""What can happen to the files of a run."""

import pathlib
import shutil
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rcrl_jax import types
from rcrl_jax.replay.segment_replay import ReplayState
from rcrl_jax.runs import checkpoints
from rcrl_jax.runs.paths import RunPaths
from rcrl_jax.runs.records import RecordState

DEEP = "[" * 100_000


class Trial(NamedTuple):
    """One way to damage a work directory.

    Attributes:
      what: is damaged.
      damage: does it.
      goes_on: whether the run ends like an undisturbed one all the same; else it is refused.
      is_finished: whether the run is finished before; else it has two checkpoints.
      loses_metrics: whether lines of metrics.jsonl are lost.
    """

    what: str
    damage: Callable[[RunPaths], None]
    goes_on: bool = False
    is_finished: bool = False
    loses_metrics: bool = False


def flip_bit(path: pathlib.Path, bit: int) -> None:
    """Flips one bit of a file."""
    octets = bytearray(path.read_bytes())
    octets[bit // 8] ^= 1 << bit % 8
    path.write_bytes(octets)


def _newest(paths: RunPaths) -> pathlib.Path:
    return checkpoints.path_of(paths.checkpoints, checkpoints.kept_steps(paths.checkpoints)[-1])


def _truncate(path: pathlib.Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _truncate_all(paths: RunPaths) -> None:
    for step in checkpoints.kept_steps(paths.checkpoints):
        _truncate(checkpoints.path_of(paths.checkpoints, step))


def _add_alien(paths: RunPaths) -> None:
    (paths.checkpoints / "9999").mkdir()
    (paths.checkpoints / "9999" / "note.txt").write_text("mine")


def _add_other_agent(paths: RunPaths) -> None:
    """A whole checkpoint of another agent, newer than the run's own."""
    step = int(_newest(paths).stem) + 1
    zeros = np.zeros((1, 4))
    other = checkpoints.Checkpoint(
        step,
        {"params": np.ones((1, 3), np.float32)},
        None,
        ReplayState(zeros, zeros[0], zeros[0]),
        types.HistoryState(zeros, zeros[0]),
        RecordState(np.zeros((1, 2), np.int64), np.zeros((1, 2, 32), np.uint8)),
    )
    checkpoints.write_checkpoint(checkpoints.path_of(paths.checkpoints, step), other)


def _replace_by_file(path: pathlib.Path) -> None:
    shutil.rmtree(path)
    path.write_text("a file")


def _halve_lines(path: pathlib.Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: len(lines) // 2]))


def _insert_line(line: bytes) -> Callable[[pathlib.Path], None]:
    def insert(path: pathlib.Path) -> None:
        first, rest = path.read_bytes().split(b"\n", 1)
        path.write_bytes(first + b"\n" + line + b"\n" + rest)

    return insert


def _append(octets: bytes) -> Callable[[pathlib.Path], None]:
    def append(path: pathlib.Path) -> None:
        with open(path, "ab") as file:
            file.write(octets)

    return append


def _files(name: str, contents: dict[str, str | bytes], **options) -> list[Trial]:
    """Trials that replace the content of one file."""

    def replacing(content: str | bytes) -> Callable[[RunPaths], None]:
        octets = content.encode() if isinstance(content, str) else content
        return lambda paths: getattr(paths, name).write_bytes(octets)

    return [
        Trial(f"{name}.json: {label}", replacing(content), **options)
        for label, content in contents.items()
    ]


def _lines(name: str, lines: dict[str, bytes], **options) -> list[Trial]:
    """Trials that insert a line into one file."""

    def inserting(line: bytes) -> Callable[[RunPaths], None]:
        return lambda paths: _insert_line(line)(getattr(paths, name))

    return [
        Trial(f"{name}.jsonl, line 2: {label}", inserting(line), **options)
        for label, line in lines.items()
    ]


_GOES_ON = (
    Trial("newest checkpoint: truncated", lambda p: _truncate(_newest(p))),
    Trial(
        "newest checkpoint: a flipped bit",
        lambda p: flip_bit(_newest(p), 4 * _newest(p).stat().st_size),
    ),
    Trial(
        "newest checkpoint: a flipped bit in the first lines", lambda p: flip_bit(_newest(p), 99)
    ),
    Trial("newest checkpoint: a byte more", lambda p: _append(b"0")(_newest(p))),
    Trial("newest checkpoint: emptied", lambda p: _newest(p).write_bytes(b"")),
    Trial("newest checkpoint: another agent's", _add_other_agent),
    Trial("checkpoints/9999: an alien directory", _add_alien),
    Trial("checkpoints: deleted", lambda p: shutil.rmtree(p.checkpoints)),
    Trial("metrics.jsonl: a torn last line", lambda p: _append(b'{"agent_st')(p.metrics)),
    Trial("metrics.jsonl: deleted", lambda p: p.metrics.unlink(), loses_metrics=True),
    Trial("metrics.jsonl: half", lambda p: _halve_lines(p.metrics), loses_metrics=True),
)

TRIALS = (
    *(trial._replace(goes_on=True) for trial in _GOES_ON),
    Trial("every checkpoint: truncated", _truncate_all),
    Trial("checkpoints: a file", lambda p: _replace_by_file(p.checkpoints)),
    *_lines(
        "metrics",
        {
            "garbage": b"\x00\xff",
            "blank": b"",
            "text for a number": b'{"agent_steps": 1, "wall_s": "soon"}',
        },
    ),
    *_lines(
        "evaluations",
        {
            "garbage": b"\x00\xff",
            "blank": b"",
            "returns of null": b'{"agent_steps": 1, "mean": 0.0, "returns": null}',
        },
    ),
    *_files(
        "manifest",
        {
            "garbage": b"\x00\xff",
            "a section of null": '{"run": null}',
            "100,000 [": DEEP,
        },
    ),
    *_lines("metrics", {"{}, in a finished run": b"{}"}, is_finished=True),
    *_files(
        "scores",
        {
            "garbage": b"\x00\xff",
            "returns of null": '{"returns": null}',
            "100,000 [": DEEP,
        },
        is_finished=True,
    ),
)
"""Every trial."""
