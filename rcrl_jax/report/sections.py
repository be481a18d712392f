"""The sections of the page that show runs: curves, bars, comparisons, and a table of all.

Every function returns the section's content. One that has nothing to show says so in one line.
"""

import itertools
import json
import os
import pathlib
import urllib.parse
from collections.abc import Mapping, Sequence

import numpy as np

from rcrl_jax import reference, statistics
from rcrl_jax.report import markup, page_figures, svg
from rcrl_jax.report.groups import Group
from rcrl_jax.report.markup import Markup, Value, element
from rcrl_jax.report.page_figures import Bar, Style
from rcrl_jax.results import pools
from rcrl_jax.results.runs import Run

FEWEST_TO_COMPARE = 3
"""Runs of an arm on a game from which on profiles and probabilities count that game."""
PUBLISHED = ("SimPLe", "ERainbow", "ERainbow-sa", "CURL", "RCRL", "RCRL+CURL")
"""Agents of the paper's Table 1 that bars show."""

_PUBLISHED_STEPS = 100_000
_MOST_MANIFESTS = 500
_DASHED = {"solid": None, "dashed": "6 3", "dotted": "2 2", "dashdot": "6 2 2 2"}
_RANDOM = Style(svg.MUTED, "dotted")


def nothing(text: str) -> Markup:
    """The one line of an empty section."""
    return element("p", text, class_="empty")


def learning_curves(groups: Sequence[Group], styles: Mapping[str, Style]) -> Markup:
    """One panel a game in every group."""
    blocks = []
    for group in groups:
        evaluated = [run for run in group.runs if run.evaluations]
        panels = [
            _curve_panel(game, runs, styles, f"curve-{len(blocks)}-{game}")
            for game, runs in by_game(evaluated)
        ]
        if panels:
            blocks.append(block(group.title(evaluated), panels, opened=not blocks))
    if not blocks:
        return nothing("No run has an evaluation yet.")
    note = (
        "A thin line is one seed. A line with hollow points is the only seed of its arm and "
        "decides nothing. A thick line is the mean of two finished seeds or more; from "
        f"{page_figures.FEWEST_FOR_INTERVAL} on it has a 95 % bootstrap interval at every "
        "evaluation. Runs under other conditions are in another block and are never pooled."
    )
    return markup.join([element("p", note, class_="note"), *blocks])


def bars(groups: Sequence[Group], styles: Mapping[str, Style]) -> Markup:
    """Human-normalised scores beside published ones, for Atari runs of the published budget."""
    blocks = []
    for group in groups:
        runs = [run for run in group.runs if run.score is not None]
        if not runs or runs[0].family != "atari" or runs[0].env_steps != _PUBLISHED_STEPS:
            continue
        panels = [
            _bar_panel(game, own, styles, f"bar-{len(blocks)}-{game}")
            for game, own in by_game(runs)
        ]
        blocks.append(block(group.title(runs), panels, opened=not blocks))
    if not blocks:
        return nothing("No finished Atari run has the published budget of 100,000 steps yet.")
    note = (
        "Filled bars are ours, with one point a run. Hollow bars are the paper's, at 100,000 "
        "steps: ERainbow-sa, RCRL and RCRL+CURL of five seeds each, the others copied from CURL's "
        "paper. 0 % is random play, 100 % the human tester."
    )
    return markup.join([element("p", note, class_="note"), *blocks])


def comparisons(groups: Sequence[Group], styles: Mapping[str, Style]) -> Markup:
    """Performance profiles and probabilities of improvement where arms share games."""
    blocks = []
    for group in groups:
        counted = _counted(group.runs)
        panels = [
            *_profile_panels(counted, styles, f"profile-{len(blocks)}"),
            *_improvement_panels(counted, f"improvement-{len(blocks)}"),
        ]
        if panels:
            blocks.append(block(group.label, panels, opened=not blocks))
    if not blocks:
        return nothing(
            f"No two arms share a game with {FEWEST_TO_COMPARE} finished runs each under equal "
            "conditions yet."
        )
    note = (
        f"Games count on which each arm has at least {FEWEST_TO_COMPARE} runs. Intervals are 95 % "
        "stratified bootstrap intervals, unpaired. Atari scores are human-normalised; returns of "
        "DMControl are divided by 1000."
    )
    return markup.join([element("p", note, class_="note"), *blocks])


