"""What `experiments.representation` recorded: similarities of pairs, as a table and as pictures."""

import itertools
import math
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.tables import runs, table
from benchmarks.tables.table import Cell, Column, Row, Table, mean_cell, short_steps
from experiments.representation import figures
from rcrl_jax import reference
from rcrl_jax.config.presets import ATARI_PRESETS
from rcrl_jax.runs import records

_PAIRS = ["held_out", "replay"]
_LARGEST = 2**53
_NEEDED = {
    "similarity.jsonl": ("cosine_positive", "cosine_negative"),
    "scores.jsonl": ("mean",),
    "unseen.jsonl": tuple(
        f"unseen_cosine_{sign}_{kind}_action"
        for sign in ("positive", "negative")
        for kind in ("equal", "different")
    ),
}
"""File -> the numbers that each of its lines holds; the first file is required."""

Lines = Sequence[Mapping[str, Any]]


class Recording(NamedTuple):
    """One directory of `experiments.representation`.

    Attributes:
        directory: where its files lie.
        game: the game.
        similarity: lines of `similarity.jsonl`, `preset` replaced by the run's arm.
        scores: the same of `scores.jsonl`; empty if there is none.
        unseen: the same of `unseen.jsonl`; empty if there is none.
    """

    directory: pathlib.Path
    game: str
    similarity: Lines
    scores: Lines
    unseen: Lines

    @property
    def seeds(self) -> list[int]:
        """All seeds, in order."""
        return sorted({line["seed"] for line in self.similarity})


def read(roots: Sequence[str | os.PathLike]) -> tuple[list[Recording], list[str]]:
    """Reads every directory with `similarity.jsonl` below `roots`.

    Returns:
        The recordings in the order of their paths, and one line for each that is left out.

    Raises:
        ValueError: a root is no directory.
    """
    for root in map(pathlib.Path, roots):
        if not root.is_dir():
            raise ValueError(f"there is no directory {root}")
    found = {path.parent for root in roots for path in pathlib.Path(root).rglob("similarity.jsonl")}
    recordings, problems = [], []
    for directory in sorted(found):
        try:
            recordings.append(_read(directory))
        except (ValueError, OSError, RecursionError) as error:
            problems.append(" ".join(f"{error}; restore the file or repeat the command".split()))
    return recordings, problems


def stems(prefix: str, recordings: Sequence[Recording]) -> dict[str, Recording]:
    """A name for the files of each recording; a game that appears again is numbered."""
    named: dict[str, Recording] = {}
    for recording in recordings:
        name, number = f"{prefix}_{recording.game}", 2
        while name in named:
            name, number = f"{prefix}_{recording.game}_{number}", number + 1
        named[name] = recording
    return named


def to_table(recording: Recording) -> Table:
    """First and last similarities of each arm: means over seeds, with the number of seeds."""
    rows = []
    arms = dict.fromkeys(line["preset"] for line in recording.similarity)
    for kind in ("held_out", "replay"):
        for arm in arms:
            own = [x for x in recording.similarity if (x["preset"], x["pairs"]) == (arm, kind)]
            steps = [x["agent_steps"] for x in own]
            for step in sorted({min(steps), max(steps)}) if steps else []:
                at_step = [x for x in own if x["agent_steps"] == step]
                label = f"{arm}, {kind.replace('_', '-')}, {short_steps(step)}"
                rows.append(Row(label, _cells(at_step), digits=3))
    title = f"{recording.game}: cosine similarity of phi to the anchor"
    columns = [Column(name) for name in ("positives", "negatives", "gap")]
    notes = [
        "Mean over seeds; in brackets the number of seeds. Held-out: pairs of evaluation episodes "
        "that nothing trains on. Steps are agent steps.",
        *(["One seed decides nothing."] if len(recording.seeds) == 1 else []),
        f"From {recording.directory}.",
    ]
    return Table(title, "arm, pairs, steps", columns, rows, notes)


