"""One self-contained HTML page of everything below some directories of results.

The page asks for nothing from anywhere: style sheet, script and figures are in it, and its content
security policy allows no others. The template escapes all text from files. Two pages of the same
files differ in their date line only.
"""

import base64
import hashlib
import importlib.resources
import json
import os
import pathlib
import re
import urllib.parse
from collections.abc import Sequence
from typing import Any, NamedTuple

import markupsafe
import pandas as pd

import rcrl_jax
from benchmarks.tables import arms, panels, pools, rendering, runs, sections, similarities, speed
from benchmarks.tables.sections import Section

TITLE = "RCRL: what our runs show"
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
    recorded, damaged = similarities.read(roots)
    problems = [*left_out, *damaged]
    looks = panels.styles(frame.arm.unique())
    with panels.drawing():
        contents = [
            sections.judged(frame),
            sections.paper_tables(frame),
            sections.learning_curves(frame, looks),
            sections.bars(frame, looks),
            sections.comparisons(frame, looks),
            sections.measured(frame, looks, recorded, problems),
            Section(
                "Throughput",
                empty="No speed has been recorded here yet.",
                tables=speed.tables(roots, problems),
            ),
            Section(
                "All runs",
                empty="There is no run yet.",
                runs=_rows(frame, output.absolute().parent),
            ),
        ]
    problems = tuple(map(arms.one_line, problems))
    files = importlib.resources.files("benchmarks.tables") / "templates"
    style, script = (
        markupsafe.Markup((files / name).read_text(encoding="utf-8"))
        for name in ("page.css", "page.js")
    )
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; "
        f"script-src '{_hash(script)}'; base-uri 'none'; form-action 'none'"
    )
    html = rendering.render(
        "page.html",
        title=TITLE,
        policy=markupsafe.Markup(policy),
        style=style,
        script=script,
        facts=_facts(frame, date=date, commit=commit),
        problems=problems,
        sections=[(_anchor(section.title), section) for section in contents],
    )
    return Page(str(html), len(frame), problems)


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
        is_finished = not pd.isna(run.score)
        state = "finished" if is_finished else f"unfinished, evaluated at {last:,}"
        path = os.path.relpath(run.directory, start)
        device = run.manifest["device"]
        cores = f", {device['host_cores']} cores" if "host_cores" in device else ""
        rows.append(
            {
                "arm": run.arm,
                "game": run.game,
                "seed": run.seed,
                "agent_steps": run.agent_steps,
                "score": run.score if is_finished else None,
                "episodes": len(run.returns) if run.returns is not None else None,
                "state": "diverged, counted as random play" if run.diverged else state,
                "backend": pools.text(run.backend),
                "algorithm": str(run.algorithm),
                "device": f"{device.get('kind', '–')}{cores}",
                "commit": pools.short_commit(run.commit),
                "path": path,
                "href": urllib.parse.quote(os.fsencode(path)) + "/",
                "manifest": json.dumps(run.manifest, indent=1)
                if len(frame) <= _MOST_MANIFESTS
                else None,
            }
        )
    return rows


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z]+", "-", title.lower())


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
