r"""The paper's similarity figure, from what `experiments.representation` recorded.

    python -m benchmarks.figure_similarity --results=results --output=runs/report

Draws each directory that holds `similarity.jsonl`: cosine similarity to the anchor and scores over
training, for all seeds, as `figure_similarity_<game>.png`. Prints the first and the last
similarities and writes them as `figure_similarity_<game>.{csv,md,tex,html}`. Runs below or beside
the directory have the scores, and say which arm an old preset is today.
"""

import itertools
import os
import pathlib
import shutil
import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from benchmarks.tables import command, runs, table
from benchmarks.tables.table import Cell, Column, Row, Table, mean_cell, short_steps
from experiments import command_line
from experiments.representation.probe import SHADES
from rcrl_jax import files, reference, words
from rcrl_jax.config.presets import ATARI_PRESETS
from rcrl_jax.runs import records
from rcrl_jax.training import curves

_COSINES = ["cosine_positive", "cosine_negative"]
_PANELS = {"held_out": "pairs of evaluation episodes", "replay": "pairs of the replay"}


class Recording(NamedTuple):
    """One directory of `experiments.representation`; presets are replaced by the runs' arms."""

    directory: pathlib.Path
    game: str
    similarity: pd.DataFrame
    scores: pd.DataFrame  # `arm, seed, agent_steps, score` of every evaluation of the runs


def run(results: Sequence[str | os.PathLike], output: str | os.PathLike) -> None:
    """Draws every recorded directory; those that are left out are named on stderr.

    Args:
        results: directories to search, at any depth.
        output: directory to write to.

    Raises:
        ValueError: a directory does not exist, or none holds a recording.
        OSError: a file cannot be written.
    """
    files.make_writable(output)
    recordings, problems = read(results)
    for line in problems:
        print(line, file=sys.stderr)
    if not recordings:
        places = ", ".join(map(str, results))
        raise ValueError(
            f"no similarity.jsonl to draw below {places}; experiments.representation records it"
        )
    for number, recording in enumerate(recordings):
        before = sum(other.game == recording.game for other in recordings[:number])
        stem = f"figure_similarity_{recording.game}" + f"_{before + 1}" * bool(before)
        shown = to_table(recording)
        print(table.to_text(shown, shutil.get_terminal_size().columns) + "\n")
        table.write(shown, output, stem)
        draw(recording, pathlib.Path(output) / f"{stem}.png")
    print(f"written to {output}")


def read(roots: Sequence[str | os.PathLike]) -> tuple[list[Recording], list[str]]:
    """Reads every directory with `similarity.jsonl` below `roots`.

    Returns:
        The recordings in the order of their paths, and one line for each that is left out.

    Raises:
        ValueError: a root is no directory.
    """
    frame = runs.read(*roots).frame
    found = {path.parent for root in roots for path in pathlib.Path(root).rglob("similarity.jsonl")}
    recordings, problems = [], []
    for directory in sorted(found):
        try:
            recordings.append(_read(directory, frame))
        except (ValueError, OSError) as error:
            problems.append(words.one_line(f"{error}; restore the file or repeat the command"))
    return recordings, problems


def to_table(recording: Recording) -> Table:
    """First and last similarities of each arm: means over seeds, with the number of seeds."""
    rows = []
    for kind in ("held_out", "replay"):
        of_kind = recording.similarity[recording.similarity.pairs == kind]
        for arm, own in of_kind.groupby("preset", sort=False):
            for step in sorted({own.agent_steps.min(), own.agent_steps.max()}):
                label = f"{arm}, {kind.replace('_', '-')}, {short_steps(step)}"
                rows.append(Row(label, _cells(own[own.agent_steps == step]), digits=3))
    title = f"{recording.game}: cosine similarity of phi to the anchor"
    columns = [Column(name) for name in ("positives", "negatives", "gap")]
    notes = [
        "Mean over seeds; in brackets the number of seeds. Held-out: pairs of evaluation episodes "
        "that nothing trains on. Steps are agent steps.",
        *(["One seed decides nothing."] if recording.similarity.seed.nunique() == 1 else []),
        f"From {recording.directory}.",
    ]
    return Table(title, "arm, pairs, steps", columns, rows, notes)


