"""What runs measured beside their scores: segments, similarities, AUCs with their nulls."""

import math
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pandas as pd

from benchmarks.tables import panels, runs
from benchmarks.tables.panels import Line, Style
from benchmarks.tables.table import Cell, Column, Row, Table
from rcrl_jax.runs import records

_LARGEST = 1e6
"""No measure is larger; JSON can hold infinities, and integers beyond every float."""

_AUCS = {
    "unseen_auc_equal_action": "AUC, equal action",
    "unseen_auc": "AUC, all pairs",
    "unseen_auc_equal_return": "AUC across episodes",
}
"""AUCs on unseen episodes; `<name>_clock` and `<name>_matched_time` are recorded beside each."""


class _Kind(NamedTuple):
    """One kind of panel: its axis, its measures with their dashes and words, a level line."""

    label: str
    measures: Mapping[str, tuple[str, str]]
    level: float | None = None


_KINDS = (
    _Kind(
        "length of segments [agent steps]",
        {
            "segment_length_p90": ("dashed", "90 % are shorter"),
            "segment_length_p50": ("solid", "median"),
            "segment_length_p10": ("dotted", "10 % are shorter"),
        },
    ),
    _Kind(
        "cosine to the anchor, training batches",
        {"cosine_positive": ("solid", "positives"), "cosine_negative": ("dashed", "negatives")},
    ),
    *(
        _Kind(
            f"{words}, unseen episodes",
            {
                name: ("solid", "the discriminator"),
                f"{name}_clock": ("dotted", "a clock, on the same pairs"),
                f"{name}_matched_time": ("dashed", "the discriminator at matched time"),
            },
            0.5,
        )
        for name, words in _AUCS.items()
    ),
    _Kind(
        "cosine to the anchor, unseen, equal action",
        {
            "unseen_cosine_positive_equal_action": ("solid", "positives"),
            "unseen_cosine_negative_equal_action": ("dashed", "negatives"),
        },
    ),
)
_LAST = {
    column: words
    for name, own in _AUCS.items()
    for column, words in {
        name: own,
        f"{name}_clock": "its clock",
        f"{name}_matched_time": "at matched time",
    }.items()
} | {
    "unseen_auc_action": "AUC of actions alone",
    "cosine_positive": "cosine, positives",
    "cosine_negative": "cosine, negatives",
    "discriminator_accuracy_positive": "accuracy, positives",
    "discriminator_accuracy_negative": "accuracy, negatives",
    "segment_length_p50": "median segment",
    "positive_is_anchor": "positive is the anchor",
}
_WANTED = list(dict.fromkeys([*_LAST, *(name for kind in _KINDS for name in kind.measures)]))
NOTE = (
    "Lines are means over seeds, at the steps that all of them have. An AUC of 0.5 is chance, but "
    "steps of one segment are close in time: a clock alone has more. Only what exceeds the clock, "
    "or what remains where both partners of an anchor are equally far from it in time, can come "
    "from returns; older runs recorded neither. Values of training batches say little about "
    "returns: most of their pairs can be told apart by their actions."
)


def read(frame: pd.DataFrame, problems: list[str]) -> pd.DataFrame:
    """What runs recorded: `run, arm, game, seed, agent_steps` and a column for each measure.

    Args:
        frame: runs; their evaluations count, and their `metrics.jsonl` if there is one.
        problems: gets one line for each damaged file.
    """
    rows = []
    for run in frame.itertuples():
        identity = {"run": run.Index, "arm": run.arm, "game": run.game, "seed": run.seed}
        for line in [*_metrics(run.directory / "metrics.jsonl", problems), *run.evaluations]:
            step = line.get("agent_steps")
            values = {
                name: float(line[name])
                for name in _WANTED
                if type(line.get(name)) in (int, float) and abs(line[name]) < _LARGEST
            }
            if values and type(step) is int and 0 <= step <= run.agent_steps:
                rows.append(identity | {"agent_steps": step} | values)
    columns = ["run", "arm", "game", "seed", "agent_steps", *_WANTED]
    return pd.DataFrame(rows, columns=columns)


def game_panels(
    points: pd.DataFrame, looks: Mapping[str, Style]
) -> Iterator[tuple[str, panels.Figure]]:
    """Names and figures of one game's runs of one pool; nothing where nothing was recorded."""
    for kind in _KINDS:
        drawn = []
        for arm, own in points.groupby("arm", sort=False):
            for name, (dash, words) in kind.measures.items():
                if len(mean := mean_of_runs(own, name)):
                    label = f"{arm} ({own.run.nunique()}), {words}"
                    drawn.append(Line(mean, Style(looks[arm].color, dash), label))
        if drawn:
            yield kind.label, panels.lines(drawn, kind.label, kind.level)


def mean_of_runs(points: pd.DataFrame, measure: str) -> pd.Series:
    """The mean over runs of a measure, at the steps at which all that have it recorded it."""
    own = points[["run", "agent_steps", measure]].dropna()
    own = own.drop_duplicates(["run", "agent_steps"], keep="last")
    return runs.at_common_steps(own, "agent_steps", measure).mean(axis=1)


def last_values(points: pd.DataFrame) -> Table:
    """The last value of every measure and run; measures that no run has are left out."""
    last = points.sort_values("agent_steps", kind="stable").groupby("run").last()
    names = [name for name in _LAST if last[name].notna().any()]
    rows = [
        Row(
            run["arm"],
            [Cell(run["game"]), Cell(run["seed"])]
            + [Cell(None if math.isnan(run[name]) else run[name]) for name in names],
            digits=3,
        )
        for run in last.to_dict("records")
    ]
    heads = ["game", "seed", *(_LAST[name] for name in names)]
    return Table("Last value of every run", "arm", [*map(Column, heads)], rows)


def _metrics(path: pathlib.Path, problems: list[str]) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    try:
        return records.read_records(path)
    except OSError as error:
        problems.append(f"{path} cannot be read: {error.strerror}; change its rights")
    except (ValueError, RecursionError) as error:
        problems.append(f"{error}; the run counts without its measures; restore the file")
    return []