def write(recording: Recording, directory: str | os.PathLike, stem: str) -> list[pathlib.Path]:
    """Writes the table as text and the figures as pictures; returns the files.

    Raises:
        OSError: a file cannot be written.
    """
    written = table.write(to_table(recording), directory, stem)
    seeds, game = recording.seeds, recording.game
    title = f"{game}, seed {seeds[0]}"
    if len(seeds) > 1:
        title = f"{game}: mean of {len(seeds)} seeds, and each"
    path = pathlib.Path(directory) / f"{stem}.png"
    similarity, scores, unseen = (
        # Matplotlib reads text between dollars as a formula.
        [{**line, "preset": line["preset"].replace("$", r"\$")} for line in lines]
        for lines in (recording.similarity, recording.scores, recording.unseen)
    )
    figures.draw_similarity(path, similarity, scores, title)
    written.append(path)
    if unseen:
        path = pathlib.Path(directory) / f"{stem}_unseen.png"
        figures.draw_unseen(path, unseen, f"{title}, held-out pairs by action")
        written.append(path)
    return written


def _read(directory: pathlib.Path) -> Recording:
    """Reads one directory; raises ValueError if a line is damaged."""
    parts = []
    for name, needed in _NEEDED.items():
        path = directory / name
        lines = records.read_records(path) if path.exists() else []
        for number, line in enumerate(lines, start=1):
            _check(f"{path}, line {number}", line, needed)
            if name == "similarity.jsonl" and line.get("pairs") not in _PAIRS:
                raise ValueError(f"{path}, line {number}: pairs is {line.get('pairs')!r}")
        parts.append([{key: _number(value) for key, value in line.items()} for line in lines])
    similarity = parts[0]
    if not similarity:
        raise ValueError(f"{directory / 'similarity.jsonl'} has no line")
    games = {line["game"] for line in similarity}
    if len(games) > 1:
        raise ValueError(f"{directory / 'similarity.jsonl'} mixes games: {', '.join(games)}")
    (game,) = games
    arms = _arms(directory, game)
    for line in itertools.chain(*parts):
        line["preset"] = arms.get((line["preset"], line["seed"]), line["preset"])
    return Recording(directory, game, *parts)


def _check(where: str, line: Mapping[str, Any], needed: Sequence[str]) -> None:
    """Raises ValueError if a line lacks what the figures read."""
    game, preset = line.get("game"), line.get("preset")
    if game not in reference.games() or preset not in list(ATARI_PRESETS):
        raise ValueError(f"{where}: game is {game!r}, preset is {preset!r}")
    for name in ("seed", "agent_steps"):
        value = line.get(name)
        if type(value) is not int or not 0 <= value < _LARGEST:
            raise ValueError(f"{where}: {name} is {line.get(name)!r}, expected a whole number")
    for name in needed:
        value = line.get(name, "")
        # A measure without pairs is null.
        is_number = type(value) in (int, float) and (value != value or abs(value) < _LARGEST)
        if not is_number and value is not None:
            raise ValueError(f"{where}: {name} is {line.get(name)!r}, expected a number")


def _number(value: Any) -> Any:
    return math.nan if value is None else value


def _arms(directory: pathlib.Path, game: str) -> dict[tuple[str, int], str]:
    """(preset, seed) -> the arm of the run, which says what an old preset is called today.

    Runs lie below the directory, as in `results/`, or beside it, as in a work directory.
    """
    for place in (directory, directory.parent):
        frame = runs.read(place).frame
        own = frame[frame.game == game]
        if len(own):
            own = own.drop_duplicates(["preset", "seed", "arm"])
            own = own.drop_duplicates(["preset", "seed"], keep=False)
            return dict(zip(zip(own.preset, own.seed, strict=True), own.arm, strict=True))
    return {}


def _cells(lines: Lines) -> list[Cell]:
    """Positives, negatives and their gap, over the seeds of some lines that have them."""
    lines = [
        line for line in lines if math.isfinite(line["cosine_positive"] + line["cosine_negative"])
    ]
    positive = [line["cosine_positive"] for line in lines]
    negative = [line["cosine_negative"] for line in lines]
    gap = [own - other for own, other in zip(positive, negative, strict=True)]
    return [mean_cell(values)._replace(deviation=None) for values in (positive, negative, gap)]