def draw(recording: Recording, path: pathlib.Path) -> None:
    """Writes the figure, as figures 5 and 6 of the paper.

    With several seeds, a thick curve is their mean, and thin curves are the seeds. An arm has one
    hue, dark for positives, light for negatives.
    """
    figure = Figure(figsize=(13, 4), dpi=100, layout="constrained")
    panels = figure.subplots(ncols=3)
    arms_drawn = recording.similarity.preset.unique()
    for panel, (kind, name) in zip(panels, _PANELS.items(), strict=False):
        of_kind = recording.similarity[recording.similarity.pairs == kind]
        for arm, shades in zip(arms_drawn, itertools.cycle(SHADES), strict=False):
            for value, color in zip(_COSINES, shades, strict=True):
                label = f"{arm}, {value.removeprefix('cosine_')}"
                _draw_curves(panel, of_kind[of_kind.preset == arm], value, color, label)
        panel.set(title=name, ylabel="cosine similarity to the anchor", ylim=(None, 1.02))
    for arm, (color, _) in zip(arms_drawn, itertools.cycle(SHADES), strict=False):
        own = recording.scores[recording.scores.arm == arm]
        _draw_curves(panels[2], own, "score", color, arm)
    panels[2].set(title="score", ylabel="mean return of an evaluation")
    for panel in panels:
        panel.set_xlabel("agent steps")
        panel.xaxis.set_major_formatter(EngFormatter(sep=""))
        if panel.get_legend_handles_labels()[0]:
            panel.legend(fontsize=8, frameon=False)
        panel.grid(color="#eeeeee")
    seeds = recording.similarity.seed.unique()
    several = f"{recording.game}: mean of {len(seeds)} seeds, and each"
    figure.suptitle(several if len(seeds) > 1 else f"{recording.game}, seed {seeds[0]}")
    curves.save_figure(figure, path)


def _draw_curves(panel: Axes, lines: pd.DataFrame, value: str, color: str, label: str) -> None:
    of_seeds = lines.groupby("seed")
    if len(of_seeds) > 1:
        for _, own in of_seeds:
            own = own.sort_values("agent_steps")
            panel.plot(own.agent_steps, own[value], color=color, lw=0.5, alpha=0.5)
    if len(of_seeds):
        points = lines.assign(run=lines.seed)
        mean = runs.at_common_steps(points, "agent_steps", value).mean(axis=1)
        label = label.replace("$", r"\$")  # no formula
        panel.plot(mean.index, mean, color=color, lw=1.8, label=label)


def _read(directory: pathlib.Path, frame: pd.DataFrame) -> Recording:
    """Reads one directory; raises ValueError if a line is damaged."""
    path = directory / "similarity.jsonl"
    columns = ["preset", "game", "seed", "agent_steps", "pairs", *_COSINES]
    with files.reading(path):
        # A measure without pairs is null.
        types = {"seed": int, "agent_steps": int} | dict.fromkeys(_COSINES, float)
        similarity = pd.DataFrame(records.read_records(path), columns=columns).astype(types)
        known = similarity.game.isin(reference.games()) & similarity.preset.isin([*ATARI_PRESETS])
        if not known.all() or similarity.duplicated(columns[:5]).any():
            raise ValueError("a line is of another game or preset, or stands twice")
    games = similarity.game.unique()
    if len(games) != 1:
        raise ValueError(f"{path} is of {len(games)} games, not of one")
    of_game = frame[frame.game == games[0]]
    for place in (directory, directory.parent):
        near = of_game[np.array([place in path.parents for path in of_game.directory], bool)]
        if len(near):
            break
    near = near.drop_duplicates(["preset", "seed", "arm"])
    near = near.drop_duplicates(["preset", "seed"], keep=False)
    arm_of = near.set_index(["preset", "seed"]).arm.to_dict()
    similarity["preset"] = [
        arm_of.get(run, run[0]) for run in zip(similarity.preset, similarity.seed, strict=True)
    ]
    return Recording(directory, games[0], similarity, runs.evaluations(near))


def _cells(lines: pd.DataFrame) -> list[Cell]:
    """Positives, negatives and their gap, over the seeds that have them."""
    own = lines[_COSINES].dropna()
    own = own.assign(gap=own.cosine_positive - own.cosine_negative)
    return [mean_cell(own[name])._replace(deviation=None) for name in own]


if __name__ == "__main__":
    command.define_flags()
    command_line.run(lambda given: run(given.results, given.output))
