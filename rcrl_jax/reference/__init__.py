"""Published scores that a run is printed beside; README.md says what they are."""

import csv
import functools
import importlib.resources
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

PAPER_COLUMN: dict[str, str] = {
    "simple": "SimPLe",
    "rainbow": "Rainbow",
    "erainbow": "ERainbow",
    "erainbow_sa": "ERainbow-sa",
    "curl": "CURL",
    "rcrl": "RCRL",
    "rcrl_curl": "RCRL+CURL",
    "erainbow_sa_normal": "ERainbow-sa",
    "rcrl_normal": "RCRL",
}
"""Preset name -> column of the RCRL paper's Table 1."""

CONTROL_COLUMN: dict[str, str] = {
    "state_sac": "State SAC",
    "pixel_sac": "Pixel SAC",
    "sac_ae": "SAC+AE",
    "curl_sac": "CURL",
    "sac_aug": "RAD [rliable run data]",
    "slac": "SLAC [rliable run data]",
    "dreamer": "Dreamer",
    "planet": "PlaNet",
}
"""Preset -> the same system on DMControl in `dmc_scores`; RCRL's paper prints only curves."""

# Only three columns are the paper's own runs. Its text says 5 seeds, and the granularity of the
# printed means implies 10 episodes per seed. The other columns equal Table 2 of CURL's paper in all
# 26 games.
_RUNS_BEHIND: dict[str, str] = {
    "SimPLe": "published, copied from CURL's paper: stochastic model, best of several reports",
    "Rainbow": "published, copied from CURL's paper",
    "ERainbow": "published, copied from CURL's paper",
    "ERainbow-sa": "published, 5 seeds, 10 episodes each",
    "CURL": "published, copied from CURL's paper: 20 seeds, best in training",
    "RCRL": "published, 5 seeds, 10 episodes each",
    "RCRL+CURL": "published, 5 seeds, 10 episodes each",
}

_MINATAR_UNIFORM: dict[str, float] = {
    "Breakout": 0.36, "SpaceInvaders": 4.17, "Asterix": 0.22, "Seaquest": 0.06, "Freeway": 0.46,
}  # fmt: skip
"""Mean return of uniform play in 100 episodes, seeds 0 to 99, minimal actions, sticky 0.1."""


class AtariScore(NamedTuple):
    """Mean raw score of one agent on one game at 100k agent steps."""

    game: str
    agent: str
    score: float
    source: str


class DmcScore(NamedTuple):
    """Mean return after `env_steps` environment steps; its standard deviation where printed."""

    task: str
    agent: str
    env_steps: int
    mean: float
    std: float | None
    source: str


@functools.cache
def atari100k_scores() -> tuple[AtariScore, ...]:
    """Every published Atari-100k score: 18 agents (Random and Human among them) on 26 games."""
    return tuple(
        AtariScore(**row | {"score": float(row["score"])}) for row in _read("atari100k_scores.csv")
    )


@functools.cache
def dmc_scores() -> tuple[DmcScore, ...]:
    """Every published DMControl return: six tasks at 100k and 500k environment steps."""
    return tuple(
        DmcScore(
            **row
            | {"env_steps": int(row["env_steps"]), "mean": float(row["mean"])}
            | {"std": float(row["std"]) if row["std"] else None}
        )
        for row in _read("dmc_scores.csv")
    )


@functools.cache
def games() -> tuple[str, ...]:
    """The 26 games of Atari-100k, in the paper's order."""
    return tuple(dict.fromkeys(row.game for row in atari100k_scores()))


@functools.cache
def tasks() -> tuple[str, ...]:
    """The six tasks of DMControl, in the order of CURL's paper."""
    return tuple(dict.fromkeys(row.task for row in dmc_scores()))


def family_of(game: str, preset: str) -> str | None:
    """The benchmark of a run: `atari`, `dmc` or `minatar`; `own` of a game of one's own.

    Four games of MinAtar have the name of an Atari game, but its presets are named `minatar_...`.
    Names of games of one's own have a dot. None for other games.
    """
    if "." in game:
        return "own"
    if preset.startswith("minatar_"):
        return "minatar"
    if game in games():
        return "atari"
    return "dmc" if game in tasks() else None


def random_play(game: str, preset: str) -> float:
    """The score of random play on the game of a run: published, or on MinAtar measured.

    Raises:
        LookupError: there is none, as on DMControl.
    """
    if family_of(game, preset) == "minatar":
        return _MINATAR_UNIFORM[game]
    if family_of(game, preset) != "atari":
        raise LookupError(f"no published score of random play on {game} with {preset}")
    return published(game, "Random")


def published(game: str, agent: str) -> float:
    """Returns the published mean raw score of `agent` on `game` at 100k agent steps.

    Args:
        game: one of `games()`.
        agent: a name of the table's column `agent`, for example `Random`, `Human`, `RCRL`.

    Raises:
        LookupError: no such game, or no such agent; the message lists those there are.
    """
    scores = _scores_by_agent()
    if game not in games():
        raise LookupError(f"no published scores for game {game!r}; there are: {', '.join(games())}")
    if agent not in scores:
        raise LookupError(f"no published scores of agent {agent!r}; there are: {', '.join(scores)}")
    return scores[agent][game]


def human_normalised(game: str, score: float) -> float:
    """Returns (score - random) / (human - random): 0 is random play, 1 is the human tester.

    Raises:
        LookupError: `game` is not one of `games()`.
    """
    random, human = published(game, "Random"), published(game, "Human")
    return (score - random) / (human - random)