def all_runs(runs: Sequence[Run], output: pathlib.Path) -> Markup:
    """One row a run, with its manifest.

    Args:
        runs: finished or not.
        output: the page, from which links start.
    """
    if not runs:
        return nothing("There is no run yet.")
    heads = [
        "arm", "game", "seed", "agent steps", "score", "episodes", "state", "backend", "algorithm",
        "device", "commit", "files",
    ]  # fmt: skip
    notes = []
    with_manifests = len(runs) <= _MOST_MANIFESTS
    if not with_manifests:
        notes.append(f"Manifests are shown of up to {_MOST_MANIFESTS} runs; the files hold them.")
    rows = [_run_row(run, output, with_manifest=with_manifests) for run in runs]
    return markup.table(f"{len(runs)} runs", heads, rows, notes)


def panel(title: str, picture: Markup, key: Sequence[Markup] = ()) -> Markup:
    """A figure with its title and its key."""
    legend = element("ul", *key, class_="key") if key else ""
    return element("figure", element("figcaption", title), picture, legend, class_="panel")


def key(style: Style, text: str) -> Markup:
    """An entry of a key: a piece of the line, and what it is."""
    line = element(
        "line", x1=0, y1=4, x2=24, y2=4, stroke=svg.VARIABLES[style.color],
        stroke_width=2, stroke_dasharray=_DASHED[style.dash],
    )  # fmt: skip
    return element("li", element("svg", line, viewBox="0 0 24 8", aria_hidden="true"), f" {text}")


def block(title: str, panels: Sequence[Markup], *, opened: bool) -> Markup:
    """A group's panels, which unfold."""
    return element(
        "details",
        element("summary", title),
        element("div", *panels, class_="panels"),
        open=opened or None,
    )


def by_game(runs: Sequence[Run]) -> list[tuple[str, list[Run]]]:
    """Games in the paper's order with their runs."""
    order = (*reference.games(), *reference.tasks())
    found = sorted({run.game for run in runs}, key=order.index)
    return [(game, [run for run in runs if run.game == game]) for game in found]


def _curve_panel(
    game: str, runs: Sequence[Run], styles: Mapping[str, Style], identity: str
) -> Markup:
    entries, levels = [], []
    for arm in dict.fromkeys(run.arm for run in runs):
        own = [run for run in runs if run.arm == arm]
        entries.append(key(styles[arm], f"{arm}, {_count(own)}"))
    if runs[0].family == "atari":
        random = reference.published(game, "Random")
        levels.append((random, _RANDOM))
        entries.append(key(_RANDOM, f"random play, published: {random:g}"))
    figure = page_figures.learning_curves(runs, styles, levels)
    return panel(game, svg.inline(figure, f"learning curves on {game}", identity), entries)


def _count(runs: Sequence[Run]) -> str:
    """How many seeds, and which of them are no whole run."""
    words = [f"seed {runs[0].seed} alone" if len(runs) == 1 else f"{len(runs)} seeds"]
    unfinished = sum(run.score is None for run in runs)
    diverged = sum(run.diverged for run in runs)
    words += [f"{unfinished} unfinished"] if unfinished else []
    words += [f"{diverged} diverged"] if diverged else []
    return ", ".join(words)


def _bar_panel(
    game: str, runs: Sequence[Run], styles: Mapping[str, Style], identity: str
) -> Markup:
    rows = []
    for arm in dict.fromkeys(run.arm for run in runs):
        (scores,) = pools.scores(runs, [arm], [game], scale=reference.human_normalised)[arm]
        label = f"{arm} ({len(scores)})"
        rows.append(Bar(label, float(np.mean(scores)), scores, styles[arm].color))
    for agent in PUBLISHED:
        score = reference.human_normalised(game, reference.published(game, agent))
        rows.append(Bar(f"{agent}, published", score, (), svg.MUTED))
    said = ", ".join(f"{row.label} {100 * row.value:.0f} %" for row in rows)
    return panel(game, svg.inline(page_figures.bars(rows), f"{game}: {said}", identity))


