"""The section on what runs measured beside their scores: segments, similarities, AUCs."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rcrl_jax.report import markup, page_figures, svg
from rcrl_jax.report.groups import Group
from rcrl_jax.report.markup import Markup, Value, element
from rcrl_jax.report.page_figures import Line, Style
from rcrl_jax.report.sections import block, by_game, key, nothing, panel
from rcrl_jax.results.runs import Run
from rcrl_jax.training import records

Series = Mapping[str, Mapping[int, float]]
"""Name of a measure -> agent step -> its value."""


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
    _Kind(
        "AUC, unseen episodes",
        {
            "unseen_auc_equal_action": ("solid", "pairs of equal action"),
            "unseen_auc": ("dashed", "all pairs"),
            "unseen_auc_equal_return": ("dotted", "returns across episodes"),
        },
        0.5,
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
    "unseen_auc_equal_action": "AUC, equal action",
    "unseen_auc": "AUC, all pairs",
    "unseen_auc_action": "AUC of actions alone",
    "unseen_auc_equal_return": "AUC across episodes",
    "cosine_positive": "cosine, positives",
    "cosine_negative": "cosine, negatives",
    "discriminator_accuracy_positive": "accuracy, positives",
    "discriminator_accuracy_negative": "accuracy, negatives",
    "segment_length_p50": "median segment",
    "positive_is_anchor": "positive is the anchor",
}


def section(groups: Sequence[Group], styles: Mapping[str, Style], problems: list[str]) -> Markup:
    """Panels a game in every group, and one table of every run's last values.

    Args:
        groups: all runs.
        styles: of the arms.
        problems: gets one line for each damaged `metrics.jsonl`.
    """
    blocks, rows = [], []
    for group in groups:
        measured = [(run, own) for run in group.runs if (own := read_series(run, problems))]
        rows += [_row(run, own) for run, own in measured]
        panels = []
        for game, _ in by_game([run for run, _ in measured]):
            of_game = [(run, own) for run, own in measured if run.game == game]
            for number, kind in enumerate(_KINDS):
                identity = f"measure-{len(blocks)}-{game}-{number}"
                panels += _kind_panel(game, kind, of_game, styles, identity)
        if panels:
            blocks.append(block(group.title([run for run, _ in measured]), panels, opened=False))
    if not blocks:
        return nothing("No run recorded segments, similarities or AUCs yet.")
    note = (
        "Lines are means over seeds, at the steps that all of them have. An AUC of 0.5 is chance. "
        "Values of training batches say little about returns: most of their pairs can be told "
        "apart by their actions. Pairs of equal action on unseen episodes cannot."
    )
    table = markup.table("last value of every run", ["arm", "game", "seed", *_LAST.values()], rows)
    return markup.join([element("p", note, class_="note"), *blocks, table])


def read_series(run: Run, problems: list[str]) -> dict[str, dict[int, float]]:
    """What the section shows of one run; empty if it recorded none of it.

    Args:
        run: its evaluations count, and its `metrics.jsonl` if there is one.
        problems: gets one line if that file is damaged.
    """
    path = run.directory / "metrics.jsonl"
    lines: list[dict[str, Any]] = []
    if path.exists():
        try:
            lines = records.read_records(path)
        except OSError as error:
            problems.append(f"{path} cannot be read: {error.strerror}; change its rights")
        except (ValueError, RecursionError) as error:
            problems.append(f"{error}; the run counts without its measures; restore the file")
    wanted = {name for kind in _KINDS for name in kind.measures} | _LAST.keys()
    series: dict[str, dict[int, float]] = {}
    for line in lines:
        step = line.get("agent_steps")
        for name in wanted & line.keys():
            if type(step) is int and type(line[name]) in (int, float):
                series.setdefault(name, {})[step] = float(line[name])
    for evaluation in run.evaluations:
        for name in wanted & evaluation.measures.keys():
            series.setdefault(name, {})[evaluation.agent_steps] = evaluation.measures[name]
    return {
        name: values
        for name, values in series.items()
        if any(math.isfinite(value) for value in values.values())
    }


def _kind_panel(
    game: str,
    kind: _Kind,
    measured: Sequence[tuple[Run, Series]],
    styles: Mapping[str, Style],
    identity: str,
) -> list[Markup]:
    lines, entries = [], []
    for arm in dict.fromkeys(run.arm for run, _ in measured):
        own = [series for run, series in measured if run.arm == arm]
        found = [
            Line(Style(styles[arm].color, dash), *mean)
            for name, (dash, _) in kind.measures.items()
            if (mean := _mean([series[name] for series in own if name in series]))
        ]
        if found:
            lines += found
            entries.append(key(Style(styles[arm].color, "solid"), f"{arm} ({len(own)})"))
    if not lines:
        return []
    entries += [key(Style(svg.INK, dash), words) for dash, words in kind.measures.values()]
    picture = svg.inline(
        page_figures.lines(lines, kind.label, kind.level), f"{kind.label} on {game}", identity
    )
    return [panel(game, picture, entries)]


def _mean(seeds: Sequence[Mapping[int, float]]) -> tuple[list[int], list[float]] | None:
    steps = sorted(set.intersection(*map(set, seeds))) if seeds else []
    if not steps:
        return None
    return steps, [float(np.mean([values[step] for values in seeds])) for step in steps]


def _row(run: Run, series: Series) -> list[object]:
    values = [series[name][max(series[name])] if name in series else None for name in _LAST]
    numbers = [Value(value, f"{value:.3g}" if value is not None else "") for value in values]
    return [run.arm, run.game, Value(run.seed, str(run.seed)), *numbers]