def normalised(game: str, score: float) -> float:
    """Returns a score that is comparable between games or tasks.

    Human-normalised on Atari; on DMControl the share of 1000, the largest return of an episode.

    Raises:
        LookupError: `game` is neither one of `games()` nor one of `tasks()`.
    """
    return score / 1000 if game in tasks() else human_normalised(game, score)


def comparison(game: str, preset: str, mean_score: float, behind: str) -> str:
    """Compares one run's mean score with random play, the human tester and the paper's score.

    A DMControl score is compared with four systems of CURL's paper and with the preset's own.

    Args:
        game: any game or task; one outside the tables gets a sentence that says so.
        preset: any preset; one that is no row of the paper gets a line that says so.
        mean_score: mean raw return of the run's final evaluation.
        behind: what is behind that score, such as `1 seed, 4,000 steps, 2 episodes`.

    Returns:
        A table of several lines, without a newline at its end.
    """
    family = family_of(game, preset)
    if family == "dmc":
        rows = [(game, "100k steps", "500k steps"), *_control_rows(game, preset)]
        width = max(len(label) for label, *_ in rows)
        lines = [f"{label:<{width}}  {first:<10}  {last}" for label, first, last in rows]
        return "\n".join(
            [
                *lines,
                "(returns after that many environment steps; RCRL's paper prints none)",
                f"this run, {preset} ({behind}): {mean_score:.1f}",
            ]
        )
    if family != "atari":
        return f"{game}: no published scores; this run, {preset} ({behind}): {mean_score:.4g}"
    rows = [("random", published(game, "Random")), ("human", published(game, "Human"))]
    column = PAPER_COLUMN.get(preset)
    if column is not None:
        rows.append((f"{column} ({_RUNS_BEHIND[column]})", published(game, column)))
    rows.append((f"this run, {preset} ({behind})", mean_score))
    width = max(len(label) for label, _ in rows)
    lines = [f"{game:<{width}}  {'score':>9}  human-normalised"]
    lines += [
        f"{label:<{width}}  {score:>9.1f}  {100 * human_normalised(game, score):>13.1f} %"
        for label, score in rows
    ]
    if column is None:
        lines.append(f"the paper has no figure for preset {preset}")
    return "\n".join(lines)


def fleet_comparison(preset: str, scores: Mapping[str, Sequence[float]]) -> str:
    """Compares the scores of several runs with published ones, one line per game.

    Args:
        preset: of all runs.
        scores: game or task -> the mean raw return of each run's final evaluation.

    Returns:
        A table of several lines, without a newline at its end. The last line explains its columns.
    """
    head: list[str] = []
    family = family_of(next(iter(scores)), preset)
    if family == "atari":
        head = ["Random", "Human", *filter(None, [PAPER_COLUMN.get(preset)])]
    elif family == "dmc":
        head = ["100k steps", "500k steps"]
    elif family == "minatar":
        head = ["uniform play"]

    def others(game: str) -> Iterator[str]:
        if family == "atari":
            yield from (f"{published(game, agent):.1f}" for agent in head)
        elif family == "dmc":
            yield from _control_rows(game, preset)[-1][1:]
        elif family == "minatar":
            yield f"{_MINATAR_UNIFORM[game]:.1f}"

    rows = [
        [
            game,
            *others(game),
            f"{statistics.mean(own):.1f}" + (f" ± {statistics.stdev(own):.1f}" if own[1:] else ""),
            f"{len(own)}",
        ]
        for game, own in scores.items()
    ]
    head = ["", *head, preset, "runs"]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [
        f"{row[0]:<{widths[0]}}"
        + "".join(f"  {cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
        for row in [head, *rows]
    ]
    return "\n".join([*lines, f"({preset}: mean ± deviation over runs{_SOURCES.get(family, '')})"])


_SOURCES = {
    "atari": "; the others: published",
    "dmc": "; the others: published, of the preset's system, or else of CURL",
    "minatar": "; uniform play: measured",
}


def _control_rows(task: str, preset: str) -> list[tuple[str, str, str]]:
    """Label and scores at both budgets of four systems of CURL's paper and of the preset's own.

    The preset's own system is the last one, or else CURL.
    """
    usual = ("State SAC", "Pixel SAC", "SAC+AE", "CURL")
    found = {(row.agent, row.env_steps): row for row in dmc_scores() if row.task == task}
    rows = []
    last = CONTROL_COLUMN.get(preset, "CURL")  # `fleet_comparison` shows the last one alone
    for agent in (*(one for one in usual if one != last), last):
        own = [found.get((agent, steps)) for steps in (100_000, 500_000)]
        is_of_curl = all(row is None or row.source.startswith("CURL paper") for row in own)
        label = f"{agent} (published by CURL's paper)" if is_of_curl else f"{agent} (published)"
        rows.append((label, *("-" if row is None else _spread(row) for row in own)))
    return rows


def _spread(row: DmcScore) -> str:
    return f"{row.mean:.0f}" if row.std is None else f"{row.mean:.0f} +- {row.std:.0f}"


@functools.cache
def _scores_by_agent() -> dict[str, dict[str, float]]:
    scores: dict[str, dict[str, float]] = {}
    for row in atari100k_scores():
        scores.setdefault(row.agent, {})[row.game] = row.score
    return scores


def _read(name: str) -> Iterator[dict[str, str]]:
    path = importlib.resources.files("rcrl_jax.reference") / "data" / name
    with path.open(newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file)
