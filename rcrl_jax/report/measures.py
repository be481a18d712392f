"""The section on what runs measured beside their scores: segments, similarities, AUCs."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rcrl_jax.report import markup, page_figures, similarities, svg, tables
from rcrl_jax.report.alignment import align
from rcrl_jax.report.groups import Group
from rcrl_jax.report.markup import Markup, Value, element
from rcrl_jax.report.page_figures import Line, Style
from rcrl_jax.report.sections import block, by_game, key, nothing, panel
from rcrl_jax.report.similarities import Recording
from rcrl_jax.results.runs import Run
from rcrl_jax.training import records

_LARGEST = 1e6
"""No measure is larger; JSON can hold infinities, and integers beyond every float."""

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


def section(
    groups: Sequence[Group],
    styles: Mapping[str, Style],
    recorded: Sequence[Recording],
    problems: list[str],
) -> Markup:
    """Panels a game in every group, one table of every run's last values, and similarities.

    Args:
        groups: all runs.
        styles: of the arms.
        recorded: by `experiments.representation`.
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
    if not blocks and not recorded:
        return nothing("No run recorded segments, similarities or AUCs yet.")
    note = (
        "Lines are means over seeds, at the steps that all of them have. An AUC of 0.5 is chance. "
        "Values of training batches say little about returns: most of their pairs can be told "
        "apart by their actions. Pairs of equal action on unseen episodes cannot."
    )
    table = markup.table("Last value of every run", ["arm", "game", "seed", *_LAST.values()], rows)
    return markup.join(
        [
            element("p", note, class_="note"),
            *blocks,
            *([table] if rows else []),
            *itertools.starmap(_recorded, enumerate(recorded)),
        ]
    )


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
        if type(step) is not int or not 0 <= step <= run.agent_steps:
            continue
        for name in wanted & line.keys():
            if type(line[name]) in (int, float) and abs(line[name]) < _LARGEST:
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


def _recorded(number: int, recording: Recording) -> Markup:
    """The table and the curves of one directory of the representation experiment."""
    arms = dict.fromkeys(line["preset"] for line in recording.similarity)
    panels = []
    for kind, words in {"held_out": "held-out pairs", "replay": "pairs of the replay"}.items():
        lines, entries = [], []
        for arm, color in zip(arms, itertools.cycle(svg.ARMS), strict=False):
            own = [x for x in recording.similarity if (x["preset"], x["pairs"]) == (arm, kind)]
            seeds = sorted({line["seed"] for line in own})
            for sign, dash in {"positive": "solid", "negative": "dashed"}.items():
                curves = [
                    {x["agent_steps"]: x[f"cosine_{sign}"] for x in own if x["seed"] == seed}
                    for seed in seeds
                ]
                if mean := _mean(curves):
                    lines.append(Line(Style(color, dash), *mean))
                    entries.append(key(Style(color, dash), f"{arm} ({len(seeds)}), {sign}s"))
        if lines:
            label = f"cosine of phi to the anchor, {words}"
            picture = svg.inline(
                page_figures.lines(lines, label),
                f"{label}, on {recording.game}",
                f"similarity-{number}-{kind}",
            )
            panels.append(panel(recording.game, picture, entries))
    table = Markup(tables.to_html(similarities.to_table(recording)))
    return markup.join([element("div", *panels, class_="panels"), table])


def _mean(seeds: Sequence[Mapping[int, float]]) -> tuple[list[int], list[float]] | None:
    steps, values = align(seeds)
    return (steps, values.mean(axis=0).tolist()) if steps else None


def _row(run: Run, series: Series) -> list[object]:
    values = [series[name][max(series[name])] if name in series else None for name in _LAST]
    numbers = [Value(value, f"{value:.3g}" if value is not None else "") for value in values]
    return [run.arm, run.game, Value(run.seed, str(run.seed)), *numbers]
