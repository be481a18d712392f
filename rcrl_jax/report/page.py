"""One self-contained HTML page of everything below some directories of results.

The page asks for nothing from anywhere: style sheet, script and figures are in it, and its content
security policy allows no others. All text from files is escaped (`markup.py`). Two pages of the
same files differ in their date line only.
"""

import base64
import hashlib
import importlib.resources
import pathlib
import re
import string
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import rcrl_jax
from rcrl_jax.report import (
    groups,
    markup,
    measures,
    paper_sections,
    sections,
    similarities,
    speed,
    svg,
)
from rcrl_jax.report.markup import Markup, element
from rcrl_jax.results import arms, store
from rcrl_jax.results.runs import Run

TITLE = "RCRL: what our runs show"
_MADE_WITH = ("rcrl_jax", "jax", "envpool", "dm_control")


class Page(NamedTuple):
    """A page.

    Attributes:
        html: the whole page.
        runs: that it shows, finished or not.
        problems: one line for each thing that is left out; they stand in the page too.
    """

    html: str
    runs: tuple[Run, ...]
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
    runs, left_out = store.read_runs(*roots, unfinished=True)
    recorded, damaged = similarities.read(roots)
    problems = [*left_out, *damaged]
    finished = [run for run in runs if run.score is not None]
    of_conditions = groups.of(runs)
    styles = groups.styles(runs)
    with svg.drawing():
        contents = {
            "Verdicts on the paper's claims": paper_sections.verdict_section(finished),
            "The paper's tables": paper_sections.table_section(finished),
            "Learning curves": sections.learning_curves(of_conditions, styles),
            "Scores by game": sections.bars(of_conditions, styles),
            "Profiles and improvement": sections.comparisons(of_conditions, styles),
            "Segments, similarities, AUCs": measures.section(
                of_conditions, styles, recorded, problems
            ),
            "Throughput": speed.section(roots, problems),
            "All runs": sections.all_runs(runs, output),
        }
    problems = tuple(map(arms.one_line, problems))
    about = _about(runs, of_conditions, problems, date=date, commit=commit)
    return Page(_fill(about, contents), runs, problems)


def _about(
    runs: Sequence[Run],
    of_conditions: Sequence[groups.Group],
    problems: Sequence[str],
    *,
    date: str,
    commit: str | None,
) -> Markup:
    finished = [run for run in runs if run.score is not None]
    diverged = sum(run.diverged for run in runs)
    counts = [f"{len(finished)} finished", f"{len(runs) - len(finished)} unfinished"]
    counts += [f"{diverged} of the finished ones diverged"] if diverged else []
    facts = {
        "Date": date,
        "Page by": f"rcrl_jax {rcrl_jax.__version__}, commit {commit or 'unknown'}",
        "Runs": f"{len(runs)}: {', '.join(counts)}",
        "Made with": "; ".join(filter(None, (_versions(runs, name) for name in _MADE_WITH))),
        "Arms": str(len({run.arm for run in runs})),
        "Games and tasks": str(len({run.game for run in runs})),
        "Sets of equal conditions": f"{len(of_conditions)}; runs are pooled within one only",
    }
    shown = [
        part for name, fact in facts.items() for part in (element("dt", name), element("dd", fact))
    ]
    purpose = (
        "Return-based contrastive representation learning (RCRL): every run below the given "
        "directories, beside published figures. What others measured is labelled as published and "
        "never counts as a run of ours."
    )
    if problems:
        left_out = element(
            "details",
            element("summary", f"Left out: {len(problems)}"),
            element("ul", *(element("li", line) for line in problems), class_="lines"),
            open=len(problems) <= 10 or None,
        )
    else:
        left_out = element("p", "Nothing is left out.", class_="empty")
    return markup.join([element("p", purpose), element("dl", *shown), left_out])


def _versions(runs: Sequence[Run], name: str) -> str:
    found = sorted({str(run.versions[name]) for run in runs if run.versions.get(name)})
    return f"{name} {', '.join(found)}" if found else ""


def _fill(about: Markup, contents: Mapping[str, Markup]) -> str:
    files = importlib.resources.files("rcrl_jax.report") / "template"
    template, style, script = (
        (files / name).read_text(encoding="utf-8") for name in ("page.html", "page.css", "page.js")
    )
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    anchors = {title: re.sub(r"[^a-z]+", "-", title.lower()) for title in contents}
    links = [
        element("li", element("a", title, href=f"#{anchor}")) for title, anchor in anchors.items()
    ]
    shown = [
        element(
            "section",
            element(
                "h2",
                f"{title} ",
                element("a", "#", href=f"#{anchors[title]}", aria_label="Link to this section"),
                id=anchors[title],
            ),
            content,
        )
        for title, content in contents.items()
    ]
    return string.Template(template).substitute(
        policy=policy,
        title=markup.escape(TITLE),
        style=style,
        script=script,
        summary=about,
        contents="\n".join(links),
        sections="\n".join(shown),
    )


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
