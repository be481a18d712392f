"""One self-contained HTML page of everything below some directories of results.

The page loads nothing: it contains style sheet, script and figures, and its content security policy
allows no others. The template, which has the words, escapes all text from files.
Two pages of the same files differ in their date line only.
"""

import base64
import hashlib
import importlib.resources
import json
import os
import pathlib
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import markupsafe
import pandas as pd
from matplotlib.figure import Figure

import rcrl_jax
from rcrl_jax import reference, words
from rcrl_jax.tables import command, panels, pools, runs, statistics, summary
from rcrl_jax.tables.table import Table, render

_FAMILIES = {
    "atari": "Atari",
    "dmc": "DMControl",
    "minatar": "MinAtar",
    "own": "Games of one's own",
}
_MADE_WITH = ("rcrl_jax", "jax", "envpool", "dm_control")
_MOST_MANIFESTS = 500


class Page(NamedTuple):
    """A page.

    Attributes:
        html: the whole page.
        runs: how many it shows, finished or not.
        problems: one line for each thing that is left out; they stand in the page too.
    """

    html: str
    runs: int
    problems: tuple[str, ...]


class Panel(NamedTuple):
    """A figure: its title, its image as an address, and its text for readers who cannot see it."""

    title: str
    uri: str
    said: str


class Block(NamedTuple):
    """Tables and panels that unfold under a title."""

    title: str
    tables: Sequence[Table] = ()
    panels: Sequence[Panel] = ()


def build(
    roots: Sequence[pathlib.Path], output: pathlib.Path, *, date: str, commit: str | None
) -> Page:
    """Builds the page.

    Args:
        roots: directories of results, or work directories.
        output: where the page will lie, from which links start; nothing is written.
        date: of the page.
        commit: of this code.

    Raises:
        ValueError: a root is no directory.
    """
    frame, left_out = runs.read(*roots, unfinished=True)
    points, damaged = runs.read_measures(frame)
    problems = tuple(map(words.one_line, [*left_out, *damaged]))
    shown = {name: command.fill(kind, frame) for name, kind in command.PAPER.items()}
    control = shown["figure_dmc"]
    looks = panels.styles(frame.arm.unique())

    def scores(own_runs: pd.DataFrame) -> tuple[list[Table], list[Panel]]:
        tables, figures = [summary.score_table(own_runs)], []
        if found := summary.compare(own_runs):
            tables += [summary.estimates(found), summary.improvements(found)]
        if found and found.unit:
            drawn = {
                "Performance profiles": panels.profiles(found, looks),
                "Sample efficiency": panels.efficiency(own_runs, found, looks),
            }
            figures = [_panel(title, figure) for title, figure in drawn.items() if figure]
        return tables, figures

    def curves(own_runs: pd.DataFrame) -> list[Panel]:
        is_atari = own_runs.family.iloc[0] == "atari"
        return [
            _panel(
                game,
                panels.learning_curves(
                    seeds, looks, reference.published(game, "Random") if is_atari else None
                ),
                f"learning curves on {game}: {panels.describe(seeds)}",
            )
            for game, seeds in _by_game(own_runs)
        ]

    def measures(own_runs: pd.DataFrame) -> list[Panel]:
        return [
            _panel(game, figure, f"{title} on {game}")
            for game, seeds in _by_game(own_runs)
            for title, figure in panels.measures(points[points.run.isin(seeds.index)], looks)
        ]

    with panels.drawing():
        figure = command.PAPER["figure_dmc"].draw(control.drawn, control.budgets[-1])
        drawn = {
            "figure": _panel("DMControl: ours over published curves", figure),
            "scores": _blocks(frame, scores),
            "curves": _blocks(
                frame[frame.evaluations.map(len) > 0], lambda own_runs: ([], curves(own_runs))
            ),
            "measures": _blocks(
                frame[frame.index.isin(points.run)], lambda own_runs: ([], measures(own_runs))
            ),
        }
    files = importlib.resources.files("rcrl_jax.tables") / "templates"
    style, script = (
        markupsafe.Markup((files / name).read_text(encoding="utf-8"))
        for name in ("page.css", "page.js")
    )
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; "
        f"script-src '{_hash(script)}'; base-uri 'none'; form-action 'none'"
    )
    html = render(
        "page.html",
        policy=markupsafe.Markup(policy),
        style=style,
        script=script,
        facts=_facts(frame, date=date, commit=commit),
        problems=problems,
        arms=_legend(frame, looks),
        verdicts=[verdict for one in shown.values() for verdict in one.judged],
        paper_tables=[_ours_first(one) for one in shown.values() if len(one.runs)],
        published_tables=[_ours_first(one) for one in shown.values() if not len(one.runs)],
        draws_ours=len(control.drawn) > 0,
        rows=_rows(frame, output.absolute().parent),
        fewest_for_interval=statistics.FEWEST_FOR_INTERVAL,
        **drawn,
    )
    return Page(html, len(frame), problems)