def _counted(runs: Sequence[Run]) -> dict[str, dict[str, np.ndarray]]:
    """Arm -> game -> normalised scores, where there are enough of them."""
    finished = [run for run in runs if run.score is not None]
    arms = list(dict.fromkeys(run.arm for run in finished))
    games = [game for game, _ in by_game(finished)]
    scores = pools.scores(finished, arms, games, scale=reference.normalised)
    return {
        arm: {
            game: values
            for game, values in zip(games, own, strict=True)
            if len(values) >= FEWEST_TO_COMPARE
        }
        for arm, own in scores.items()
    }


def _profile_panels(
    counted: Mapping[str, Mapping[str, np.ndarray]], styles: Mapping[str, Style], identity: str
) -> list[Markup]:
    """One profile for each set of games that two arms or more have."""
    by_games: dict[tuple[str, ...], list[str]] = {}
    for arm, own in counted.items():
        by_games.setdefault(tuple(own), []).append(arm)
    panels = []
    for games, arms in by_games.items():
        if games and len(arms) > 1:
            scores = {arm: list(counted[arm].values()) for arm in arms}
            figure = page_figures.performance_profiles(scores, styles)
            name = f"Performance profile on {_games(games)}"
            picture = svg.inline(figure, name, f"{identity}-{len(panels)}")
            entries = [
                key(styles[arm], f"{arm}, {sum(map(len, scores[arm]))} runs") for arm in arms
            ]
            panels.append(panel(name, picture, entries))
    return panels


def _improvement_panels(
    counted: Mapping[str, Mapping[str, np.ndarray]], identity: str
) -> list[Markup]:
    rows = []
    for first, second in itertools.combinations(counted, 2):
        games = [game for game in counted[first] if game in counted[second]]
        if not games:
            continue
        arms = [[counted[arm][game] for game in games] for arm in (second, first)]
        interval = statistics.bootstrap_intervals(
            {"improvement": statistics.probability_of_improvement},
            arms,
            np.random.default_rng(0),
            resamples=2_000,
        )["improvement"]
        rows.append((f"{second} > {first}", _games(games), interval))
    if not rows:
        return []
    figure = page_figures.improvements([(label, interval) for label, _, interval in rows])
    said = markup.table(
        "Probability of improvement",
        ["pair", "games", "estimate", "low", "high"],
        [
            [label, games, *(Value(float(v), f"{v:.3f}") for v in interval)]
            for label, games, interval in rows
        ],
    )
    picture = svg.inline(figure, "probability of improvement, the table says the same", identity)
    return [panel("Probability of improvement", picture), said]


def _games(games: Sequence[str]) -> str:
    return ", ".join(games) if len(games) <= 4 else f"{len(games)} games"


def _run_row(run: Run, output: pathlib.Path, *, with_manifest: bool) -> list[object]:
    last = run.evaluations[-1].agent_steps if run.evaluations else 0
    state = "finished" if run.score is not None else f"unfinished, evaluated at {last:,}"
    if run.diverged:
        state = "diverged, counted as random play"
    path = os.path.relpath(run.directory, output.absolute().parent)
    files = [element("a", "files", href=urllib.parse.quote(os.fsencode(path)) + "/", title=path)]
    if with_manifest:
        text = json.dumps(run.manifest, indent=1)
        files.append(element("details", element("summary", "manifest"), element("pre", text)))
    device, algorithm = run.device, run.conditions["algorithm"]
    cores = device.get("host_cores")
    return [
        run.arm,
        run.game,
        Value(run.seed, str(run.seed)),
        Value(run.agent_steps, f"{run.agent_steps:,}"),
        Value(run.score, f"{run.score:.1f}" if run.score is not None else ""),
        Value(len(run.returns), str(len(run.returns))) if run.returns else Value(None, ""),
        state,
        run.conditions.get("backend") or markup.MISSING,
        Value(algorithm, str(algorithm)) if type(algorithm) is int else Value(None, ""),
        f"{device.get('kind', markup.MISSING)}" + (f", {cores} cores" if cores else ""),
        str(run.versions.get("git_commit") or markup.MISSING)[:10],
        markup.join(files),
    ]
