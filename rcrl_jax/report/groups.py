"""The runs of a page in groups that may be pooled, and how their arms are drawn."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rcrl_jax.report import svg
from rcrl_jax.report.page_figures import Style
from rcrl_jax.results import pools
from rcrl_jax.results.runs import Run

_DASHES = ("solid", "dashed", "dotted", "dashdot")
_FAMILIES = {"atari": "Atari", "dmc": "DMControl"}


class Group(NamedTuple):
    """Runs of one family under equal conditions, finished or not."""

    label: str
    runs: tuple[Run, ...]

    def title(self, runs: Sequence[Run]) -> str:
        """The label, and what is shown of the group: so many of its runs, arms and games."""
        counts = {
            "run": len(runs),
            "arm": len({run.arm for run in runs}),
            "game": len({run.game for run in runs}),
        }
        words = [f"{count} {noun}{'s' * (count != 1)}" for noun, count in counts.items()]
        return f"{self.label}: {', '.join(words)}"


def of(runs: Iterable[Run]) -> list[Group]:
    """The runs by their conditions: Atari first, then long runs, then large groups.

    A label says what differs from every other group: budget, algorithm and final episodes always,
    other conditions where two groups would have one label.
    """
    sets: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        sets.setdefault((run.family, pools.conditions_key(run)), []).append(run)
    found = sorted(
        sets.values(),
        key=lambda own: (own[0].family, -own[0].env_steps, -len(own), str(own[0].directory)),
    )
    short = [_short_label(own[0]) for own in found]
    labels = []
    for own, label in zip(found, short, strict=True):
        alike = [
            other[0].conditions for other, same in zip(found, short, strict=True) if same == label
        ]
        labels.append(", ".join([label, *_differing(own[0].conditions, alike)]))
    return [Group(label, tuple(own)) for label, own in zip(labels, found, strict=True)]


def styles(runs: Iterable[Run]) -> dict[str, Style]:
    """Arm -> how it is drawn everywhere; colours first, then dashes."""
    looks = itertools.cycle(itertools.product(_DASHES, svg.ARMS))
    arms = dict.fromkeys(run.arm for run in runs)
    return {arm: Style(color, dash) for arm, (dash, color) in zip(arms, looks, strict=False)}


def _short_label(run: Run) -> str:
    conditions = run.conditions
    return (
        f"{_FAMILIES[run.family]}, {run.env_steps:,} environment steps, "
        f"algorithm {conditions['algorithm']}, {conditions['final_episodes']} final episodes"
    )


def _differing(own: Mapping[str, Any], alike: Sequence[Mapping[str, Any]]) -> list[str]:
    names = dict.fromkeys(name for conditions in alike for name in conditions)
    return [
        f"{name} {own.get(name, 'not stated')}"
        for name in names
        if any(conditions.get(name) != own.get(name) for conditions in alike)
    ]