def pool_labels(frame: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """The runs of each pool with a label: Atari first, then long runs, then large pools.

    A label says what differs from every other pool: budget, algorithm and final episodes always,
    other conditions where two pools would have one label.
    """
    sets = [own for _, own in frame.groupby("pool", sort=False)]
    sets.sort(key=lambda own: (own.family.iloc[0], -own.env_steps.iloc[0], -len(own)))
    short = [
        f"{_FAMILIES[first.family]}, {first.env_steps:,} environment steps, "
        f"algorithm {first.algorithm}, {first.final_episodes} final episodes"
        for first in (own.iloc[0] for own in sets)
    ]
    labelled = []
    for own, label in zip(sets, short, strict=True):
        alike = [other for other, same in zip(sets, short, strict=True) if same == label]
        names = pools.differing(pd.concat(alike))
        differing = [f"{name} {pools.text(own.iloc[0][name])}" for name in names]
        labelled.append((", ".join([label, *differing]), own))
    return labelled


def _blocks(
    frame: pd.DataFrame,
    show: Callable[[pd.DataFrame], tuple[Sequence[Table], Sequence[Panel]]],
) -> list[Block]:
    """One block per pool, with the tables and panels of its runs."""
    blocks = []
    for label, of_pool in pool_labels(frame):
        counts = {name: of_pool[name].nunique() for name in ("arm", "game")}
        extent = ", ".join(
            words.count(noun, number) for noun, number in {"run": len(of_pool), **counts}.items()
        )
        blocks.append(Block(f"{label}: {extent}", *show(of_pool)))
    return blocks


def _by_game(frame: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    return sorted(frame.groupby("game"), key=lambda group: runs.game_order(group[0]))


def _ours_first(shown: command.Shown) -> Table:
    """The table with our columns first, and with what is left out among its notes."""
    table = shown.table
    order = sorted(range(len(table.columns)), key=lambda i: table.columns[i].source != "ours")
    return table._replace(
        columns=[table.columns[i] for i in order],
        rows=[row._replace(cells=[row.cells[i] for i in order]) for row in table.rows],
        notes=[*table.notes, *shown.left_out],
    )


def _legend(frame: pd.DataFrame, looks: Mapping[str, panels.Style]) -> list[dict[str, Any]]:
    """Each arm with its look, and the settings of those with a name of their own."""
    settings = frame.groupby("arm", sort=False).settings.unique()
    return [
        {
            "name": arm,
            "look": looks[arm],
            "settings": " or ".join(one for one in own_settings if one != arm),
        }
        for arm, own_settings in settings.items()
    ]


def _panel(title: str, figure: Figure, said: str = "") -> Panel:
    return Panel(title, panels.to_uri(figure), said or title)


def _facts(frame: pd.DataFrame, *, date: str, commit: str | None) -> dict[str, str]:
    finished, diverged = frame.score.notna().sum(), frame.diverged.sum()
    counts = [f"{finished} finished", f"{len(frame) - finished} unfinished"]
    counts += [f"{diverged} of the finished ones diverged"] if diverged else []
    return {
        "Date": date,
        "Page by": f"rcrl_jax {rcrl_jax.__version__}, commit {commit or 'unknown'}",
        "Runs": f"{len(frame)}: {', '.join(counts)}",
        "Made with": "; ".join(filter(None, (_versions(frame, name) for name in _MADE_WITH))),
        "Commits": " ".join(pools.unclear_commits(frame)) or "all runs name theirs",
        "Arms": str(frame.arm.nunique()),
        "Games and tasks": str(frame.game.nunique()),
        "Sets of equal conditions": f"{frame.pool.nunique()}; runs are pooled within one only",
    }


def _versions(frame: pd.DataFrame, name: str) -> str:
    found = {str(manifest["versions"].get(name) or "") for manifest in frame.manifest} - {""}
    return f"{name} {', '.join(sorted(found))}" if found else ""


def _rows(frame: pd.DataFrame, start: pathlib.Path) -> list[dict[str, Any]]:
    """What the table of all runs shows of each; links start at `start`."""
    rows = []
    for run in frame.itertuples():
        last = run.evaluations[-1]["agent_steps"] if run.evaluations else 0
        state = "finished" if run.score == run.score else f"unfinished, evaluated at {last:,}"
        path = os.path.relpath(run.directory, start)
        device = run.manifest["device"]
        cores = f", {device['host_cores']} cores" if "host_cores" in device else ""
        rows.append(
            {
                "run": run,
                "episodes": len(run.returns) if run.returns is not None else None,
                "texts": (
                    "diverged, counted as random play" if run.diverged else state,
                    pools.text(run.backend),
                    str(run.algorithm),
                    f"{device.get('kind', '–')}{cores}",
                    run.commit[:10] + "-dirty" * ("-dirty" in run.commit),
                ),
                "path": path,
                "href": urllib.parse.quote(os.fsencode(path)) + "/",
                "manifest": json.dumps(run.manifest, indent=1)
                if len(frame) <= _MOST_MANIFESTS
                else None,
            }
        )
    return rows


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
